// Device memory as a value.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>
#include <utility>

#include "common/cuda/device_memory.hpp"
#include "common/cuda/refusals.hpp"

namespace workbook::cuda {

/// `size` elements of T on the device, with a name for counters and reports.
template <class T>
class DeviceArray {
 public:
  DeviceArray() = default;  ///< nothing
  DeviceArray(std::string_view name, std::size_t size, Role role = Role::input)
      : data_(static_cast<T*>(allocate(size * sizeof(T), name, sizeof(T), role))), size_(size) {}
  /// Copies from the host. U may be another type of the same size, such as 16-bit codes for half.
  template <class U>
  DeviceArray(std::string_view name, std::span<const U> host) : DeviceArray(name, host.size()) {
    upload(host);
  }
  ~DeviceArray() {
    if (data_ != nullptr) release(data_);
  }
  DeviceArray(DeviceArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  std::size_t size() const { return size_; }

  template <class U>
  void upload(std::span<const U> host) {
    static_assert(sizeof(U) == sizeof(T));
    require_size(host.size(), size_);
    cuda::upload(data_, host.data(), host.size_bytes());
  }
  template <class U>
  void download(std::span<U> host) const {
    static_assert(sizeof(U) == sizeof(T) && !std::is_const_v<U>);
    require_size(host.size(), size_);
    cuda::download(host.data(), data_, host.size_bytes());
  }
  /// Counts reads by tiles of `elements` elements (simulator).
  void count_by_tiles(std::size_t elements) {
    cuda::count_by_tiles(data_, {1, (size_ + elements - 1) / elements, elements * sizeof(T), 1});
  }
  /// Counts reads by tiles of `tile_rows` rows, separately for each matrix (rows, columns) (simulator).
  void count_by_tiles(std::size_t matrices, std::size_t rows, std::size_t columns, std::size_t tile_rows) {
    cuda::count_by_tiles(data_, {matrices, rows, columns * sizeof(T), tile_rows});
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace workbook::cuda
