// Transfers between ranks on the simulator: right rings and collectives give the right values and no report, whatever
// the order of the ranks; their bytes are counted; and each planted mistake is reported at its lines.
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include <fstream>
#include <map>
#include <set>
#include <stdexcept>

#include "common/cuda/error.hpp"
#include "common/nccl/ranks.hpp"
#include "common/simt/simulator.hpp"
#include "common/simt/stream_order.hpp"
#include "tests/nccl/ring.hpp"

using namespace rings;
using Catch::Matchers::ContainsSubstring;
using simt::Mistake;

namespace {

std::vector<simt::Report> reports_of(const std::function<void()>& run) {
  try {
    run();
  } catch (const simt::KernelMistakes& mistakes) {
    return mistakes.reports();
  } catch (const workbook::cuda::Error& error) {
    return error.reports();
  }
  return {};
}

/// The line of ring.cu with a comment.
int line_of(const std::string& comment) {
  std::ifstream file(NCCL_SOURCES "/ring.cu");
  std::string line;
  for (int number = 1; std::getline(file, line); ++number)
    if (line.ends_with("// " + comment)) return number;
  return 0;
}

std::vector<float> expected_sum(int ranks, int n) {
  std::vector<float> sum;
  for (int i = 0; i < n; ++i) sum.push_back(float(1000 * ranks * (ranks - 1) / 2 + ranks * i));
  return sum;
}

/// Runs everything in the orders of the ranks that a seed gives.
struct InOrder {
  explicit InOrder(int seed) {
    simt::options().order = seed == 0 ? simt::Order::natural : simt::Order::shuffled;
    simt::options().seed = std::uint64_t(seed);
  }
  ~InOrder() { simt::options() = simt::Options(); }
  InOrder(const InOrder&) = delete;
  InOrder& operator=(const InOrder&) = delete;
};

}  // namespace

TEST_CASE("a ring adds the shards of all ranks and sends each R - 1 times") {
  const InOrder order(GENERATE(0, 1, 2, 3));
  const int ranks = GENERATE(1, 2, 3, 8);
  constexpr int kElements = 100;
  for (const std::vector<float>& sum : add_in_a_ring(ranks, kElements, Bug::none))
    CHECK(sum == expected_sum(ranks, kElements));
  std::map<std::pair<int, int>, std::size_t> sent;
  for (const simt::Transfer& transfer : simt::transfers()) {
    sent[{transfer.from, transfer.to}] += transfer.bytes;
    CHECK(transfer.step < ranks - 1);
  }
  CHECK(int(sent.size()) == (ranks == 1 ? 0 : ranks));
  for (const auto& [pair, bytes] : sent) {
    CHECK(pair.second == (pair.first + 1) % ranks);
    CHECK(bytes == std::size_t(ranks - 1) * kElements * sizeof(float));
  }
}

TEST_CASE("what is complete is forgotten with the launches, so that a long program needs no more memory") {
  add_in_a_ring(4, 100, Bug::none);
  CHECK_FALSE(simt::host_clock().empty());
  simt::clear_launches();
  CHECK(simt::host_clock().empty());
  CHECK(simt::transfers().empty());
}

TEST_CASE("a needless last transfer gives the right sums and is counted") {
  for (const std::vector<float>& sum : add_in_a_ring(4, 100, Bug::one_step_more)) CHECK(sum == expected_sum(4, 100));
  CHECK(simt::transfers().size() == 16);
}

TEST_CASE("what no event orders is reported with both lines, in every order of the ranks") {
  struct Expected {
    Bug bug;
    const char *side, *other;
  };
  const InOrder order(GENERATE(0, 1, 2));
  const Expected expected =
      GENERATE(Expected{Bug::no_wait_for_arrival, "add", "receive"}, Expected{Bug::no_wait_for_use, "receive", "add"},
               Expected{Bug::one_buffer, "receive", "send"}, Expected{Bug::written_in_flight, "change", "send"},
               Expected{Bug::uploaded_in_flight, "upload", "send"});
  const std::vector<simt::Report> reports = reports_of([&] { add_in_a_ring(4, 100, expected.bug); });
  REQUIRE(!reports.empty());
  INFO(reports[0].text());
  CHECK(reports[0].mistake == Mistake::unordered_streams);
  REQUIRE(reports[0].other);
  std::set<int> lines{reports[0].side.source.line, reports[0].other->source.line};
  const std::set<int> wanted{line_of(expected.side), line_of(expected.other)};
  CHECK(lines == wanted);
  CHECK_THAT(reports[0].advice,
             ContainsSubstring(expected.bug == Bug::one_buffer ? "memory of its own" : "record an event"));
}

TEST_CASE("a send without a group waits for its receive, however small") {
  for (const int n : {1, 100}) {
    const std::vector<simt::Report> reports = reports_of([&] { add_in_a_ring(3, n, Bug::no_group); });
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].mistake == Mistake::waiting_ranks);
    CHECK_THAT(reports[0].what, ContainsSubstring("rank 0 waits in ncclSend") && ContainsSubstring("to rank 1 at ") &&
                                    ContainsSubstring("rank 2 waits in ncclSend"));
    CHECK_THAT(reports[0].advice, ContainsSubstring("ncclGroupStart"));
  }
}

TEST_CASE("ranks that wait for each other are reported with what each waits for") {
  const InOrder order(GENERATE(0, 1, 2));
  SECTION("from the wrong neighbour") {
    const std::vector<simt::Report> reports = reports_of([] { add_in_a_ring(3, 100, Bug::wrong_neighbour); });
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].mistake == Mistake::waiting_ranks);
    CHECK_THAT(reports[0].what,
               ContainsSubstring("rank 0 waits in ncclSend of 100 elements, 400 bytes, to rank 1 at ") &&
                   ContainsSubstring("; ncclRecv of 100 elements, 400 bytes, from rank 1 at "));
  }
  SECTION("a message that is never received") {
    const std::vector<simt::Report> reports = reports_of([] { add_in_a_ring(3, 100, Bug::surplus_send); });
    REQUIRE(reports.size() == 1);
    CHECK_THAT(reports[0].what, ContainsSubstring("rank 1 waits in ncclSend of 100 elements, 400 bytes, to rank 2") &&
                                    ContainsSubstring("rank 2 has ended"));
    CHECK_THAT(reports[0].advice, ContainsSubstring("counterpart"));
  }
  SECTION("a rank that ends early") {
    const std::vector<simt::Report> reports = reports_of([] { add_in_a_ring(3, 100, Bug::one_step_less); });
    REQUIRE(reports.size() == 1);
    CHECK_THAT(reports[0].what, ContainsSubstring("rank 1 waits in ncclSend") && ContainsSubstring("rank 2 has ended"));
  }
}

TEST_CASE("ranks that disagree on a transfer are reported with both calls") {
  for (const Bug bug : {Bug::wrong_count, Bug::wrong_type}) {
    const std::vector<simt::Report> reports = reports_of([&] { add_in_a_ring(3, 100, bug); });
    REQUIRE(reports.size() == 1);
    INFO(reports[0].text());
    CHECK(reports[0].mistake == Mistake::transfer_mismatch);
    CHECK(reports[0].side.source.line == line_of("receive"));
    CHECK(reports[0].other->source.line == line_of("send"));
  }
  for (const auto& [which, line] :
       {std::pair{Collective::different, "differs"}, {Collective::different_counts, "gather"}}) {
    const std::vector<simt::Report> reports = reports_of([&, which = which] { collect(3, 100, which); });
    REQUIRE(reports.size() == 1);
    CHECK(reports[0].mistake == Mistake::transfer_mismatch);
    CHECK(reports[0].side.source.line == line_of(line));
    CHECK(reports[0].other->source.line == line_of("gather"));
  }
}

TEST_CASE("a group without an end is refused") {
  CHECK_THROWS_WITH(add_in_a_ring(2, 100, Bug::open_group), ContainsSubstring("without ncclGroupEnd"));
}

TEST_CASE("a transfer past the end of its memory is reported before anything is written") {
  const std::vector<simt::Report> reports = reports_of([] { send_too_much(10); });
  REQUIRE(reports.size() == 1);
  CHECK(reports[0].mistake == Mistake::outside_global);
  CHECK(reports[0].what == "11 elements from element 0 of part on, which has 10");
  CHECK(reports[0].side.source.line == line_of("too much"));
}

TEST_CASE("a rank's kernel cannot read the memory of another rank") {
  const std::vector<simt::Report> reports = reports_of([] { add_in_a_ring(2, 100, Bug::memory_of_a_neighbour); });
  REQUIRE(!reports.empty());
  CHECK(reports[0].mistake == Mistake::other_device);
  CHECK(reports[0].side.source.line == line_of("add"));
}

TEST_CASE("collectives give each rank its result, and count as a ring") {
  constexpr int kElements = 40;
  const int ranks = GENERATE(1, 2, 5);
  const auto value = [](int rank, int i) { return float(1000 * rank + i); };
  const auto sum = [&](int i) {
    float all = 0;
    for (int rank = 0; rank < ranks; ++rank) all += value(rank, i);
    return all;
  };
  const auto bytes = [](int rank) {
    std::size_t sent = 0;
    for (const simt::Transfer& transfer : simt::transfers())
      if (transfer.from == rank) sent += transfer.bytes;
    return sent;
  };
  for (const Collective which : {Collective::all_gather, Collective::in_place}) {
    const auto gathered = collect(ranks, kElements, which);
    for (int rank = 0; rank < ranks; ++rank)
      for (int i = 0; i < ranks * kElements; ++i)
        CHECK(gathered[std::size_t(rank)][std::size_t(i)] == value(i / kElements, i % kElements));
    CHECK(bytes(0) == std::size_t(ranks - 1) * kElements * 4);
  }
  const auto scattered = collect(ranks, kElements, Collective::reduce_scatter);
  for (int rank = 0; rank < ranks; ++rank)
    for (int i = 0; i < kElements; ++i)
      CHECK(scattered[std::size_t(rank)][std::size_t(i)] == sum(rank * kElements + i));
  CHECK(bytes(0) == std::size_t(ranks - 1) * kElements * 4);
  const auto reduced = collect(ranks, kElements, Collective::all_reduce);
  for (const std::vector<float>& of_rank : reduced)
    for (int i = 0; i < kElements; ++i) CHECK(of_rank[std::size_t(i)] == sum(i));
  CHECK(bytes(0) == std::size_t(2 * (ranks - 1)) * kElements * 4 / std::size_t(ranks));
  const std::vector<simt::Report> reports = reports_of([] { collect(2, kElements, Collective::late_event); });
  REQUIRE(!reports.empty());
  CHECK(reports[0].mistake == Mistake::unordered_streams);
  CHECK(reports[0].side.source.line == line_of("add gathered"));
}
