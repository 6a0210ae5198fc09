// The asynchronous operations of one block and what orders them: mbarriers, named barriers, TMA copies, wgmma, and
// registers that setmaxnreg moves between warps. Internal.
//
// A block creates this state at its first such instruction; other blocks do not use it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/simt/asynchronous.hpp"
#include "common/simt/clocks.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/execution.hpp"
#include "common/simt/pending_registers.hpp"

namespace simt {

struct Tensor;

/// An mbarrier. Its phases are numbered from 0; the parity of the current phase is phase & 1.
struct Mbarrier {
  std::uintptr_t address = 0;
  int arrivals = 0;          ///< arrival count of every phase
  int missing = 0;           ///< pending arrivals of the current phase
  std::int64_t bytes = 0;    ///< pending transaction bytes of the current phase
  std::int64_t awaited = 0;  ///< transaction bytes that the current phase expects in total
  std::int64_t phase = 0;
  std::uint16_t init_thread = 0;
  std::uint32_t init_stamp = 0;
  bool fenced = false;  ///< a fence has made the initialisation visible to TMA
  const void* init_pc = nullptr;
  const void* expect_pc = nullptr;
  std::uint16_t expect_thread = 0;
  const void* copy_pc = nullptr;  ///< the last copy that signals this barrier
  std::uint16_t copy_thread = 0;
  int copy_waited = -1;  ///< the barrier that the issuing thread had waited for last
  Arrivals copy_arrivals;
  KnowledgePointer passed;  ///< knowledge released by the previous phase
  Gathering gathering;
  std::vector<Lane*> waiting;
  Arrivals arrived, arrived_before;  ///< in the current phase and in the previous one
  std::uint32_t lanes_ever = 0;      ///< lanes that have arrived in any phase so far
};

struct NamedBarrier {
  int threads = 0;  ///< thread count of the current phase; 0: no thread has arrived yet
  int arrived = 0;
  std::uint32_t lanes[32] = {};  ///< lanes that have arrived in the current phase, by warp
  const void* first_pc = nullptr;
  std::uint16_t first_thread = 0;
  Gathering gathering;
  std::vector<Lane*> waiting;
};

/// One bulk copy in flight: of a box of a tensor, or of contiguous bytes, kept as a one-dimensional tensor with a
/// single box.
struct BulkCopy {
  enum class Kind : std::uint8_t { load, store, add } kind = Kind::load;
  TensorMap map;
  int coordinates[kMostDimensions] = {};
  std::uintptr_t shared = 0;
  Lane* issuer = nullptr;
  const void* pc = nullptr;
  int barrier = 0;                   ///< loads: index of the mbarrier
  std::int64_t phase = 0;            ///< loads: phase of the mbarrier at issue
  int group = -1;                    ///< stores: bulk group of the issuing thread; -1: not committed
  bool fenced = false;               ///< stores: the issuing thread has called __threadfence since
  std::uintptr_t low = 0, high = 0;  ///< stores: bounds of the addresses written in device memory
  std::size_t flight = 0;            ///< index of the tracer's record, from 1; 0: none
  std::vector<std::byte> bytes;      ///< stores that have read shared memory: data not yet written to device memory

  bool stores() const { return kind != Kind::load; }
  bool is_line() const { return map.dimensions == 1; }
  const char* action() const;  ///< "loads a box"
};

/// A wgmma that a warpgroup has issued.
struct Wgmma {  // NOLINT(bugprone-reserved-identifier): in the copy that the compiler writes
  WgmmaForm form{};
  bool a_in_registers = false;
  std::uint64_t a = 0, b = 0;  ///< descriptors
  const void* pc = nullptr;
  int issued = 0;        ///< number of lanes that have issued it
  bool entered = false;  ///< its reads of shared memory have been recorded
  /// Knowledge of the four warps when the operands were checked for them. The pointers are held so that no other
  /// knowledge can get the same address: knowledge is compared by address.
  std::optional<KnowledgePointer> judged[4];
  float* d[128] = {};
  const std::uint32_t* a_registers[128] = {};
};

/// The progress of one lane, and of its warp, through the wgmma of its warpgroup.
struct WgmmaProgress {
  int issued = 0, committed = 0;  ///< wgmma; groups
  int complete = 0;               ///< groups that the lane has waited for
};

/// A warpgroup: four warps that execute wgmma together. wgmma and groups are numbered over the block's lifetime;
/// entries that all lanes have waited for are erased.
struct Warpgroup {
  int first_wgmma = 0, first_group = 0;  ///< numbers of the first elements of the next two vectors
  std::vector<Wgmma> wgmmas;
  std::vector<int> group_ends;   ///< number of the first wgmma after each committed group
  std::vector<int> committers;   ///< number of lanes that have committed each group
  int executed = 0;              ///< number of groups executed
  int read = 0;                  ///< number of groups whose reads have ended because some lane has waited for them
  std::uint32_t read_stamp = 0;  ///< the block clock when they ended
  std::array<WgmmaProgress, 128> lanes{};
  std::vector<Lane*> waiting;
  int waiting_for = 0;  ///< number of groups that must be complete
};

/// The state of setmaxnreg.
struct RegisterPool {
  int free = 0;                     ///< registers not allocated to any warp
  std::array<int, 32> of_warp{};    ///< registers per thread, by warp
  std::array<int, 32> requested{};  ///< requested by the warp's last setmaxnreg; 0: none
  std::array<int, 32> calls{};
  std::array<const void*, 32> call_pc{};
  std::uint32_t waiting = 0;  ///< mask of waiting warps
};

/// One wait of a lane at an mbarrier.
struct PassedPhase {
  std::int32_t phase = -2;  ///< that satisfied the wait; -1: the phase before the first; -2: no wait so far
  bool repeated = false;    ///< the same phase had already satisfied an earlier wait
};

class Asynchrony {
 public:
  explicit Asynchrony(Block& block) : block_(block) {}
  void begin_block();
  /// All threads of the block have ended: reports operations left incomplete.
  void end_block();
  /// A thread ends.
  void end_lane(Lane& lane);
  /// No thread of the block can run: carries out one pending operation. Returns false if there is none.
  bool advance();
  /// Carries out the copy at this index of `copies`.
  void carry_out(std::size_t copy);
  /// With Order::shuffled, randomly carries out a copy while threads can still run.
  void advance_at_random();

  /// The lanes have synchronised at a warp barrier; join_block: all threads at the block barrier.
  void join_lanes(Warp& warp, std::uint32_t lanes);
  void join_block();

  /// The mbarrier at this address; null if none was initialised there.
  Mbarrier* barrier_at(std::uintptr_t address);
  Mbarrier& barrier(int index) { return barriers_[std::size_t(index)]; }
  int index_of(const Mbarrier& barrier) const { return int(&barrier - barriers_.data()); }
  Mbarrier& add_barrier() { return barriers_.emplace_back(); }
  std::size_t barrier_count() const { return barriers_.size(); }
  const std::vector<Mbarrier>& barriers() const { return barriers_; }
  void fence_barriers(const Lane& lane);
  PassedPhase& passed(const Lane& lane, int barrier) {
    return passed_[std::size_t(lane.linear) * kMostBarriers + std::size_t(barrier)];
  }
  /// Completes the current phase if no arrivals and no bytes are pending.
  void complete_phase(Mbarrier& barrier);

  /// The TMA load in flight that writes to this address; null if there is none.
  const BulkCopy* load_to(std::uintptr_t address) const;
  /// Calls act(store) for every store that has not been waited for.
  template <class Act>
  void for_each_store(Act act) {
    for (BulkCopy& copy : copies)
      if (copy.stores()) act(copy);
    for (BulkCopy& copy : writes) act(copy);
  }

  /// Describes what a sleeping lane waits for, for reports.
  std::string awaited(const Lane& lane) const;
  /// Reports waits that can never be satisfied: mbarriers with pending bytes but no copy in flight, and setmaxnreg
  /// without enough free registers. Returns whether there are any.
  bool report_missing_bytes();

  Clocks clocks;
  NamedBarrier named[16];
  std::vector<BulkCopy> copies;  ///< in the order of issue: loads, and stores that still read shared memory
  std::vector<BulkCopy> writes;  ///< stores that have read it and may still write to device memory
  /// The last store that has read each location of shared memory, and its thread. Distinguishes reads by TMA from the
  /// thread's own reads.
  struct Stored {
    std::uint32_t pc;
    Agent thread;
    std::uintptr_t low, high;  ///< in shared memory
    const char* action;
    std::uint32_t began;  ///< the block clock at issue
  };
  std::vector<Stored> stored;
  /// The last store that one of these lanes has issued from this address; null if there is none.
  const Stored* store_from(std::uintptr_t address, std::uint32_t pc, int warp, std::uint32_t lanes) const;
  std::array<Warpgroup, 8> warpgroups;
  RegisterPool registers;
  PendingRegisters pending;

 private:
  void report_early_end(const Mbarrier& barrier);
  Block& block_;
  std::vector<Mbarrier> barriers_;
  std::vector<PassedPhase> passed_;
};

/// The asynchronous state of the lane's block, created on first use.
Asynchrony& asynchrony(Lane& lane);

/// Whether the operation of `agent` at this stamp is ordered before the lane's next operation.
bool ordered_before(const Lane& lane, Agent agent, std::uint32_t stamp);
/// Ends the lane if it has expected bytes on an mbarrier whose copy is still in flight. `to`: the destination of its
/// next copy, 0 if none.
void refuse_refill(Lane& lane, std::uintptr_t to);
/// Whether a write of thread `writer` at this stamp is visible to the asynchronous proxy, as ordered for this lane.
bool seen_by_async_proxy(const Lane& lane, Agent writer, std::uint32_t stamp);
/// Adds the lane's knowledge and its own operations to `into`, for threads that acquire from it.
void release(Lane& lane, Gathering& into);

/// Suspends the running lane until wake().
void sleep(Sleep reason, int what, int detail = 0);
void wake(Lane& lane);

/// The mbarrier that an instruction of the lane names; ends the lane if there is none (mbarrier.cpp).
Mbarrier& used_barrier(Lane& lane, const std::uint64_t* at, const char* action, const void* pc);
/// The mbarrier's name, such as "K_full[1]".
std::string name_of(const Block& block, const Mbarrier& barrier);
/// Names the mbarrier in a finding about transaction bytes, and the thread that expects them.
void name_expected(Finding& finding, const Block& block, const Mbarrier& barrier);
inline constexpr const char* kExpectAll =
    "call mbarrier_arrive_expect_tx with the bytes of all copies that signal this phase, including bytes outside the "
    "tensor";

// The stages of one bulk copy (bulk_copies.cpp).
/// A load completes, or a store has read shared memory.
void land(Block& block, BulkCopy copy);
/// All threads of the block have ended: writes the stores that are still pending.
void end_stores(Block& block);
/// check_against_stores: checks an access to device memory that pending stores may still write; false if there is a
/// conflict. check_publication: checks an access by which a thread signals other threads although its bulk store is not
/// complete.
bool check_against_stores(Lane& lane, const Tensor& tensor, std::uintptr_t address, std::size_t size, Access access,
                          const void* pc);
void check_publication(Lane& lane, const Tensor& tensor, std::uintptr_t address, Access access, const void* pc);
// Carries out setmaxnreg once all lanes of a warp have executed it (register_pool.cpp).
void move_registers(Warp& warp);
// wgmma (wgmma.cpp).
void end_wgmmas(Lane& lane);
// Registers of wgmma in flight (pending_registers.cpp).
void check_registers(Lane& lane, std::uintptr_t address, unsigned size, bool writes, const void* pc);
void end_registers(Lane& lane);

}  // namespace simt
