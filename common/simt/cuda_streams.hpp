// Streams and events under CUDA's names. The functions return cudaSuccess, or throw KernelMistakes.
#pragma once

#include "common/simt/streams.hpp"

using cudaStream_t = simt::Stream*;
using cudaEvent_t = simt::Event*;
enum cudaError_t { cudaSuccess = 0 };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice = 3 };
inline constexpr unsigned cudaStreamDefault = 0, cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2;

inline cudaError_t cudaSetDevice(int device) {
  simt::set_device(device);
  return cudaSuccess;
}
inline cudaError_t cudaGetDevice(int* device) {
  *device = simt::device();
  return cudaSuccess;
}
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags,
                                             simt::Where where = simt::Where::current()) {
  *stream = simt::create_stream(flags != cudaStreamNonBlocking, where);
  return cudaSuccess;
}
inline cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  simt::destroy(stream);
  return cudaSuccess;
}
inline cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  simt::synchronize(stream);
  return cudaSuccess;
}
inline cudaError_t cudaDeviceSynchronize() {
  simt::synchronize_device();
  return cudaSuccess;
}
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  *event = simt::create_event();
  return cudaSuccess;
}
inline cudaError_t cudaEventDestroy(cudaEvent_t event) {
  simt::destroy(event);
  return cudaSuccess;
}
inline cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  simt::record(event, stream);
  return cudaSuccess;
}
inline cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  simt::synchronize(event);
  return cudaSuccess;
}
inline cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned = 0) {
  simt::wait(stream, event);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t stream,
                                   simt::Where where = simt::Where::current()) {
  simt::copy_on(stream, to, from, bytes, where);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* to, int byte, std::size_t bytes, cudaStream_t stream,
                                   simt::Where where = simt::Where::current()) {
  simt::fill_on(stream, to, byte, bytes, where);
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes, cudaStream_t stream,
                                       simt::Where where = simt::Where::current()) {
  simt::copy_on(stream, to, from, bytes, where, /*between_devices=*/true);
  return cudaSuccess;
}
