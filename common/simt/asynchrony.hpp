// All that a block has under way beside its threads, and what orders it: barriers in shared memory and by number,
// copies of whole boxes, products of warpgroups, registers that warps hand over. Internal.
//
// A block has one of these from its first such instruction on; blocks without know nothing of it.
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

/// A barrier in shared memory. Its phases are numbered from 0; the running one's parity is that of its number.
struct Mbarrier {
  std::uintptr_t address = 0;
  int arrivals = 0;          ///< of each phase
  int missing = 0;           ///< of the running phase
  std::int64_t bytes = 0;    ///< expected in the running phase and not yet there
  std::int64_t awaited = 0;  ///< expected in the running phase, all in all
  std::int64_t phase = 0;
  std::uint16_t init_thread = 0;
  std::uint32_t init_stamp = 0;
  bool fenced = false;  ///< TMA sees it
  const void* init_pc = nullptr;
  const void* expect_pc = nullptr;
  std::uint16_t expect_thread = 0;
  const void* copy_pc = nullptr;  ///< the last copy that ends here
  std::uint16_t copy_thread = 0;
  int copy_waited = -1;  ///< the barrier that its thread had waited for last
  Arrivals copy_arrivals;
  KnowledgePointer passed;  ///< of the phase before
  Gathering gathering;
  std::vector<Lane*> waiting;
  Arrivals arrived, arrived_before;  ///< in the running phase and in the one before
  std::uint32_t lanes_ever = 0;      ///< that have arrived in any phase
};

struct NamedBarrier {
  int threads = 0;  ///< that the running phase waits for; 0: nobody has come yet
  int arrived = 0;
  std::uint32_t lanes[32] = {};  ///< that have come to the running phase, by warp
  const void* first_pc = nullptr;
  std::uint16_t first_thread = 0;
  Gathering gathering;
  std::vector<Lane*> waiting;
};

/// One bulk copy under way: of a box of a tensor, or of a line, which is a tensor of one dimension that is its own box.
struct BulkCopy {
  enum class Kind : std::uint8_t { load, store, add } kind = Kind::load;
  TensorMap map;
  int coordinates[kMostDimensions] = {};
  std::uintptr_t shared = 0;
  Lane* issuer = nullptr;
  const void* pc = nullptr;
  int barrier = 0;                   ///< loads: its index
  std::int64_t phase = 0;            ///< loads: of the barrier, when it was issued
  int group = -1;                    ///< stores: which of its thread's groups; -1: not committed
  bool fenced = false;               ///< stores: its thread has called __threadfence since
  std::uintptr_t low = 0, high = 0;  ///< stores: what they write in device memory lies in between
  std::size_t flight = 0;            ///< of the tracer's record, from 1; 0: in none
  std::vector<std::byte> bytes;      ///< stores that have read shared memory: what is not in device memory yet

  bool stores() const { return kind != Kind::load; }
  bool is_line() const { return map.dimensions == 1; }
  const char* action() const;  ///< "loads a box"
};

/// A product that a warpgroup has issued.
struct Product {  // NOLINT(bugprone-reserved-identifier): in the copy that the compiler writes
  WgmmaForm form{};
  bool a_in_registers = false;
  std::uint64_t a = 0, b = 0;  ///< descriptors
  const void* pc = nullptr;
  int issued = 0;        ///< lanes that have issued it
  bool entered = false;  ///< its reads of shared memory
  /// What the warps knew when the operands were looked at for them. Held, as all knowledge that is compared, so that
  /// no other can have its address.
  std::optional<KnowledgePointer> judged[4];
  float* d[128] = {};
  const std::uint32_t* a_registers[128] = {};
};

/// What one lane, and its warp, has of its warpgroup's products.
struct ProductProgress {
  int issued = 0, committed = 0;  ///< products; groups
  int complete = 0;               ///< groups that it has waited for
};

/// Four warps that multiply as one. Products and groups are numbered through the block's life; those that all lanes
/// have waited for are forgotten.
struct Warpgroup {
  int first_product = 0, first_group = 0;  ///< numbers of products[0], group_ends[0]
  std::vector<Product> products;
  std::vector<int> group_ends;   ///< number of the first product after each committed group
  std::vector<int> committers;   ///< lanes that have committed each group
  int executed = 0;              ///< groups
  int read = 0;                  ///< groups whose reads have ended: some lane has waited for them
  std::uint32_t read_stamp = 0;  ///< the clock since
  std::array<ProductProgress, 128> lanes{};
  std::vector<Lane*> waiting;
  int waiting_for = 0;  ///< groups to be complete
};

/// What setmaxnreg has done.
struct RegisterPool {
  int free = 0;                   ///< registers that nobody has
  std::array<int, 32> of_warp{};  ///< a thread, by warp
  std::array<int, 32> asked{};    ///< by the warp's last setmaxnreg; 0: none
  std::array<int, 32> calls{};
  std::array<const void*, 32> call_pc{};
  std::uint32_t waiting = 0;  ///< warps
};

/// One wait of a lane at a barrier in shared memory.
struct PassedPhase {
  std::int32_t phase = -2;  ///< that let it pass; -1: the one before the first; -2: it has not waited yet
  bool repeated = false;    ///< the same phase had let it pass before
};

class Asynchrony {
 public:
  explicit Asynchrony(Block& block) : block_(block) {}
  void begin_block();
  /// The block's threads have ended: what was left undone.
  void end_block();
  /// A thread ends.
  void end_lane(Lane& lane);
  /// Nobody can run: carries out one copy. False if there is none.
  bool advance();
  /// Carries out the copy of this place in `copies`.
  void carry_out(std::size_t copy);
  /// Perhaps carries out a copy although somebody can run (Order::shuffled).
  void advance_at_random();

  /// The lanes have met at a barrier of their warp; all at the block's.
  void join_lanes(Warp& warp, std::uint32_t lanes);
  void join_block();

  /// The barrier at this address; null if none was made there.
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
  /// Ends the running phase if nothing is missing.
  void complete_phase(Mbarrier& barrier);

  /// The load under way that writes to this address; null: none.
  const BulkCopy* load_to(std::uintptr_t address) const;
  /// Calls act(store) for every store that nobody knows to be complete.
  template <class Act>
  void for_each_store(Act act) {
    for (BulkCopy& copy : copies)
      if (copy.stores()) act(copy);
    for (BulkCopy& copy : writes) act(copy);
  }

  /// What a sleeping lane waits for, for people.
  std::string awaited(const Lane& lane) const;
  /// Reports barriers that wait for bytes that nothing brings. Whether there are any.
  bool report_missing_bytes();

  Clocks clocks;
  NamedBarrier named[16];
  std::vector<BulkCopy> copies;  ///< in the order of issue: loads, and stores that still read shared memory
  std::vector<BulkCopy> writes;  ///< stores that have read it and may still write to device memory
  /// Whose stores have read which shared memory, the last of each place: their reads are told from a thread's own.
  struct Stored {
    std::uint32_t pc;
    Agent thread;
    std::uintptr_t low, high;  ///< in shared memory
    const char* action;
    std::uint32_t began;  ///< when it was started
  };
  std::vector<Stored> stored;
  /// The last store that one of these lanes has started there; null: none.
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

/// That of the lane's block, begun if there is none.
Asynchrony& asynchrony(Lane& lane);

/// Whether what `agent` did at this stamp is ordered before what the lane does now.
bool ordered_before(const Lane& lane, Agent agent, std::uint32_t stamp);
/// Ends the lane if it has expected bytes where a copy is still under way; `to`: where its next copy goes, 0 if none.
void refuse_refill(Lane& lane, std::uintptr_t to);
/// Whether the asynchronous proxy sees, for this lane, what a thread has written at this stamp.
bool seen_by_async_proxy(const Lane& lane, Agent writer, std::uint32_t stamp);
/// What the lane knows and has done goes to whoever takes from `into`.
void release(Lane& lane, Gathering& into);

/// Suspends the running lane until wake().
void sleep(Sleep reason, int what, int detail = 0);
void wake(Lane& lane);

/// The barrier that an instruction of the lane names; ends the lane if there is none (mbarrier.cpp).
Mbarrier& used_barrier(Lane& lane, const std::uint64_t* at, const char* action, const void* pc);
/// "K_full[1]", the barrier's name.
std::string name_of(const Block& block, const Mbarrier& barrier);
/// The barrier of a finding about bytes, and who expects them.
void name_expected(Finding& finding, const Block& block, const Mbarrier& barrier);
inline constexpr const char* kExpectAll =
    "call mbarrier_arrive_expect_tx with the bytes of all copies that end this phase, what lies outside of the tensor "
    "included";

// The life of one bulk copy (bulk_copies.cpp).
/// A load arrives; a store has read shared memory.
void land(Block& block, BulkCopy copy);
/// The block's threads have ended: what its stores have not written yet.
void end_stores(Block& block);
/// An access to device memory that stores may still write to (false if so); one by which a thread tells others of a
/// store that is not complete.
bool check_against_stores(Lane& lane, const Tensor& tensor, std::uintptr_t address, std::size_t size, Access access,
                          const void* pc);
void check_publication(Lane& lane, const Tensor& tensor, std::uintptr_t address, Access access, const void* pc);
// What setmaxnreg does when all lanes of a warp have come to it (register_pool.cpp).
void move_registers(Warp& warp);
// Products (wgmma.cpp).
void end_products(Lane& lane);
// Registers of products under way (pending_registers.cpp).
void check_registers(Lane& lane, std::uintptr_t address, unsigned size, bool writes, const void* pc);
void end_registers(Lane& lane);

}  // namespace simt
