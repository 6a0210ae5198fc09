// Chapter 9, given: compiles the kernels of backward_registers.cu for bf16.
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the file that is included below (convert.hpp)
#include "backward_registers.cu"
