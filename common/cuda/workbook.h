/* The stages of chapters as a library with a C interface: ./workbook library --chapters 8,9 makes it.
 *
 * A stage computes attention in one pass, forward or backward, for one element type. Tensors are those of one problem:
 * Q, O, dO, dQ (B, H, Nq, d); K, V, dK, dV (B, Hkv, Nk, d); lse (B, H, Nq), float, natural logarithms, -inf in rows
 * that see no key. Elements of 16 bits, but for lse.
 *
 * On CUDA, pointers are device memory, and a call only starts kernels on the stream that it is given: it allocates
 * nothing, waits for nothing, and never uses another stream, so that a CUDA graph can capture it. Call a stage once
 * before capturing: its kernels are loaded then. On the simulator, pointers are host memory, a call returns when all is
 * done, and what the simulator reports (races, accesses outside of a tensor, elements never written) is its error.
 *
 * Any number of threads may call at once. Every function that returns int returns a workbook_status.
 */
#ifndef WORKBOOK_H
#define WORKBOOK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface; workbook_interface() returns the library's. */
#define WORKBOOK_INTERFACE 4

enum workbook_status {
  WORKBOOK_OK = 0,
  WORKBOOK_NOT_SERVED =
      1, /* an argument that this stage does not support: the text names it, its value and what is allowed */
  WORKBOOK_UNAVAILABLE = 2,   /* this device cannot run the stage */
  WORKBOOK_OPEN_EXERCISE = 3, /* the code reaches an exercise that is still open */
  WORKBOOK_KERNEL_FAILED = 4, /* a launch was refused, a kernel failed, or the simulator reports mistakes in it */
  WORKBOOK_OUT_OF_MEMORY = 5,
  WORKBOOK_FAILED = 6 /* anything else */
};

/* The error message of this thread's last call that did not return WORKBOOK_OK. Valid until the next call. */
const char* workbook_error(void);

int workbook_interface(void);
/* "cuda" or "sim". */
const char* workbook_backend(void);

/* A stage and what it supports. Pointers are valid as long as the library is loaded. */
typedef struct workbook_stage {
  int chapter;
  const char* folder;  /* "08_registers" */
  const char* pass;    /* "forward" or "backward" */
  const char* element; /* "float16", "bfloat16"; "float8": Q, K and V are float16 and are rounded by the stage */
  const int* head_dims;
  int head_dim_count;
  const char* const* masks; /* parts of masks: "none", "causal", "window", "softcap", "alibi", "sink", "packed", "cache"… */
  int mask_count;
  int shared_heads;  /* 1: H may be any multiple of Hkv; 0: H = Hkv */
  int deterministic; /* 1: a problem may request bitwise reproducible results */
  int compute;       /* the lowest compute capability; 80 means 8.0 */
  int compute_only;  /* 1: only that compute capability */
  int lse_gradient;  /* 1: the loss may depend on lse too (dlse) */
} workbook_stage;

int workbook_stage_count(void);
/* NOT_SERVED for an invalid index. */
int workbook_stage_at(int index, workbook_stage* stage);
/* OK if this machine's device (the current one) can run the stage, otherwise UNAVAILABLE. */
int workbook_stage_runs_here(int index);

typedef struct workbook_problem {
  int64_t B, H, Hkv, Nq, Nk, d; /* from 1 on; H is a multiple of Hkv */
  float scale;                  /* multiplies Q Kᵀ; usually 1/√d */
  int deterministic;
  /* The mask: "none", "causal" (the last query attends to all keys, the one before it to all but the last, …) or
   * "window=256,0" (256 keys before and 0 keys after the query's own position). If the stage supports them, the
   * following may be appended: "+softcap=50", "+alibi", "+sink" (the call has sinks), "+lengths=100,37" (packed
   * sequences, which add up to Nq = Nk). Chapter 16 also has "prefix=100" (keys visible to all queries),
   * "strided=64,256" (64 of every 256 keys, backward from the query's own position) and "documents=100,37" (lengths of
   * documents; with starts, as for packed sequences). Chapter 17 has "+rope" (rows of Q and K are rotated by their
   * positions) and "+dropout=0.1,7" (drops a tenth of P, with the seed 7). */
  const char* mask;
  int lse_gradient; /* 1: a backward call has dlse */
  /* A KV cache, for a forward stage with the mask "cache": K and V have `pages` pages of page_size keys. Each request
   * has at most Nk keys, and its newest is the last that the causal mask shows. page_size = 0: no cache. */
  int64_t page_size, pages;
  /* Thread blocks that share the keys of a head, one of those that the stage is built for; 0: the stage chooses. With
   * the same number, a request has the same bits in every batch. */
  int splits;
} workbook_problem;

/* data: aligned to 16 bytes. strides: from one element to the next, in elements, in the order of the sizes above; NULL
 * for a tensor without gaps. Stages support only tensors without gaps; others are NOT_SERVED. K and V of a cache are
 * (pages, Hkv, page_size, d): they may have any strides that are multiples of 8, the same in both, with 1 for d. So
 * (pages, page_size, Hkv, d) is possible too. */
typedef struct workbook_tensor {
  void* data;
  const int64_t* strides;
} workbook_tensor;

typedef struct workbook_forward_tensors {
  workbook_tensor Q, K, V; /* in */
  workbook_tensor O, lse;  /* out */
  /* in, if the mask has "+sink" and "+lengths=…", otherwise NULL. sink: one logit per head, (H), float. starts: the
   * first row of each sequence, then the end of the last one, (S + 1), int32_t. */
  workbook_tensor sink, starts;
  /* in, for a KV cache, otherwise NULL. cache_seqlens: the number of keys of each request, 0 to Nk, (B), int32_t.
   * block_table: the page of each page_size keys, (B, Nk / page_size rounded up), int32_t; entries after the last key
   * are not read. NULL: request b has the keys of page b, and Nk = page_size. */
  workbook_tensor cache_seqlens, block_table;
} workbook_forward_tensors;

typedef struct workbook_backward_tensors {
  workbook_tensor Q, K, V, O, dO, lse; /* in */
  workbook_tensor dQ, dK, dV;          /* out */
  workbook_tensor sink, starts;        /* in, as above */
  workbook_tensor dsink;               /* out, (H), float, if the mask has "+sink" */
  workbook_tensor dlse;                /* in, (B, H, Nq), float, if the problem has lse_gradient, otherwise NULL */
} workbook_backward_tensors;

/* Bytes of device memory, aligned to 256 bytes, that a call for this problem needs in addition to its tensors; its
 * initial contents do not matter. 0 on the simulator, which uses memory of its own. Checks the problem as the call
 * does. */
int workbook_workspace(int index, const workbook_problem* problem, size_t* bytes);

/* stream: a cudaStream_t. */
int workbook_forward(int index, const workbook_problem* problem, const workbook_forward_tensors* tensors,
                     void* workspace, size_t workspace_bytes, void* stream);
int workbook_backward(int index, const workbook_problem* problem, const workbook_backward_tensors* tensors,
                      void* workspace, size_t workspace_bytes, void* stream);

/* Ends the current call on the simulator, which then returns FAILED. Called by another thread than the call's. Does
 * nothing on the GPU. */
void workbook_interrupt(void);

/* Waits for the device. KERNEL_FAILED or OPEN_EXERCISE if a kernel since the last time came to that. */
int workbook_synchronize(void);

#ifdef __cplusplus
}
#endif

#endif
