// Many at a time, or one alone; what took too long beside others is repeated alone.
#include "common/grading/turns.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

#include "common/grading/repeat.hpp"

using workbook::grading::Turns;
using namespace workbook::judge;

TEST_CASE("who works alone has nobody beside it, and waits for nobody who comes later") {
  Turns turns;
  std::atomic<int> beside{0}, met{0}, most{0};
  std::atomic<bool> stop{false};
  {
    std::vector<std::jthread> others;
    for (int i = 0; i < 4; ++i) {
      others.emplace_back([&] {
        while (!stop) {
          turns.beside_others([&] {
            const int now = ++beside;
            for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) continue;
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            --beside;
          });
        }
      });
    }
    // They come again and again: were they let in, this would never have its turn.
    for (int i = 0; i < 50; ++i) {
      met += turns.alone([&] {
        const int before = beside;
        std::this_thread::sleep_for(std::chrono::microseconds(500));
        return before + beside;
      });
    }
    while (most < 2) std::this_thread::yield();
    stop = true;
  }
  CHECK(met == 0);
  CHECK(most >= 2);
}

TEST_CASE("a turn ends with an exception too") {
  Turns turns;
  CHECK_THROWS_AS(turns.alone([]() -> int { throw 1; }), int);
  CHECK_THROWS_AS(turns.beside_others([]() -> int { throw 2; }), int);
  CHECK(turns.alone([] { return 3; }) == 3);
}

namespace {

Verdict verdict_of(const std::string& test, Result result) {
  Verdict verdict;
  verdict.test = test;
  verdict.result = result;
  return verdict;
}

}  // namespace

TEST_CASE("a test that took too long beside others counts as it ends alone") {
  Turns turns;
  std::vector<Verdict> tests{verdict_of("right", Result::passed), verdict_of("late", Result::timed_out),
                             verdict_of("late and wrong", Result::timed_out), verdict_of("wrong", Result::failed)};
  std::atomic<int> beside{0}, met{0};
  std::atomic<bool> stop{false};
  std::vector<std::string> asked;
  {
    std::jthread other([&] {
      while (!stop) {
        turns.beside_others([&] {
          ++beside;
          std::this_thread::sleep_for(std::chrono::microseconds(200));
          --beside;
        });
      }
    });
    workbook::grading::repeat_slow_tests(tests, turns, [&](const std::string& test) {
      asked.push_back(test);
      for (int i = 0; i < 20; ++i) {
        met += beside;
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
      return std::optional(verdict_of(test, test == "late" ? Result::passed : Result::failed));
    });
    stop = true;
  }
  CHECK(asked == std::vector<std::string>{"late", "late and wrong"});
  CHECK(met == 0);
  CHECK(tests[0].result == Result::passed);
  CHECK(tests[1].result == Result::passed);
  CHECK(tests[2].result == Result::failed);
  CHECK(tests[3].result == Result::failed);
}

TEST_CASE("what takes too long alone too ends the repetition, and a program that was ended is not started again") {
  Turns turns;
  std::vector<std::string> asked;
  const auto too_long = [&](const std::string& test) {
    asked.push_back(test);
    return std::optional(verdict_of(test, Result::timed_out));
  };
  std::vector<Verdict> ended{verdict_of("first", Result::timed_out)};
  ended[0].finished = false;
  workbook::grading::repeat_slow_tests(ended, turns, too_long);
  CHECK(asked.empty());
  std::vector<Verdict> endless{verdict_of("first", Result::timed_out), verdict_of("second", Result::timed_out)};
  workbook::grading::repeat_slow_tests(endless, turns, too_long);
  CHECK(asked == std::vector<std::string>{"first"});
  CHECK(endless[1].result == Result::timed_out);
}

TEST_CASE("what had the processor all its time ends the repetition, and what comes before it is repeated") {
  Turns turns;
  std::vector<std::string> asked;
  std::vector<Verdict> tests{verdict_of("first", Result::timed_out), verdict_of("second", Result::timed_out),
                             verdict_of("third", Result::timed_out)};
  tests[1].had_its_time = true;
  const auto passes = [&](const std::string& test) {
    asked.push_back(test);
    return std::optional(verdict_of(test, Result::passed));
  };
  turns.beside_others([&] {
    // Who had its time waits for nobody: here it would wait for ever.
    std::vector<Verdict> endless(tests.begin() + 1, tests.end());
    workbook::grading::repeat_slow_tests(endless, turns, passes);
  });
  CHECK(asked.empty());
  workbook::grading::repeat_slow_tests(tests, turns, passes);
  CHECK(asked == std::vector<std::string>{"first"});
  CHECK(tests[0].result == Result::passed);
  CHECK(tests[1].result == Result::timed_out);
  CHECK(tests[2].result == Result::timed_out);
}
