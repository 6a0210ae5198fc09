// Many at a time, or one alone.
#include "common/grading/turns.hpp"

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <thread>
#include <vector>

using workbook::grading::Turns;

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
