// Chapter 16, given: the kernels of any_pair_backward.cu once more, with bf16 for their element type.
//
// Test it: ./workbook test 16 --only "the gradients in bf16 agree with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the file that is included below (convert.hpp)
#include "any_pair_backward.cu"
