// Ranks on the simulator.
#include "common/nccl/ranks.hpp"

#include <malloc.h>

#include <condition_variable>
#include <exception>
#include <mutex>
#include <random>
#include <stdexcept>
#include <thread>

#include "common/nccl/communicator.hpp"
#include "common/nccl/turns.hpp"
#include "common/simt/error.hpp"
#include "common/simt/simulator.hpp"
#include "common/simt/stream_order.hpp"

namespace workbook::nccl {

namespace {

/// Ends a rank after another one has failed.
struct Abandoned {};

simt::Report deadlock(const std::vector<std::string>& ranks, bool lone_send) {
  simt::Report report{};
  report.mistake = simt::Mistake::waiting_ranks;
  report.what = "no rank can continue";
  for (const std::string& rank : ranks) report.what += "\n    " + rank;
  report.advice = lone_send
                      ? "a send may wait for its receive: put the ncclSend and the ncclRecv of a step between "
                        "ncclGroupStart and ncclGroupEnd"
                      : "every transfer needs its counterpart: each ncclSend an ncclRecv of the other rank, and each "
                        "collective a call of every rank, in the same order";
  return report;
}

class Turns {
 public:
  explicit Turns(int ranks) : ranks_(std::size_t(ranks)), random_(simt::options().seed) {}

  void begin(int rank) {
    mine = this, my_rank = std::size_t(rank);
    std::unique_lock<std::mutex> lock(mutex_);
    take_turn(lock);
  }
  void wait(const std::function<bool()>& may_continue, const std::function<Waiting()>& waiting) {
    if (may_continue()) return;
    std::unique_lock<std::mutex> lock(mutex_);
    ranks_[my_rank].may_continue = &may_continue, ranks_[my_rank].waiting = &waiting;
    pass_on();
    take_turn(lock);
    ranks_[my_rank] = {};
  }
  void end(std::exception_ptr failure) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ranks_[my_rank] = {.ended = true};
    if (!failure_) failure_ = failure;
    pass_on();
  }
  std::exception_ptr failure() const { return failure_; }

  static thread_local Turns* mine;
  static thread_local std::size_t my_rank;

 private:
  struct Rank {
    const std::function<bool()>* may_continue = nullptr;  ///< null: it does not wait
    const std::function<Waiting()>* waiting = nullptr;
    bool ended = false;
  };

  void take_turn(std::unique_lock<std::mutex>& lock) {
    changed_.wait(lock, [&] { return current_ == my_rank; });
    if (failure_) throw Abandoned();
  }
  /// Gives the turn to the next rank that can continue; after a failure to each that has not ended, one after the
  /// other, since they release their memory. The ranks are locked.
  void pass_on() {
    const bool shuffled = simt::options().order == simt::Order::shuffled;
    const std::size_t first = shuffled ? random_() : my_rank + 1;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      const std::size_t next = (first + i) % ranks_.size();
      const Rank& rank = ranks_[next];
      if (rank.ended || (!failure_ && rank.may_continue != nullptr && !(*rank.may_continue)())) continue;
      current_ = next;
      changed_.notify_all();
      return;
    }
    if (!failure_) report_deadlock();
  }
  void report_deadlock() {
    std::vector<std::string> texts;
    bool lone_send = false, all_ended = true, one_ended = false;
    for (std::size_t i = 0; i < ranks_.size(); ++i) {
      all_ended &= ranks_[i].ended, one_ended |= ranks_[i].ended;
      const Waiting waiting = ranks_[i].ended ? Waiting{"has ended"} : (*ranks_[i].waiting)();
      texts.push_back(simt::words("rank ", i, " ", waiting.text));
      lone_send |= waiting.lone_send;
    }
    if (all_ended) return;
    failure_ = std::make_exception_ptr(simt::KernelMistakes({deadlock(texts, lone_send && !one_ended)}));
    pass_on();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::size_t current_ = 0;
  std::exception_ptr failure_;
  std::mt19937 random_;
};
thread_local Turns* Turns::mine = nullptr;
thread_local std::size_t Turns::my_rank = 0;

}  // namespace

void wait_until(const std::function<bool()>& may_continue, const std::function<Waiting()>& waiting) {
  if (Turns::mine != nullptr) return Turns::mine->wait(may_continue, waiting);
  if (may_continue()) return;
  const Waiting alone = waiting();
  throw simt::KernelMistakes({deadlock({"the only rank " + alone.text}, alone.lone_send)});
}

void run_ranks(int ranks, const std::function<void(int, ncclComm_t)>& body) {
  if (ranks < 1) throw std::invalid_argument(simt::words("run_ranks: ", ranks, " ranks; allowed are 1 and more"));
  const std::vector<std::unique_ptr<Communicator>> communicators = connect(ranks);
  Turns turns(ranks);
  const simt::Clock start = simt::host_clock();
  std::vector<simt::Clock> ends(std::size_t(ranks), start);
  // One rank runs at a time. An arena of the allocator for each would only reserve address space, which graders limit.
  mallopt(M_ARENA_MAX, 1);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      std::exception_ptr failure;
      try {
        simt::set_device(rank);
        simt::join_host(start);
        turns.begin(rank);
        body(rank, communicators[std::size_t(rank)].get());
        require_no_open_group();
        ends[std::size_t(rank)] = simt::host_clock();
      } catch (const Abandoned&) {
      } catch (...) {
        failure = std::current_exception();
      }
      turns.end(failure);
    });
  for (std::thread& thread : threads) thread.join();
  for (const simt::Clock& end : ends) simt::join_host(end);
  if (turns.failure()) std::rethrow_exception(turns.failure());
}

}  // namespace workbook::nccl
