// Chapter 9, given: the kernels of backward_registers.cu for bf16, the same text.
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the file that is included below (convert.hpp)
#include "backward_registers.cu"
