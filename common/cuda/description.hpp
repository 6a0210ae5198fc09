// What a stage says of itself, without the types of its kernels: sizes that it is built for, how its warps divide a
// tile, memory that it needs. A call is checked against it, and the operation "describe" answers with it.
//
// A chapter describes its stages in stage.cu (stage.hpp) or, on the CPU, in stage.cpp (cpu_stage.hpp).
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

/// An array of device memory that a stage needs beside its call's tensors.
struct ScratchArray {
  std::string name;
  std::size_t element_bytes = 0;
  std::function<std::size_t(const Setting&)> size;  ///< in elements
};
/// size: the elements by a call's shape, or by its whole setting, where the mask has a part in it.
template <class T, class Size>
ScratchArray scratch(const char* name, Size size) {
  if constexpr (std::is_invocable_v<Size, const Setting&>)
    return {name, sizeof(T), std::move(size)};
  else
    return {name, sizeof(T), [size](const Setting& setting) { return size(setting.shape); }};
}

/// Which problems a stage serves, beside its head dimensions: parts of masks, and whether several heads of Q may share
/// one of K and V (Hkv < H).
struct Served {
  std::vector<Mask> masks = plain_masks();
  bool shared_heads = false;
};

/// Unavailable if a device of compute capability `device` has not what kernels want that need `compute`, or `only`
/// that: 90 is 9.0.
void require_compute(int device, int compute, bool only);

/// The sizes of Tiles or GradientTiles in their order; `size_names` of a description names them.
using Sizes = std::array<int, 3>;

struct Description {
  Description();
  Description(const Description&);
  Description(Description&&) noexcept;
  Description& operator=(const Description&);
  Description& operator=(Description&&) noexcept;
  ~Description();
  /// The same stage by other kernels, when a call's number `number` has the value `value`.
  void add_variant(const char* number, int value, const Description& description);

  std::string pass;           ///< "forward", "backward"
  std::string operation;      ///< its name as an operation
  Element element = float32;  ///< of Q, K, V, O
  bool float_gradients = false;
  Served serves;
  std::vector<int> head_dims;  ///< none: any
  std::array<const char*, 3> size_names{"Br", "Bc", "warps"};
  std::vector<Sizes> sizes;  ///< the first that is built for d and fits the device is the default
  bool any_sizes = false;    ///< others from 1 on will do as well
  /// Bytes of a block's shared memory; 0: this d has no kernel of these sizes. None: it takes none.
  std::function<std::size_t(int d, const Sizes&)> shared_bytes;
  std::function<std::size_t()> shared_limit;  ///< what a block of the device may have
  int compute = 0;                            ///< the least compute capability that has the kernels' instructions
  bool compute_only = false;                  ///< no other has them
  std::function<int()> device_compute;        ///< the device's
  int rows_per_warp = 0;                      ///< of Q, that a warp has for itself; 0: its warps share them
  std::function<int(int d, const Sizes&)> keys_per_step;
  float slack = 0;
  bool last_keys_first = false;
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

/// Which variant a call asks for, as an index; -1: none. std::invalid_argument for a value that there is not, and for a
/// number that no stage knows.
int chosen_variant(const Description& stage, const Arguments& call);

/// The sizes that a call asks for by their names: the first that are built for its d, have what the call gives, and fit
/// the device's shared memory, or the number "shared_limit" of the call. std::invalid_argument, naming argument, value
/// and what is allowed, if there are none such, and for a d, a mask or heads that the stage does
/// not serve.
Sizes chosen_sizes(const Description& stage, const Arguments& call);

/// A stage with what its operations do. bench: see timing.hpp; blocks: what each block of a forward pass did. Either
/// may be empty.
struct StageOperations {
  Description description;
  std::function<void(const Arguments&)> run, bench, blocks;
  /// On the GPU: starts the kernels on this stream. The call's arrays are device memory, `workspace` what
  /// workspace_bytes() (extra_memory.hpp) says. Empty on the simulator and the CPU.
  std::function<void(const Arguments&, void* workspace, void* stream)> start;
  std::string folder;  ///< of the chapter whose stage it is: "04_q_split"
};
/// The folder that a file lies in, by its name alone.
std::string folder_of(const char* file);

/// All stages of this program: a worker has those of one chapter, a library (workbook.h) those of several.
const std::vector<StageOperations>& all_stages();

/// Adds a stage to this program, before main: the operations of its name and "blocks"; and, once for all stages of the
/// program, "bench" and "describe". A second stage of one name is one for another element, and has that in the names of
/// its operations: "forward_bfloat16", "blocks_bfloat16", "bench_bfloat16". std::logic_error if it has the same
/// element. A stage of another chapter than the first one is among all_stages(), and no operation.
void add_stage(StageOperations stage);

}  // namespace workbook::cuda
