// Chapter 22, given: what a rank has, its streams and events, and the distribution of the tensors to the ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "common/cuda/kernel.hpp"
#include "common/cuda/memory.hpp"
#include "common/nccl/ranks.hpp"
#include "shards.hpp"

namespace ch22 {
namespace {

using workbook::cuda::DeviceArray, workbook::cuda::Role;

template <class Element>
constexpr ncclDataType_t type_of = std::is_same_v<Element, half> ? ncclFloat16 : ncclBfloat16;

/// The streams of a rank, and of each K/V buffer: an event when a shard has arrived in it, and one when the step that
/// uses it has ended.
struct Streams {
  cudaStream_t compute, copies;
  cudaEvent_t arrived[2], used[2];
  Streams() {
    cudaStreamCreateWithFlags(&compute, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking);
    for (cudaEvent_t* event : {&arrived[0], &arrived[1], &used[0], &used[1]})
      cudaEventCreateWithFlags(event, cudaEventDisableTiming);
  }
  ~Streams() {
    for (cudaEvent_t event : {arrived[0], arrived[1], used[0], used[1]}) cudaEventDestroy(event);
    for (cudaStream_t stream : {compute, copies}) cudaStreamDestroy(stream);
  }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
};

/// Copies a rank's two chunks of rows of every head between the whole tensor, (heads, rows of a head, row bytes) on
/// device 0, and the rank's part of it.
template <class Part>
void copy_chunks(const void* whole, const void* part, bool to_rank, std::int64_t heads, std::int64_t rows_per_head,
                 std::size_t row_bytes, int rank, const Shards& shards, Part part_of_chunk, cudaStream_t stream) {
  int device = 0;
  cudaGetDevice(&device);
  auto* at = static_cast<std::byte*>(const_cast<void*>(part));
  for (std::int64_t head = 0; head < heads; ++head)
    for (int half : {0, 1}) {
      const Range rows = part_of_chunk(shards.chunk(rank, half));
      const std::size_t bytes = std::size_t(rows.size()) * row_bytes;
      auto* there = static_cast<std::byte*>(const_cast<void*>(whole)) +
                    std::size_t(head * rows_per_head + rows.first) * row_bytes;
      to_rank ? cudaMemcpyPeerAsync(at, device, there, 0, bytes, stream)
              : cudaMemcpyPeerAsync(there, 0, at, device, bytes, stream);
      at += bytes;
    }
}

}  // namespace
}  // namespace ch22
