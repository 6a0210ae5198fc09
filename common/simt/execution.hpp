// The simulator's execution state: lanes, warps, blocks, and the operating-system thread that runs them. Internal.
//
// One fiber per CUDA thread, one block at a time per operating-system thread. A fiber runs until it must wait for its
// warp or its block, then switches directly to the next lane of its warp. Control returns to the scheduler, which picks
// the next warp, only when all lanes of a warp wait.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

#include "common/simt/async_copies.hpp"
#include "common/simt/clocks.hpp"
#include "common/simt/fiber.hpp"
#include "common/simt/matrix_costs.hpp"
#include "common/simt/recorder.hpp"
#include "common/simt/runtime.hpp"
#include "common/simt/simulator.hpp"

namespace simt {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxThreads = 1024;

struct Block;
struct Warp;
struct LaunchState;
class SharedMemory;
class GlobalObserver;
class Asynchrony;
class Tracer;

/// The arrivals in one phase of an mbarrier.
struct Arrivals {
  std::int64_t phase = -1;
  int count = 0;
  std::uint32_t warps = 0;
  std::uint32_t lanes = 0;  ///< lanes of any of these warps
};

/// What a lane waits for, other than its warp or the whole block (asynchrony.hpp).
enum class Sleep : std::uint8_t { none, mbarrier, named_barrier, wgmmas, registers };

/// One simulated thread. The members that every switch and access needs come first, in one cache line.
struct alignas(64) Lane {
  Fiber fiber;
  Warp* warp = nullptr;
  std::uint32_t bit = 0;     ///< 1 << index
  std::uint16_t index = 0;   ///< in its warp
  std::uint16_t linear = 0;  ///< in its block
  std::uintptr_t stack_low = 0, stack_size = 0;
  RecorderPosition position;
  Block* block = nullptr;
  const void* waits_at = nullptr;  ///< the call that it waits in, for deadlock reports
  std::uint16_t step = 0;  ///< number of shared accesses since the last block barrier: orders two racing accesses
  bool abandoned = false;  ///< ended early: its fiber stays suspended for good
  /// wgmma in flight read or write registers of this lane, which are on its stack: accesses to the stack are checked.
  bool watches_registers = false;
  Sleep sleep = Sleep::none;
  int sleeps_for = 0, sleep_detail = 0;  ///< which barrier or group, and which of its phases
  uint3 thread{};                        ///< threadIdx
  AsyncCopies copies;
  KnowledgePointer knows;
  std::uint32_t fenced_at = 0;             ///< the block clock at its last fence.proxy.async
  int last_wait = -1;                      ///< the mbarrier that it waited for last
  Arrivals last_arrivals;                  ///< of the phase that satisfied this wait
  const void* expects_again_at = nullptr;  ///< expects bytes at `expects_again`, a copy in flight; null: none
  int expects_again = -1;                  ///< an mbarrier
  int store_groups = 0;                    ///< number of committed bulk groups
  /// The named barrier instruction that it executed last: barrier.sync (open), barrier.arrive (closed).
  enum class IssueWindow : std::uint8_t { none, open, closed } issue_window = IssueWindow::none;
  std::uint16_t waits_since_mma = 0;   ///< at mbarriers
  std::int64_t shuffles_at_read = -1;  ///< of its warp at its last operand read; -1: none since its last arrival
  std::uint32_t wrote_at = 0;          ///< the block clock at its last plain store to scratch memory; 0: none
  bool write_visible = false;          ///< that store is visible to the whole device (visibility.hpp)
};

/// Collective operations of the lanes of a warp.
enum class Collective : std::uint8_t {
  barrier,
  shuffle_index,
  shuffle_up,
  shuffle_down,
  shuffle_xor,
  vote,
  multiply,            ///< WMMA's mma_sync
  load_matrices,       ///< ldmatrix
  store_matrices,      ///< stmatrix
  multiply_registers,  ///< mma
  set_registers,       ///< setmaxnreg
  elect,               ///< elect.sync
};

/// Lanes that wait for each other: the lanes of one mask.
struct Group {
  std::uint32_t mask = 0, arrived = 0;
  Collective operation{};
};

struct Warp {
  Block* block = nullptr;
  Lane* lanes = nullptr;
  int index = 0;
  std::uint32_t alive = 0;       ///< mask of the lanes that exist and have not ended
  std::uint32_t ready = 0;       ///< mask of the lanes that can run, including the running one
  std::uint32_t at_barrier = 0;  ///< mask of the lanes that wait at the block barrier
  std::uint32_t paused = 0;      ///< mask of the lanes that wait until the warp's records have been counted
  std::uint32_t epoch = 0;       ///< the block clock at the last barrier of the whole warp
  std::int64_t shuffles = 0;     ///< number of shuffles executed
  int groups_used = 0;
  Group groups[kWarpSize];

  // The data of a collective: each lane's value, the source lane that it reads, and its result.
  std::uint64_t value[kWarpSize];
  std::uint8_t source[kWarpSize];
  std::uint64_t result[kWarpSize];
  struct Operands {
    void* d;
    const void *a, *b, *c;
    const FragmentType *type_d, *type_a, *type_b, *type_c;
    const void* pc;
  } operands[kWarpSize];

  /// The operands of the lanes for ldmatrix, stmatrix and mma.
  struct Instruction {
    /// Which instruction a lane executes; all lanes must execute the same one.
    struct Form {
      Collective operation = Collective::barrier;  ///< barrier: none of them
      std::uint8_t matrices = 0;
      bool transposed = false;
      ElementType element{};
      friend bool operator==(const Form&, const Form&) = default;
    } form[kWarpSize];
    std::uintptr_t row[kWarpSize];    ///< row addresses of ldmatrix and stmatrix
    std::uint32_t a[kWarpSize][4];    ///< operand A of mma; the data of stmatrix
    std::uint32_t b[kWarpSize][2];    ///< operand B of mma
    std::byte* registers[kWarpSize];  ///< the result, and the accumulator of mma
  } instruction;

  /// Barriers of some lanes of this warp since its last full barrier (rare), as a vector clock per lane: lane x is
  /// ordered after the operations of lane y up to heard[x][y].
  bool partial_barriers = false;
  std::uint32_t heard[kWarpSize][kWarpSize];

  /// Operands in shared memory that lanes of this warp have already checked at this clock. A Q tile is loaded again and
  /// again; a write in between is checked when it happens.
  struct CheckedMatrix {
    std::uint64_t address = 0;
    const FragmentType* type = nullptr;
    std::uint32_t leading = 0, clock = 0, lanes = 0;
    bool row_major = false;
  } checked[16];

  Recorder recorder;
};

/// Counts an MMA of the lane's warp if the warp has waited at mbarriers more than once before it.
inline void count_waits_together(Lane& lane, std::uint64_t& counter) {
  counter += lane.index == 0 && lane.waits_since_mma > 1;
  lane.waits_since_mma = 0;
}

/// Whether any of the warp's 32 lanes has a cp.async in flight.
inline bool copies_in_flight(const Warp& warp) {
  return std::any_of(warp.lanes, warp.lanes + kWarpSize, [](const Lane& lane) { return !lane.copies.copies.empty(); });
}

/// A location that threads of a block read repeatedly while nothing else happens in the block.
struct Polling {
  std::uintptr_t address = 0;
  std::uint64_t value = 0;
  std::uint32_t count = 0;
};

/// A set of blocks: bit n of the words is block n.
using BlockSet = std::vector<std::uint64_t>;

/// One block in execution, and the state that an operating-system thread needs for it; reused for the next block.
struct Block {
  uint3 index{}, size{}, grid{};
  std::uint64_t number = 0;  ///< index.x + grid.x * (index.y + grid.y * index.z)
  int threads = 0, warp_count = 0;
  int alive = 0, arrived = 0;  ///< number of threads that have not ended; number at the block barrier
  std::uint32_t runnable = 0;  ///< warps with ready lanes
  Where barrier_where;         ///< the barrier at which the first of `arrived` waits
  int barrier_true = 0;        ///< number of true predicates in this round
  int barrier_result_true = 0, barrier_result_count = 0;  ///< of the last completed round

  /// Counts the warp and block barriers of this operating-system thread; accesses are stamped with it.
  std::uint32_t clock = 1;
  /// The clock at the start of the block, and at its last block barrier.
  std::uint32_t block_began = 1, interval_began = 1;

  std::vector<Lane> lanes;
  std::unique_ptr<Warp[]> warps;
  Fiber scheduler;
  std::uint64_t random = 1;  ///< state of the random numbers of Order::shuffled

  LaunchState* launch = nullptr;
  SharedMemory* shared = nullptr;
  GlobalObserver* global = nullptr;
  Asynchrony* asynchrony = nullptr;             ///< null until the block's first asynchronous instruction
  std::shared_ptr<Asynchrony> asynchrony_kept;  ///< its memory, reused from block to block
  Tracer* tracer = nullptr;                     ///< null: tracing is off
  Counters counters;
  MatrixCosts matrix_costs;
  Polling polling;
  int writers = 0;  ///< threads that have written scratch memory by plain stores
  /// Whether it has called __threadfence() since its first atomic on an integer, or volatile read.
  enum class SecondFence : std::uint8_t { not_needed, missing, called } second_fence{};
  std::set<std::uintptr_t> signals_read;  ///< addresses of atomics on integers, and of volatile reads
  BlockSet seen;                          ///< blocks whose signals it has seen
  std::vector<Note> notes;
  std::vector<Interval> intervals;  ///< of block 0
  bool damaged = false;             ///< an error has ended a thread: consequences are not reported
};

/// The running lane; null outside kernels. It is in the thread-local storage of the runtime, not of the kernels'
/// variables.
extern constinit thread_local Lane* running __attribute__((tls_model("initial-exec")));
/// The running lane if its accesses are observed; null outside kernels and when nothing is counted.
extern constinit thread_local Lane* observed __attribute__((tls_model("initial-exec")));

/// Ends the running lane at once. Its stack is not unwound.
[[noreturn]] void end_lane();

}  // namespace simt
