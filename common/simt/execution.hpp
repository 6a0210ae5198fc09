// The simulator's own state: lanes, warps, blocks and the operating-system thread that runs them. Internal.
//
// One fiber a CUDA thread, one block at a time per operating-system thread. A fiber runs until it has to wait (for its
// warp or its block) and then switches straight to the next lane of its warp; only when a whole warp waits does control
// return to the scheduler, which picks the next warp.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <memory>
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

/// Who has arrived in a phase of an mbarrier.
struct Arrivals {
  std::int64_t phase = -1;
  int count = 0;
  std::uint32_t warps = 0;
  std::uint32_t lanes = 0;  ///< of any of these warps
};

/// What a lane waits for that is neither its warp nor the whole block (asynchrony.hpp).
enum class Sleep : std::uint8_t { none, mbarrier, named_barrier, products, registers };

/// One simulated thread. What every switch and access needs comes first, in one cache line.
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
  std::uint16_t step = 0;          ///< shared accesses since the last block barrier: the order of two racing accesses
  bool abandoned = false;          ///< ended early: its fiber hangs where it was
  /// Products under way read or write registers of this lane, which lie on its stack: its accesses there are looked at.
  bool watches_registers = false;
  Sleep sleep = Sleep::none;
  int sleeps_for = 0, sleep_detail = 0;  ///< which barrier or group, and which of its phases
  uint3 thread{};                        ///< threadIdx
  AsyncCopies copies;
  KnowledgePointer knows;
  std::uint32_t fenced_at = 0;             ///< the clock at its last fence.proxy.async
  int last_wait = -1;                      ///< the mbarrier that it waited for last
  Arrivals last_arrivals;                  ///< of the phase that let it pass
  const void* expects_again_at = nullptr;  ///< bytes at `expects_again`, whose copy is still under way; null: nowhere
  int expects_again = -1;                  ///< an mbarrier
  int store_groups = 0;                    ///< of bulk stores, committed
  enum class Turn : std::uint8_t { none, own, passed } turn = Turn::none;  ///< it came to barrier.sync, .arrive last
  std::uint16_t waits_since_product = 0;                                   ///< at mbarriers
  std::int64_t shuffles_at_read = -1;  ///< of its warp, when it read operands last; -1: not since it last arrived
};

/// What the lanes of a warp do together.
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

/// Lanes that wait for each other: those named by one mask.
struct Group {
  std::uint32_t mask = 0, arrived = 0;
  Collective operation{};
};

struct Warp {
  Block* block = nullptr;
  Lane* lanes = nullptr;
  int index = 0;
  std::uint32_t alive = 0;       ///< lanes that exist and have not ended
  std::uint32_t ready = 0;       ///< lanes that can run, the running one included
  std::uint32_t at_barrier = 0;  ///< lanes that wait for the block
  std::uint32_t paused = 0;      ///< lanes that wait until the warp's records have been counted
  std::uint32_t epoch = 0;       ///< the clock's value at the last barrier of the whole warp
  std::int64_t shuffles = 0;     ///< that it has executed
  int groups_used = 0;
  Group groups[kWarpSize];

  // What a collective exchanges: each lane's value, whose value it wants, and what it got.
  std::uint64_t value[kWarpSize];
  std::uint8_t source[kWarpSize];
  std::uint64_t result[kWarpSize];
  struct Operands {
    void* d;
    const void *a, *b, *c;
    const FragmentType *type_d, *type_a, *type_b, *type_c;
    const void* pc;
  } operands[kWarpSize];

  /// What the lanes put down for ldmatrix, stmatrix and mma.
  struct Instruction {
    /// Which instruction a lane has come for; all have to come for the same one.
    struct Form {
      Collective operation = Collective::barrier;  ///< for none of them
      std::uint8_t matrices = 0;
      bool transposed = false;
      ElementType element{};
      friend bool operator==(const Form&, const Form&) = default;
    } form[kWarpSize];
    std::uintptr_t row[kWarpSize];    ///< of ldmatrix and stmatrix: addresses
    std::uint32_t a[kWarpSize][4];    ///< operand a of mma; what stmatrix stores
    std::uint32_t b[kWarpSize][2];    ///< operand b of mma
    std::byte* registers[kWarpSize];  ///< the result, and what mma adds to
  } instruction;

  /// Barriers of parts of this warp since its last whole one (rare): who has heard from whom. heard[x][y] is the clock
  /// up to which lane x is ordered after lane y.
  bool partial_barriers = false;
  std::uint32_t heard[kWarpSize][kWarpSize];

  /// Operands in shared memory that lanes of this warp have checked at this clock: a tile of Q is loaded again and
  /// again, and a write in between is judged when it happens.
  struct CheckedMatrix {
    std::uint64_t address = 0;
    const FragmentType* type = nullptr;
    std::uint32_t leading = 0, clock = 0, lanes = 0;
    bool row_major = false;
  } checked[16];

  Recorder recorder;
};

/// Counts a product of the lane's warp before which it has waited at mbarriers more than once.
inline void count_waits_together(Lane& lane, std::uint64_t& counter) {
  counter += lane.index == 0 && lane.waits_since_product > 1;
  lane.waits_since_product = 0;
}

/// Whether any of the warp's 32 lanes has a cp.async under way.
inline bool copies_under_way(const Warp& warp) {
  return std::any_of(warp.lanes, warp.lanes + kWarpSize, [](const Lane& lane) { return !lane.copies.copies.empty(); });
}

/// A place that the threads of a block look at again and again, and nothing else happens in it.
struct Looking {
  std::uintptr_t address = 0;
  std::uint64_t value = 0;
  std::uint32_t count = 0;
};

/// One block in execution, and all that an operating-system thread needs for it; used again for the next block.
struct Block {
  uint3 index{}, size{}, grid{};
  std::uint64_t number = 0;  ///< index.x + grid.x * (index.y + grid.y * index.z)
  int threads = 0, warp_count = 0;
  int alive = 0, arrived = 0;                             ///< threads that have not ended; those at the block barrier
  std::uint32_t runnable = 0;                             ///< warps with ready lanes
  Where barrier_where;                                    ///< the barrier that the first of `arrived` waits at
  int barrier_true = 0;                                   ///< predicates of this round
  int barrier_result_true = 0, barrier_result_count = 0;  ///< of the last completed round

  /// Counts warp and block barriers of this operating-system thread; accesses are stamped with it.
  std::uint32_t clock = 1;
  std::uint32_t block_began = 1, interval_began = 1;  ///< the clock at the block's begin, at its last block barrier

  std::vector<Lane> lanes;
  std::unique_ptr<Warp[]> warps;
  Fiber scheduler;
  std::uint64_t random = 1;  ///< of Order::shuffled

  LaunchState* launch = nullptr;
  SharedMemory* shared = nullptr;
  GlobalObserver* global = nullptr;
  Asynchrony* asynchrony = nullptr;             ///< null until the block's first asynchronous instruction
  std::shared_ptr<Asynchrony> asynchrony_kept;  ///< its memory, from block to block
  Tracer* tracer = nullptr;                     ///< null: nobody asked for it
  Counters counters;
  MatrixCosts matrix_costs;
  Looking looking;
  std::vector<Note> notes;
  std::vector<Interval> intervals;  ///< of block 0
  bool damaged = false;             ///< a thread was ended by a mistake: what follows from that is not reported
};

/// The running lane; null outside kernels. In the runtime's thread-local storage, not among the kernels' variables.
extern constinit thread_local Lane* running __attribute__((tls_model("initial-exec")));
/// The same lane if its accesses are to be observed: null outside kernels and where nothing is counted.
extern constinit thread_local Lane* observed __attribute__((tls_model("initial-exec")));

/// Ends the running lane at once. Its stack is not unwound.
[[noreturn]] void end_lane();

}  // namespace simt
