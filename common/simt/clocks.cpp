#include "common/simt/clocks.hpp"

#include <algorithm>
#include <utility>

#include "common/simt/asynchrony.hpp"
#include "common/simt/scheduler.hpp"

namespace simt {

Clocks::Answer* Clocks::find(char question, const KnowledgePointer& a, const KnowledgePointer& b, Agent agent,
                             std::uint32_t stamp) {
  for (Answer& answer : answers_) {
    if (answer.question == question && answer.a == a && answer.b == b && answer.agent == agent &&
        answer.stamp == stamp) {
      return &answer;
    }
  }
  return nullptr;
}

KnowledgePointer Clocks::keep(char question, KnowledgePointer a, KnowledgePointer b, Agent agent, std::uint32_t stamp,
                              KnowledgePointer result) {
  answers_[next_] = {std::move(a), std::move(b), result, agent, stamp, question};
  next_ = (next_ + 1) % kAnswers;
  return result;
}

KnowledgePointer Clocks::joined(const KnowledgePointer& a, const KnowledgePointer& b) {
  if (!a || a == b) return b;
  if (!b) return a;
  if (const Answer* answer = find('j', a, b, 0, 0)) return answer->result;
  auto all = std::make_shared<Knowledge>(*a);
  all->join(*b);
  return keep('j', a, b, 0, 0, std::move(all));
}

KnowledgePointer Clocks::with(const KnowledgePointer& a, Agent agent, std::uint32_t stamp) {
  if (const Answer* answer = find('w', a, nullptr, agent, stamp)) return answer->result;
  auto all = a ? std::make_shared<Knowledge>(*a) : std::make_shared<Knowledge>();
  all->known[agent] = std::max(all->known[agent], stamp);
  return keep('w', a, nullptr, agent, stamp, std::move(all));
}

KnowledgePointer Clocks::fenced(const KnowledgePointer& a) {
  if (!a) return a;
  if (const Answer* answer = find('f', a, nullptr, 0, 0)) return answer->result;
  auto all = std::make_shared<Knowledge>(*a);
  for (Agent i = 0; i < kFirstBarrierAgent; ++i) all->fenced[i] = std::max(all->fenced[i], all->known[i]);
  return keep('f', a, nullptr, 0, 0, std::move(all));
}

void Clocks::forget() {
  for (Answer& answer : answers_) answer = {};
}

// --- Lanes -----------------------------------------------------------------------------------------------------------

bool ordered_before(const Lane& lane, Agent agent, std::uint32_t stamp) {
  if (agent == lane.linear) return true;
  if (agent < kFirstBarrierAgent) {
    if (stamp < lane.block->interval_began) return true;
    if (int(agent) / kWarpSize == lane.warp->index) {
      if (stamp < lane.warp->epoch) return true;
      if (lane.warp->partial_barriers && stamp < lane.warp->heard[lane.index][agent % kWarpSize]) return true;
    }
  }
  return lane.knows && stamp < lane.knows->known[agent];
}

bool seen_by_async_proxy(const Lane& lane, Agent writer, std::uint32_t stamp) {
  if (writer >= kFirstBarrierAgent) return true;
  if (writer == lane.linear) return stamp < lane.fenced_at;
  return lane.knows && stamp < lane.knows->fenced[writer];
}

void release(Lane& lane, Gathering& into) {
  into.add(lane.knows, lane.linear, ++lane.block->clock, lane.fenced_at);
}

void Asynchrony::join_lanes(Warp& warp, std::uint32_t lanes) {
  Gathering together;
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) {
    const Lane& lane = warp.lanes[std::countr_zero(m)];
    together.add(lane.knows, lane.linear, block_.clock, lane.fenced_at);
  }
  const KnowledgePointer all = together.take();
  for (std::uint32_t m = lanes; m != 0; m &= m - 1) warp.lanes[std::countr_zero(m)].knows = all;
}

void Asynchrony::join_block() {
  Gathering together;
  for (int i = 0; i < block_.threads; ++i) {
    const Lane& lane = block_.lanes[i];
    together.add(lane.knows, lane.linear, block_.clock, lane.fenced_at);
  }
  const KnowledgePointer all = together.take();
  for (int i = 0; i < block_.threads; ++i) block_.lanes[i].knows = all;
}

void fence_proxy_async() {
  Lane& lane = *running;
  asynchrony(lane).fence_barriers(lane);
  lane.fenced_at = ++lane.block->clock;
  lane.knows = lane.block->asynchrony->clocks.fenced(lane.knows);
}

}  // namespace simt
