// Everything derived from a description: the default sizes on a device, the checks of a call's numbers, extra memory,
// variants, and the results of "describe" and "blocks".
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/attention/element.hpp"
#include "common/attention/inputs.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/description.hpp"
#include "tests/worker/fixtures/fixtures.hpp"

using namespace workbook;
using namespace workbook::worker;
using Catch::Matchers::ContainsSubstring;
namespace fs = std::filesystem;

namespace {

using Numbers = std::map<std::string, double>;

const fs::path& executable() {
  static const fs::path built = [] {
    const fs::path folder = fs::path(WORKBOOK_SOURCE) / "tests/cuda/fixtures";
    WorkerJob job;
    job.name = "made_up_stage";
    job.backend = Backend::sim;
    job.sources = {folder / "made_up_stage.cu"};
    job.include = folder;
    const WorkerBuilt worker =
        build_workers(toolchain_for(fs::path(WORKBOOK_BINARY) / "tests/cuda/built"), {job}).at(job.name);
    if (!worker.ok) throw std::runtime_error(worker.log);
    return worker.executable;
  }();
  return built;
}

void skip_if_not_counted() {
  if (!load_toolchain(WORKBOOK_BINARY, WORKBOOK_SOURCE).counts) SKIP("accesses are not counted in this build");
}

Reply send(const Call& call) {
  static Worker worker(executable());
  return worker.call(call);
}

AttentionResult run(std::int64_t Nq, std::int64_t Nk, std::int64_t d, const Numbers& numbers = {},
                    bool causal = false) {
  return forward(encoded(make_input("normal", {{1, 1, 1, Nq, Nk, d}, causal, 0, 1}), float16), numbers, send);
}

/// The sizes that a call used: the made-up stage writes Br to the LSE.
int tile_taken(std::int64_t d, const Numbers& numbers = {}) {
  return int(run(70, 40, d, numbers).lse.values[0]);
}

std::string refusal(std::int64_t d, const Numbers& numbers, bool causal = false) {
  try {
    run(70, 40, d, numbers, causal);
  } catch (const Failure& failure) {
    CHECK(failure.ending == Ending::threw);
    return failure.what();
  }
  return "it was not refused";
}

}  // namespace

TEST_CASE("the default are the first sizes that fit the shared memory of a block") {
  CHECK(tile_taken(64) == 128);
  CHECK(tile_taken(64, {{"shared_limit", 200 * 1024}}) == 128);
  CHECK(tile_taken(64, {{"shared_limit", 200 * 1024 - 1}}) == 64);
  CHECK(tile_taken(32, {{"shared_limit", 48 * 1024}}) == 32);
  CHECK_THAT(refusal(64, {{"shared_limit", 48 * 1024}}),
             ContainsSubstring("not built for d = 64 with at most 49152 bytes of shared memory per thread block"));
}

TEST_CASE("a call chooses sizes by some of their names, or by all") {
  CHECK(tile_taken(32, {{"Br", 64}}) == 64);
  CHECK(tile_taken(32, {{"Bc", 32}}) == 32);
  CHECK(tile_taken(32, {{"Br", 128}, {"Bc", 64}, {"warps", 4}}) == 128);
}

TEST_CASE("invalid numbers are errors that name the argument, its value and the allowed range") {
  CHECK_THAT(refusal(64, {{"Br", 48}}),
             ContainsSubstring("Br = 48: not built for d = 64") && ContainsSubstring("(128, 64, 4) and (64, 64, 2)"));
  CHECK_THAT(refusal(64, {{"Br", 32}, {"Bc", 32}}), ContainsSubstring("Br = 32, Bc = 32: not built for d = 64"));
  CHECK_THAT(refusal(32, {{"Br", 128}, {"warps", 2}}),
             ContainsSubstring("Br = 128, warps = 2: not built for d = 32") && ContainsSubstring("and (32, 32, 1)"));
  CHECK_THAT(refusal(48, {}), ContainsSubstring("d = 48 is not supported; allowed: 32 and 64"));
  CHECK_THAT(refusal(64, {}, /*causal=*/true),
             ContainsSubstring("mask = causal") && ContainsSubstring("allowed: none"));
  CHECK_THAT(refusal(32, {{"factor", 3}}), ContainsSubstring("factor = 3: allowed: 0 and 2"));
  CHECK_THAT(refusal(64, {{"factor", 2}}), ContainsSubstring("d = 64 is not supported; allowed: 32"));
  CHECK_THAT(refusal(64, {{"tema", 2}}),
             ContainsSubstring("tema = 2: this stage has no such number; allowed: Br, Bc, warps and factor"));
}

TEST_CASE("a variant has its sizes and its launch") {
  const AttentionResult plain = run(70, 40, 32), variant = run(70, 40, 32, {{"factor", 2}});
  CHECK(plain.lse.values[0] == 128);
  CHECK(variant.lse.values[0] == 16);
  for (std::size_t i = 0; i < plain.O.values.size(); ++i) REQUIRE(variant.O.values[i] == 2 * plain.O.values[i]);
}

TEST_CASE("extra memory is allocated for the call's shape and counted") {
  CHECK(run(70, 40, 32).reply.extra_bytes == 70 * 4);
}

TEST_CASE("reads are counted by the tiles that were taken") {
  skip_if_not_counted();
  CHECK(run(70, 40, 64).reply.counters.at("V.tiles") > 0);
}

TEST_CASE("describe answers with all that the stage says of itself") {
  const WorkerDescription description = describe(send, {1, 1, 1, 70, 40, 64}), for_64 = describe(send, {}, 64);
  CHECK(description.operations == std::vector<std::string>{"bench", "bench_bfloat16", "blocks", "blocks_bfloat16",
                                                           "describe", "forward", "forward_bfloat16", "nothing"});
  REQUIRE(description.stages.size() == 2);
  const StageDescription& stage = description.stages[0];
  CHECK(description.find("forward") == &stage);
  CHECK(description.find("backward") == nullptr);
  CHECK(stage.pass == "forward");
  CHECK(stage.element == float16);
  CHECK(stage.masks == std::vector<Mask>{Mask::none});
  CHECK(stage.head_dims == std::vector<int>{32, 64});
  CHECK(stage.does(64));
  CHECK_FALSE(stage.does(128));
  CHECK(stage.rows_per_warp == 32);
  CHECK_FALSE(stage.warps_split_keys);
  REQUIRE(stage.extra.size() == 1);
  CHECK(stage.extra[0].name == "sizes");
  CHECK(stage.extra[0].bytes == 280);
  REQUIRE(stage.tiles.size() == 5);  // three for d = 32, two for d = 64
  CHECK(for_64.stages[0].tiles.size() == 2);
  CHECK(for_64.stages[0].head_dims == stage.head_dims);
  CHECK(stage.default_tiles(128) == nullptr);
  const StageTiles* tiles = stage.default_tiles(64);
  REQUIRE(tiles != nullptr);
  CHECK(tiles->sizes == std::map<std::string, int>{{"Br", 128}, {"Bc", 64}, {"warps", 4}});
  CHECK(tiles->shared_bytes == 200 * 1024);
  REQUIRE(stage.variants.size() == 1);
  CHECK(stage.variants[0].number == "factor");
  CHECK(stage.variants[0].value == 2);
  CHECK(stage.variants[0].head_dims == std::vector<int>{32});
  CHECK(stage.variants[0].default_tiles(32)->sizes.at("Br") == 16);
}

TEST_CASE("a second stage of a pass is for another element type, and is selected by it") {
  const WorkerDescription description = describe(send, {1, 1, 1, 70, 40, 64});
  const StageDescription* stage = description.find("forward", bfloat16);
  REQUIRE(stage != nullptr);
  CHECK(stage->operation == operation_for("forward", bfloat16, float16));
  CHECK(stage->head_dims == std::vector<int>{64});
  const Problem problem = make_input("normal", {{1, 1, 1, 70, 40, 64}, false, 0, 1});
  const AttentionResult got = forward(encoded(problem, bfloat16), {}, send, stage->operation);
  const Problem rounded = rounded_to(problem, bfloat16);
  for (std::size_t c = 0; c < 64; ++c) CHECK(got.O.values[c] == rounded.V.values[c]);
  CHECK(got.lse.values[0] == 16);
}

TEST_CASE("blocks lists the tiles that each block read and masked") {
  skip_if_not_counted();
  const std::size_t Nq = 200, Nk = 100, d = 64;
  const std::vector<std::uint16_t> Q(Nq * d), K(Nk * d), V(Nk * d);
  const auto blocks = [&](std::size_t room) {
    Call call("blocks");
    for_numbers(Setting{{1, 1, 1, Nq, Nk, d}, 1, {}},
                [&](std::string_view name, auto value) { call.number(std::string(name), double(value)); });
    call.input("Q", Q).input("K", K).input("V", V);
    call.output<std::uint16_t>("O", Nq * d).output<float>("lse", Nq);
    for (const char* name : {"first_row", "K_tiles", "V_tiles", "masked_tiles"}) call.output<std::int64_t>(name, room);
    return send(call);
  };
  const Reply reply = blocks(2);
  CHECK(reply.output<std::int64_t>("first_row") == std::vector<std::int64_t>{0, 128});
  CHECK(reply.output<std::int64_t>("K_tiles") == std::vector<std::int64_t>{1, 1});
  CHECK(reply.output<std::int64_t>("V_tiles") == std::vector<std::int64_t>{1, 1});
  CHECK(reply.output<std::int64_t>("masked_tiles") == std::vector<std::int64_t>{2, 2});
  CHECK_THROWS_AS(blocks(1), Failure);  // room for one of two blocks
}
