// Chapter 8, given: the kernel of registers.cu, compiled for bf16.
//
// Test it: ./workbook test 8 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "registers.cu"
