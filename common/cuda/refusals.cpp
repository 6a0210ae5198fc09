#include "common/cuda/refusals.hpp"

#include <stdexcept>
#include <string>

#include "common/cuda/error.hpp"

namespace workbook::cuda {

void refuse_grid(std::int64_t blocks, const char* what) {
  throw std::invalid_argument(what + (" = " + std::to_string(blocks)) +
                              ": allowed: at most 2147483647 thread blocks in a grid");
}

void refuse_head_dim(std::int64_t d, int least) {
  throw std::invalid_argument("d = " + std::to_string(d) +
                              " is not supported; allowed: " + (least == 32 ? "32, 64 and 128" : "64 and 128"));
}

void refuse_tiles(const Tiles& tiles) {
  throw std::invalid_argument("Br, Bc, warps = " + std::to_string(tiles.Br) + ", " + std::to_string(tiles.Bc) + ", " +
                              std::to_string(tiles.warps) + ": these kernels are not built for these sizes");
}

void refuse_setting(const Setting& given, int d_taken, const Mask& mask_taken) {
  const auto text = [](std::int64_t d, const Mask& mask) {
    return "d = " + std::to_string(d) + ", mask = " + mask.name();
  };
  throw std::invalid_argument(text(given.shape.d, given.mask) + ": this kernel supports only " +
                              text(d_taken, mask_taken));
}

void require_size(std::size_t given, std::size_t size) {
  if (given == size) return;
  throw Error("copying " + std::to_string(given) + " elements from or to a device array of " + std::to_string(size) +
              " elements");
}

void check_tensor_map(const void* memory, std::uint64_t before, std::uint64_t element_bytes,
                      const std::vector<std::uint64_t>& sizes, const std::vector<std::uint64_t>& strides,
                      const std::vector<std::uint32_t>& box, unsigned swizzle) {
  const auto refuse = [](const std::string& why) { throw Error("tensor_map: " + why); };
  const auto text = [](std::uint64_t x) { return std::to_string(x); };
  if (sizes.size() < 2 || sizes.size() > 5) refuse(text(sizes.size()) + " sizes; allowed: 2 to 5");
  if (strides.size() + 1 != sizes.size()) {
    refuse(text(strides.size()) + " strides for " + text(sizes.size()) +
           " sizes; every dimension but the first needs a stride, in bytes");
  }
  if (box.size() != sizes.size()) {
    refuse("a box of " + text(box.size()) + " dimensions for a tensor of " + text(sizes.size()));
  }
  if (reinterpret_cast<std::uintptr_t>(memory) % 16 != 0)
    refuse("memory is not aligned; allowed: an address that is a multiple of 16 bytes");
  if (before % 16 != 0 || before > reinterpret_cast<std::uintptr_t>(memory)) {
    refuse("before is " + text(before) + " bytes; allowed: multiples of 16, up to the memory's address");
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 1 || sizes[i] > std::uint64_t(1) << 32) {
      refuse("sizes[" + text(i) + "] is " + text(sizes[i]) + "; allowed: 1 to 2^32");
    }
    if (box[i] < 1 || box[i] > 256) refuse("box[" + text(i) + "] is " + text(box[i]) + "; allowed: 1 to 256");
  }
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] % 16 != 0 || strides[i] == 0 || strides[i] >= std::uint64_t(1) << 40) {
      refuse("strides[" + text(i) + "] is " + text(strides[i]) + " bytes; allowed: multiples of 16 below 2^40");
    }
  }
  const std::uint64_t row = box[0] * element_bytes;
  constexpr std::uint64_t kSpans[] = {0, 32, 64, 128};
  const std::uint64_t span = kSpans[swizzle];
  if (row % 16 != 0) refuse("a row of the box has " + text(row) + " bytes; allowed: multiples of 16");
  if (span != 0 && row != span) {
    refuse("a row of the box has " + text(row) + " bytes; allowed with this swizzle: " + text(span));
  }
}

}  // namespace workbook::cuda
