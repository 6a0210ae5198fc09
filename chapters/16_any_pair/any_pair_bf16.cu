// Chapter 16, given: the kernel of any_pair.cu once more, with bf16 for its element type.
//
// Test it: ./workbook test 16 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "any_pair.cu"
