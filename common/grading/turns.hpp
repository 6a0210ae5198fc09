// Whose turn it is on the machine: many submissions at a time, or one alone while all others wait.
#pragma once

#include <condition_variable>
#include <mutex>

namespace workbook::grading {

class Turns {
 public:
  /// Calls `work` beside others' work.
  template <class Work>
  auto beside_others(const Work& work) {
    const Turn turn(*this, /*alone=*/false);
    return work();
  }
  /// Calls `work` when all others have come to the end of theirs; whoever comes meanwhile waits.
  template <class Work>
  auto alone(const Work& work) {
    const Turn turn(*this, /*alone=*/true);
    return work();
  }

 private:
  class Turn {
   public:
    Turn(Turns& turns, bool alone) : turns_(turns), alone_(alone) {
      std::unique_lock lock(turns_.mutex_);
      turns_.waiting_alone_ += alone_;
      turns_.changed_.wait(lock, [&] {
        return alone_ ? turns_.at_work_ == 0 && !turns_.one_alone_ : !turns_.one_alone_ && turns_.waiting_alone_ == 0;
      });
      turns_.waiting_alone_ -= alone_;
      if (alone_) turns_.one_alone_ = true;
      turns_.at_work_ += !alone_;
    }
    ~Turn() {
      const std::lock_guard lock(turns_.mutex_);
      if (alone_) turns_.one_alone_ = false;
      turns_.at_work_ -= !alone_;
      turns_.changed_.notify_all();
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;

   private:
    Turns& turns_;
    const bool alone_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  int at_work_ = 0, waiting_alone_ = 0;
  bool one_alone_ = false;
};

}  // namespace workbook::grading
