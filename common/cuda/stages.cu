// The code that all chapters' stages share, instantiated for the element types of kernels (stage.hpp).
#include "common/cuda/stage.hpp"

namespace workbook::cuda {

template Stage::Stage(const ForwardStage<half>&, const char*);
template Stage::Stage(const ForwardStage<__nv_bfloat16>&, const char*);
template Stage::Stage(const BackwardStage<half>&, const char*);
template Stage::Stage(const BackwardStage<__nv_bfloat16>&, const char*);

}  // namespace workbook::cuda
