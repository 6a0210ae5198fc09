// Chapter 10, given: the kernel of copy_engine.cu, compiled for bf16.
//
// Test it: ./workbook test 10 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "copy_engine.cu"
