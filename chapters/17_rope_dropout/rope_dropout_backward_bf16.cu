// Chapter 17, given: the kernels of rope_dropout_backward.cu for bf16, the same text.
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the file that is included below (convert.hpp)
#include "rope_dropout_backward.cu"
