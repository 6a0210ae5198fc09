/* One query on one key, whose O is V; and a tensor with gaps, which is refused. */
#include <stdio.h>
#include <string.h>

#include "workbook.h"

static _Alignas(16) uint16_t Q[64], K[64], V[64], O[128];
static _Alignas(16) float lse[4];

static int failed(const char* what) {
  printf("%s: %s\n", what, workbook_error());
  return 1;
}

int main(void) {
  workbook_stage stage;
  int index = 0;
  for (; index < workbook_stage_count(); ++index) {
    if (workbook_stage_at(index, &stage) != WORKBOOK_OK) return failed("stage");
    if (strcmp(stage.pass, "forward") == 0 && strcmp(stage.element, "float16") == 0) break;
  }
  if (index == workbook_stage_count()) return failed("there is no stage");
  if (workbook_stage_at(-1, &stage) != WORKBOOK_NOT_SERVED) return failed("stage -1");
  for (int i = 0; i < 64; ++i) V[i] = (uint16_t)(0x3c00 + i); /* 1 and more */

  workbook_problem problem = {.B = 1, .H = 1, .Hkv = 1, .Nq = 1, .Nk = 1, .d = 64, .scale = 1, .mask = "none"};
  workbook_forward_tensors tensors = {
      .Q = {Q, NULL}, .K = {K, NULL}, .V = {V, NULL}, .O = {O, NULL}, .lse = {lse, NULL}};
  size_t bytes = 1;
  if (workbook_workspace(index, &problem, &bytes) != WORKBOOK_OK || bytes != 0) return failed("workspace");
  if (workbook_forward(index, &problem, &tensors, NULL, 0, NULL) != WORKBOOK_OK) return failed("forward");
  if (memcmp(O, V, sizeof V) != 0 || lse[0] != 0) return failed("O is not V");
  if (workbook_backward(index, &problem, NULL, NULL, 0, NULL) != WORKBOOK_NOT_SERVED) return failed("no tensors");

  const int64_t strides[4] = {128, 64, 32, 2};
  tensors.O.strides = strides;
  problem.d = 32;
  if (workbook_forward(index, &problem, &tensors, NULL, 0, NULL) != WORKBOOK_NOT_SERVED) return failed("gaps");
  printf("%s\n", workbook_error());
  return 0;
}
