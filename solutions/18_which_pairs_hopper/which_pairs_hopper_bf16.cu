// Chapter 18, given: the kernel of which_pairs_hopper.cu, compiled for bf16.
//
// Test it: ./workbook test 18 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "which_pairs_hopper.cu"
