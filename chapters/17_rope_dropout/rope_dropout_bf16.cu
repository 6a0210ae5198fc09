// Chapter 17, given: compiles the kernel of rope_dropout.cu again, for bf16.
//
// Test it: ./workbook test 17 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "rope_dropout.cu"
