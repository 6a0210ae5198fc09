// Chapter 8, given: the kernel of registers.cu once more, with bf16 for its element type.
//
// Test it: ./workbook test 8 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "registers.cu"
