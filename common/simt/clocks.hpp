// Vector clocks: which operations are ordered before which, where barriers synchronise only parts of a block. Internal.
//
// Every access is stamped with Block::clock, one clock per block. A release operation (such as an arrival at a barrier)
// advances the clock, so that everything released has a smaller stamp. A lane's Knowledge holds one stamp per agent:
// the lane is ordered after everything that the agent did before this stamp. Knowledge propagates through barriers: a
// phase accumulates the knowledge of the arriving threads, and waiting threads acquire it.
//
// The agents are the block's threads; each mbarrier, for the copies that signal it; and each warp's share of the tensor
// cores, which read shared memory through the asynchronous proxy.
//
// Each agent has two clocks, one per proxy (PTX ISA, "Proxies"): a write through the generic proxy is visible to TMA
// and to the tensor cores only after a fence.proxy.async.
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
  std::uint32_t known[kAgents] = {};   ///< ordered after the agent's operations before this stamp
  std::uint32_t fenced[kAgents] = {};  ///< the same for its writes, as visible to the asynchronous proxy
  void join(const Knowledge& other) {
    for (Agent i = 0; i < kAgents; ++i) known[i] = std::max(known[i], other.known[i]);
    for (Agent i = 0; i < kAgents; ++i) fenced[i] = std::max(fenced[i], other.fenced[i]);
  }
};
/// Shared by all lanes with the same knowledge; null: no knowledge.
using KnowledgePointer = std::shared_ptr<const Knowledge>;

/// Combines knowledge. The lanes of a warp request the same combination one after another, so the most recent results
/// are cached.
class Clocks {
 public:
  KnowledgePointer joined(const KnowledgePointer& a, const KnowledgePointer& b);
  /// `a`, and in addition the operations of `agent` up to this stamp.
  KnowledgePointer with(const KnowledgePointer& a, Agent agent, std::uint32_t stamp);
  /// `a` after a proxy fence.
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

/// The combined knowledge of the threads that have arrived in one phase of a barrier.
class Gathering {
 public:
  /// Adds the knowledge of one lane and everything that it did before `now`.
  void add(const KnowledgePointer& knows, Agent self, std::uint32_t now, std::uint32_t fenced_at) {
    Knowledge& all = own();
    if (knows && knows != last_) all.join(*knows);
    last_ = knows;
    all.known[self] = now;
    all.fenced[self] = std::max(all.fenced[self], fenced_at);
  }
  /// Adds a completed copy.
  void add(Agent agent, std::uint32_t now) { own().known[agent] = now; }
  /// Returns the combined knowledge and starts a new phase.
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
  KnowledgePointer last_;  ///< the last one added; held so that no other can get its address
};

}  // namespace simt
