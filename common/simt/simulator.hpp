// The host's side of the simulator: options, device memory, and what the last launch did. Kernel files need only
// cuda.hpp; tests, workers and the trace need this.
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

/// In which order lanes and warps run between two barriers. A right kernel gives the same result in every order.
enum class Order { natural, reversed, shuffled };

struct Options {
  int workers = 0;  ///< operating-system threads; 0: one per core
  Order order = Order::natural;
  std::uint64_t seed = 1;                       ///< of Order::shuffled
  bool count = true;                            ///< count accesses
  bool detect = true;                           ///< look for races and uninitialised reads (needs `count`)
  bool throw_on_mistakes = true;                ///< a launch with reports throws KernelMistakes
  std::uint64_t ends = 0;                       ///< run so many first blocks and so many last ones alone; 0: all
  bool trace = false;                           ///< record Launch::lines, waits, flights and values too (slower)
  GpuClass gpu = gpu_class(kDefaultGpu);        ///< whose limits hold
  std::size_t shared_limit = gpu.shared_block;  ///< bytes of dynamic shared memory that a block may ask for
};
/// The options of the launches to come, for the whole process.
SIMT_API Options& options();

/// Whether kernel files were compiled with the instrumentation: without it, accesses are neither counted nor checked.
SIMT_API bool instrumented();

/// What one tensor saw.
struct TensorTraffic {
  std::string name;
  GlobalCounters counters;
  /// With tiles (see set_tiles): bytes requested from each tile, by all blocks.
  std::vector<std::uint64_t> tile_bytes;
  /// With tiles: the tiles that each block read, ascending. Block (x, y, z) is number x + grid.x * (y + grid.y * z).
  std::map<std::uint64_t, std::vector<std::uint32_t>> tiles_of_block;
};

/// Annotations: how many threads of a block noted this.
struct Note {
  std::uint64_t block;
  std::string label;
  long long value;
  std::uint64_t threads;
  friend bool operator==(const Note&, const Note&) = default;
};

/// A value that a row has in block 0, as the kernel notes it.
struct NotedValue {
  std::string label;  ///< "m"
  long long row = 0;
  float value = 0;
  std::size_t interval = 0;  ///< of Launch::intervals
};

/// What a block has done up to a block barrier, or to its end, counted from its beginning: the difference of two is
/// what all its warps did in between, in whatever order.
struct Interval {
  struct Tensor {
    GlobalCounters counters;
    std::uint64_t arrived_bytes = 0;  ///< of copies: by cp.async, waited for; by TMA, landed
  };
  Counters counters;                      ///< but for `global`
  std::map<std::string, Tensor> tensors;  ///< those touched so far
};

/// An access to shared memory with bank conflicts: the lanes that the banks should serve at once, and do not.
struct WorstAccess {
  std::uint64_t wavefronts = 0, ideal = 0;
  std::uint64_t block = 0;  ///< where it was found first
  unsigned bytes = 0;       ///< a lane
  bool rows = false;        ///< not lanes, but rows of 16 bytes of an 8x8 matrix (LDSM)
  std::vector<int> lanes;   ///< which
  std::vector<std::uint64_t> addresses;
  std::vector<int> banks;           ///< in which each begins
  std::vector<std::string> places;  ///< "S[0][16]"
  int bank = 0;                     ///< the one with most different words
  std::vector<int> in_bank;         ///< who asks for it: indices of `lanes`
};

/// What one line of a kernel asked for, all blocks together.
struct TracedLine {
  SourceLine source;
  Counters counters;
  std::optional<WorstAccess> worst;  ///< of its accesses to shared memory; none: no conflicts
};

/// A wait of a warp of block 0. Times are numbers of waits begun before: the simulator's order, one of those that a GPU
/// may have too; how long a wait lasts on a GPU it does not say.
struct Wait {
  int warp = 0;
  std::string what;  ///< "__syncthreads", "full[1], phase 2 (parity 0): …"
  SourceLine source;
  std::uint32_t begin = 0, end = 0;  ///< the wait ends before wait number `end` begins
  std::size_t interval = 0;          ///< of Launch::intervals
};

/// A copy by TMA to shared memory, of block 0. Times as a wait's.
struct Flight {
  int warp = 0;         ///< that started it
  std::string what;     ///< "K 3": the tensor, and which box of it, counted by rows
  std::string barrier;  ///< "full[1]", at which it ends
  std::uint32_t begin = 0, end = 0;
  std::size_t interval = 0, last_interval = 0;  ///< of Launch::intervals, in which it starts and has landed
};

/// One launch.
struct Launch {
  std::string kernel;
  dim3 grid, block;
  std::size_t shared_bytes = 0;
  int registers = 0;  ///< with Options::trace: that block 0's warps have after setmaxnreg; 0: nobody called it
  double seconds = 0;
  bool counted = false;  ///< accesses were counted: kernel files are instrumented and the option is on
  Counters counters;
  std::vector<TensorTraffic> tensors;  ///< those touched, in the order of allocation
  std::vector<Note> notes;             ///< sorted by block, label, value
  std::vector<Interval> intervals;     ///< of block 0, where accesses were counted; with Options::trace, a phase that
                                       ///< ends when a copy has landed ends one too
  std::vector<TracedLine> lines;       ///< with Options::trace: those that asked for something; by file and line
  std::vector<Wait> waits;             ///< with Options::trace: in the order of their beginnings
  std::vector<Flight> flights;         ///< with Options::trace: in the order of their beginnings
  std::vector<NotedValue> values;      ///< with Options::trace: of block 0, in the order in which they were noted
  std::vector<Report> reports;         ///< sorted by file and line
  const TensorTraffic* tensor(std::string_view name) const {
    for (const TensorTraffic& t : tensors) {
      if (t.name == name) return &t;
    }
    return nullptr;
  }
};
/// The last launch, and all since the last clear_launches().
SIMT_API const Launch& last_launch();
SIMT_API const std::vector<Launch>& launches();
SIMT_API void clear_launches();

/// What an allocation is for: it decides what is checked.
enum class Role {
  input,    ///< filled by the host before it is read
  output,   ///< every element written exactly once, by one thread (atomics aside): see check_outputs
  scratch,  ///< read only after it is written
};

/// Device memory, aligned to 256 bytes, filled with bytes 0xff (NaN in every floating-point format), with guard bands
/// on both sides. Outside of launches and copies nobody can touch it. Throws std::bad_alloc.
SIMT_API void* allocate(std::size_t bytes, std::string name, std::size_t element_size, Role role);
SIMT_API void release(void* memory) noexcept;
/// Copies from and to the host. What the host copies in counts as written.
SIMT_API void copy_in(void* device, const void* host, std::size_t bytes);
SIMT_API void copy_out(void* host, const void* device, std::size_t bytes);
/// Counts reads of the allocation by tiles of so many bytes (Bc rows of K, say): TensorTraffic::tile_bytes.
SIMT_API void set_tiles(void* memory, std::size_t tile_bytes);
/// The elements of an output that are not written yet, as reports; empty if all are.
SIMT_API std::vector<Report> check_output(const void* memory);
/// Forgets which elements were written: the next launch may write all of them once.
SIMT_API void expect_output(void* memory);

}  // namespace simt
