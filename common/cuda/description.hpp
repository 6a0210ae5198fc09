// The description of a stage, without the types of its kernels: the sizes it is built for, how its warps divide a tile,
// and the memory it needs. Calls are checked against the description, and the operation "describe" returns it.
//
// A chapter describes its stages in stage.cu (stage.hpp) or, for the CPU, in stage.cpp (cpu_stage.hpp).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "common/attention/element_type.hpp"
#include "common/cuda/calls.hpp"
#include "common/cuda/operations.hpp"

namespace workbook::cuda {

/// An array of device memory that a stage needs in addition to its call's tensors.
struct ScratchArray {
  std::string name;
  std::size_t element_bytes = 0;
  std::function<std::size_t(const Setting&)> size;  ///< in elements
  bool zeroed = false;                              ///< zeros when it is allocated, and again after each call
};
/// size: the number of elements as a function of a call's shape, or of its setting if it depends on the mask.
template <class T, class Size>
ScratchArray scratch(const char* name, Size size) {
  if constexpr (std::is_invocable_v<Size, const Setting&>)
    return {name, sizeof(T), std::move(size)};
  else
    return {name, sizeof(T), [size](const Setting& setting) { return size(setting.shape); }};
}
/// The same for an array that is set to zero when it is allocated; the stage leaves it so.
template <class T, class Size>
ScratchArray zeroed(const char* name, Size size) {
  ScratchArray array = scratch<T>(name, size);
  array.zeroed = true;
  return array;
}

/// The problems that a stage supports, apart from its head dimensions: parts of masks, and whether several query heads
/// may share a K/V head (Hkv < H).
struct Served {
  std::vector<Mask> masks = plain_masks();
  bool shared_heads = false;
  bool lse_gradient = false;  ///< of a backward pass: the loss may depend on the LSE too (BackwardCall::dlse)
};

/// Throws Unavailable if a device of compute capability `device` cannot run kernels that need at least `compute`, or
/// exactly `compute` if `only`. 90 means 9.0.
void require_compute(int device, int compute, bool only);

/// The sizes of Tiles or GradientTiles, in their order; a description's `size_names` names them.
using Sizes = std::array<int, 3>;

struct Description {
  Description();
  Description(const Description&);
  Description(Description&&) noexcept;
  Description& operator=(const Description&);
  Description& operator=(Description&&) noexcept;
  ~Description();
  /// The same stage with other kernels, selected if a call's number `number` equals `value`.
  void add_variant(const char* number, int value, const Description& description);

  std::string pass;           ///< "forward", "backward"
  std::string operation;      ///< its name as an operation
  Element element = float32;  ///< of Q, K, V, O
  bool float_gradients = false;
  Served serves;
  std::vector<int> head_dims;  ///< none: any
  std::array<const char*, 3> size_names{"Br", "Bc", "warps"};
  std::vector<Sizes> sizes;  ///< the first that is built for d and fits the device is the default
  bool any_sizes = false;    ///< any other sizes from 1 on are supported too
  /// Shared memory of a thread block in bytes; 0: no kernel of these sizes for this d. Empty: the stage uses none.
  std::function<std::size_t(int d, const Sizes&)> shared_bytes;
  std::function<std::size_t()> shared_limit;  ///< maximum per thread block of the device
  int compute = 0;                            ///< the lowest compute capability that has the kernels' instructions
  bool compute_only = false;                  ///< only this one has them
  std::function<int()> device_compute;        ///< the device's
  int rows_per_warp = 0;                      ///< rows of Q per warp; 0: the warps share all rows
  bool warps_split_keys = false;
  std::vector<ScratchArray> extra;

  struct Variant;
  std::vector<Variant> variants;  ///< see add_variant
};
struct Description::Variant {
  std::string number;
  int value = 0;
  Description description;
};

/// The index of the variant that a call requests; -1: none. std::invalid_argument for an unknown value or number.
int chosen_variant(const Description& stage, const Arguments& call);

/// The first sizes that are built for the call's d, match the sizes that the call gives by name, and fit in the
/// device's shared memory and in the call's number "shared_limit". std::invalid_argument, naming the argument, its
/// value and what is allowed, if there are none, and for a d, a mask or a number of heads that the stage does not
/// support.
Sizes chosen_sizes(const Description& stage, const Arguments& call);

/// A stage and its operations. bench: see timing.hpp. blocks: what each thread block of a forward pass did. Either may
/// be empty.
struct StageOperations {
  Description description;
  std::function<void(const Arguments&)> run, bench, blocks;
  /// On the GPU: launches the kernels on this stream. The call's arrays are in device memory, and `workspace` has
  /// workspace_bytes() bytes (extra_memory.hpp). Empty on the simulator and the CPU.
  std::function<void(const Arguments&, void* workspace, void* stream)> start;
  std::string folder;  ///< the folder of the stage's chapter: "04_q_split"
};
/// The name, without path, of the folder that contains a file.
std::string folder_of(const char* file);

/// All stages of this program. A worker contains the stages of one chapter, a library (workbook.h) those of several.
const std::vector<StageOperations>& all_stages();

/// Adds a stage to this program before main: its own operation and "blocks" and, once for all stages, "bench" and
/// "describe". A second stage of the same name must have another element, which its operations carry in their names:
/// "forward_bfloat16", "blocks_bfloat16", "bench_bfloat16". std::logic_error if the element is the same. A stage of
/// another chapter than the first one's is added to all_stages() without operations.
void add_stage(StageOperations stage);

}  // namespace workbook::cuda
