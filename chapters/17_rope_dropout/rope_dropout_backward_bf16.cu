// Chapter 17, given: compiles the kernels of rope_dropout_backward.cu again, for bf16.
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the file that is included below (convert.hpp)
#include "rope_dropout_backward.cu"
