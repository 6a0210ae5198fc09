// Who is ordered after whom, where barriers of parts of a block order it: vector clocks. Internal.
//
// Block::clock is one clock for a block, and every access is stamped with it. Whoever releases something (arrives at a
// barrier, say) advances it, so that what it did before has a smaller stamp. A lane's Knowledge says of every agent up
// to which stamp the lane is ordered after what that agent did. Knowledge travels through barriers: a phase gathers
// that of those who arrive, and those who wait take it over.
//
// Agents are the block's threads; each mbarrier, for the copies that end its phases; and each warp's share of the
// tensor cores, which read shared memory on their own.
//
// There are two clocks for each agent, as there are two ways to shared memory (the manual's "proxies"): what a thread
// writes in the ordinary way is seen by TMA and the tensor cores only past a fence.proxy.async.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace simt {

using Agent = unsigned;
inline constexpr int kMostBarriers = 64;
inline constexpr Agent kFirstBarrierAgent = 1024, kFirstTensorAgent = kFirstBarrierAgent + kMostBarriers,
                       kAgents = kFirstTensorAgent + 32;

struct Knowledge {
  std::uint32_t known[kAgents] = {};   ///< ordered after what the agent did before this stamp
  std::uint32_t fenced[kAgents] = {};  ///< the same for what it wrote, seen by the asynchronous proxy
  void join(const Knowledge& other) {
    for (Agent i = 0; i < kAgents; ++i) known[i] = std::max(known[i], other.known[i]);
    for (Agent i = 0; i < kAgents; ++i) fenced[i] = std::max(fenced[i], other.fenced[i]);
  }
};
/// Shared by all lanes that know the same; null: nothing.
using KnowledgePointer = std::shared_ptr<const Knowledge>;

/// Makes knowledge of knowledge. The lanes of a warp ask for the same one after the other, so the last few answers are
/// kept.
class Clocks {
 public:
  KnowledgePointer joined(const KnowledgePointer& a, const KnowledgePointer& b);
  /// `a`, and `agent` up to this stamp.
  KnowledgePointer with(const KnowledgePointer& a, Agent agent, std::uint32_t stamp);
  /// `a`, past a proxy fence.
  KnowledgePointer fenced(const KnowledgePointer& a);
  void forget();

 private:
  struct Answer {
    KnowledgePointer a, b, result;
    Agent agent = 0;
    std::uint32_t stamp = 0;
    char question = 0;
  };
  Answer* find(char question, const KnowledgePointer& a, const KnowledgePointer& b, Agent agent, std::uint32_t stamp);
  KnowledgePointer keep(char question, KnowledgePointer a, KnowledgePointer b, Agent agent, std::uint32_t stamp,
                        KnowledgePointer result);
  static constexpr int kAnswers = 8;
  Answer answers_[kAnswers];
  int next_ = 0;
};

/// What those who arrive at one phase of a barrier know together.
class Gathering {
 public:
  /// Of one lane: what it knows, and all that it has done before `now`.
  void add(const KnowledgePointer& knows, Agent self, std::uint32_t now, std::uint32_t fenced_at) {
    Knowledge& all = own();
    if (knows && knows != last_) all.join(*knows);
    last_ = knows;
    all.known[self] = now;
    all.fenced[self] = std::max(all.fenced[self], fenced_at);
  }
  /// Of a copy.
  void add(Agent agent, std::uint32_t now) { own().known[agent] = now; }
  /// All of it; a new phase begins.
  KnowledgePointer take() {
    last_ = nullptr;
    return std::exchange(all_, nullptr);
  }

 private:
  Knowledge& own() {
    if (!all_) all_ = std::make_shared<Knowledge>();
    return *all_;
  }
  std::shared_ptr<Knowledge> all_;
  KnowledgePointer last_;  ///< already in it; held, so that no other can have its address
};

}  // namespace simt
