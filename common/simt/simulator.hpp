// The simulator's interface for the host: options, device memory, and the record of the last launch. Kernel files need
// only cuda.hpp; tests, workers and the trace need this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "common/simt/counters.hpp"
#include "common/simt/error.hpp"
#include "common/simt/gpu_class.hpp"
#include "common/simt/report.hpp"
#include "common/simt/runtime.hpp"

namespace simt {

/// The order in which lanes and warps run between two barriers. A correct kernel gives the same result in every order.
enum class Order { natural, reversed, shuffled };

struct Options {
  int workers = 0;  ///< operating-system threads; 0: one per core
  Order order = Order::natural;
  std::uint64_t seed = 1;                 ///< of Order::shuffled
  bool count = true;                      ///< count accesses
  bool detect = true;                     ///< detect races and uninitialised reads (needs `count`)
  bool throw_on_mistakes = true;          ///< a launch with reports throws KernelMistakes
  std::uint64_t ends = 0;                 ///< run only this many of the first and of the last blocks; 0: all blocks
  std::uint64_t skipped = 0, of = 1;      ///< of `of` equal parts of the grid, do not run the first `skipped`
  bool trace = false;                     ///< also record Launch::lines, waits, flights and values (slower)
  GpuClass gpu = gpu_class(kDefaultGpu);  ///< the GPU whose limits apply
  std::size_t shared_limit = gpu.shared_block;  ///< maximum bytes of dynamic shared memory per block
};
/// The options of subsequent launches, for the whole process.
SIMT_API Options& options();

/// Ends the current launch and all later ones, which throw Interrupted, until interrupt(false). Any thread may call it.
/// A thread block ends at its next barrier or collective.
SIMT_API void interrupt(bool on);

/// Whether kernel files were compiled with the instrumentation: without it, accesses are neither counted nor checked.
SIMT_API bool instrumented();

/// The traffic of one tensor.
struct TensorTraffic {
  std::string name;
  GlobalCounters counters;
  /// With tiles (see set_tiles): bytes requested from each tile by all blocks.
  std::vector<std::uint64_t> tile_bytes;
  /// With tiles: the tiles that each block has read, in ascending order. Block (x, y, z) is number x + grid.x * (y +
  /// grid.y * z).
  std::map<std::uint64_t, std::vector<std::uint32_t>> tiles_of_block;
};

/// An annotation, and the number of threads of a block that made it.
struct Note {
  std::uint64_t block;
  std::string label;
  long long value;
  std::uint64_t threads;
  friend bool operator==(const Note&, const Note&) = default;
};

/// A value of a row in block 0, as the kernel annotates it.
struct NotedValue {
  std::string label;  ///< "m"
  long long row = 0;
  float value = 0;
  std::size_t interval = 0;  ///< of Launch::intervals
};

/// The work of a block up to a block barrier or its end, counted from its start. The difference of two intervals is the
/// work of all its warps in between, in any order.
struct Interval {
  struct Tensor {
    GlobalCounters counters;
    std::uint64_t arrived_bytes = 0;  ///< of copies: cp.async that was waited for; TMA loads that are complete
  };
  Counters counters;                      ///< except `global`
  std::map<std::string, Tensor> tensors;  ///< tensors accessed so far
};

/// An access to shared memory with bank conflicts: the lanes that the banks should serve at once, but cannot.
struct WorstAccess {
  std::uint64_t wavefronts = 0, ideal = 0;
  std::uint64_t block = 0;  ///< the block in which it was found first
  unsigned bytes = 0;       ///< per lane
  bool rows = false;        ///< 16-byte rows of an 8x8 matrix (LDSM) instead of lanes
  std::vector<int> lanes;   ///< lane numbers or row numbers
  std::vector<std::uint64_t> addresses;
  std::vector<int> banks;           ///< in which each access starts
  std::vector<std::string> places;  ///< "S[0][16]"
  int bank = 0;                     ///< the bank with most different words
  std::vector<int> in_bank;         ///< the entries of `lanes` that access this bank
};

/// The requests of one line of a kernel, all blocks together.
struct TracedLine {
  SourceLine source;
  Counters counters;
  std::optional<WorstAccess> worst;  ///< of its accesses to shared memory; none: no conflicts
};

/// A wait of a warp of block 0. A time is the number of waits that have started before. Times describe the simulator's
/// order, one of the orders possible on a GPU; they do not tell the duration of a wait on a GPU.
struct Wait {
  int warp = 0;
  std::string what;  ///< "__syncthreads", "full[1], phase 2 (parity 0): …"
  SourceLine source;
  std::uint32_t begin = 0, end = 0;  ///< the wait ends before wait number `end` starts
  std::size_t interval = 0;          ///< of Launch::intervals
};

/// A TMA load of block 0. Times as for Wait.
struct Flight {
  int warp = 0;         ///< that issued it
  std::string what;     ///< "K 3": the tensor, and the index of the box, counted by rows
  std::string barrier;  ///< "full[1]", the mbarrier that it signals
  std::uint32_t begin = 0, end = 0;
  std::size_t interval = 0, last_interval = 0;  ///< of Launch::intervals, in which it is issued and completes
};

/// One launch.
struct Launch {
  std::string kernel;
  int device = 0;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  int registers = 0;  ///< with Options::trace: of all threads of block 0 after setmaxnreg; 0: none was executed
  double seconds = 0;
  bool counted = false;  ///< accesses were counted: kernel files are instrumented and the option is on
  Counters counters;
  std::vector<TensorTraffic> tensors;  ///< tensors accessed, in the order of allocation
  std::vector<Note> notes;             ///< sorted by block, label, value
  std::vector<Interval> intervals;     ///< of block 0, if accesses were counted; with Options::trace, an mbarrier phase
                                       ///< that a copy completes also ends one
  std::vector<TracedLine> lines;       ///< with Options::trace: lines with requests, by file and line
  std::vector<Wait> waits;             ///< with Options::trace: in the order of their starts
  std::vector<Flight> flights;         ///< with Options::trace: in the order of their starts
  std::vector<NotedValue> values;      ///< with Options::trace: of block 0, in the order of annotation
  std::vector<Report> reports;         ///< sorted by file and line
  const TensorTraffic* tensor(std::string_view name) const {
    for (const TensorTraffic& t : tensors) {
      if (t.name == name) return &t;
    }
    return nullptr;
  }
};
/// The last launch, and all launches since the last clear_launches().
SIMT_API const Launch& last_launch();
SIMT_API const std::vector<Launch>& launches();
SIMT_API void clear_launches();

/// The role of an allocation: it determines the checks.
enum class Role {
  input,    ///< filled by the host before it is read
  output,   ///< every element is written exactly once, by one thread (atomics aside): see check_output
  scratch,  ///< read only after it is written
};

/// Allocates device memory, aligned to 256 bytes, filled with 0xff bytes (NaN in every floating-point format), with
/// guard bands on both sides. It is inaccessible outside of launches and copies. Throws std::bad_alloc.
SIMT_API void* allocate(std::size_t bytes, std::string name, std::size_t element_size, Role role);
SIMT_API void release(void* memory) noexcept;
/// Copies from and to the host. Elements that the host copies in count as written.
SIMT_API void copy_in(void* device, const void* host, std::size_t bytes);
SIMT_API void copy_out(void* host, const void* device, std::size_t bytes);
/// Counts reads of the allocation by tiles of this size (Bc rows of K, say): TensorTraffic::tile_bytes.
SIMT_API void set_tiles(void* memory, std::size_t tile_bytes);
/// The elements of an output that are still unwritten, as reports; empty if all are written.
SIMT_API std::vector<Report> check_output(const void* memory);
/// Marks all elements as unwritten: the next launch may write each of them once.
SIMT_API void expect_output(void* memory);

}  // namespace simt
