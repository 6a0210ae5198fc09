// Chapter 11, given: the kernel of wgmma.cu, compiled for bf16.
//
// Test it: ./workbook test 11 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "wgmma.cu"
