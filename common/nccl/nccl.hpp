// NCCL's names for the host code of kernel files, for ranks that are threads of one process (ranks.hpp).
//
// On GPUs, the functions call NCCL's if each rank has a GPU (gpu_ranks.cu). On the simulator a call waits until the
// other ranks have made theirs: no message is buffered, however small, so a send outside a group waits for its receive,
// as a large one does on GPUs. Transfers are checked and counted (ranks.hpp).
#pragma once

#include <cstddef>

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#else
#include "common/simt/cuda_streams.hpp"
#endif

namespace workbook::nccl {
struct Communicator;
}

using ncclComm_t = workbook::nccl::Communicator*;
enum ncclResult_t { ncclSuccess = 0 };
enum ncclDataType_t {
  ncclInt8 = 0,
  ncclUint8 = 1,
  ncclInt32 = 2,
  ncclUint32 = 3,
  ncclInt64 = 4,
  ncclUint64 = 5,
  ncclFloat16 = 6,
  ncclHalf = 6,
  ncclFloat32 = 7,
  ncclFloat = 7,
  ncclFloat64 = 8,
  ncclBfloat16 = 9,
};
enum ncclRedOp_t { ncclSum = 0, ncclMax = 2 };

#if defined(__CUDACC__)

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();

#else

namespace workbook::nccl {
void start_group(simt::Where where);
void end_group(simt::Where where);
}  // namespace workbook::nccl

ncclResult_t ncclCommCount(ncclComm_t communicator, int* count);
ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank);
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream, simt::Where where = simt::Where::current());
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream, simt::Where where = simt::Where::current());
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream, simt::Where where = simt::Where::current());
/// On the simulator, reductions take float alone.
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream,
                               simt::Where where = simt::Where::current());
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream, simt::Where where = simt::Where::current());
inline ncclResult_t ncclGroupStart(simt::Where where = simt::Where::current()) {
  workbook::nccl::start_group(where);
  return ncclSuccess;
}
inline ncclResult_t ncclGroupEnd(simt::Where where = simt::Where::current()) {
  workbook::nccl::end_group(where);
  return ncclSuccess;
}

#endif
