// Chapter 21, given: the kernels of paged_cache.cu once more, with bf16 for their element type.
//
// Test it: ./workbook test 21 --only "bf16 agrees with the oracle"
#define WORKBOOK_ELEMENT __nv_bfloat16  // the Element of the kernel file that is included below (convert.hpp)
#include "paged_cache.cu"
