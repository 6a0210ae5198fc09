// Values derived from a time, and results as JSON and CSV.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>

#include "tests/bench/made_up.hpp"

using namespace workbook::bench;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;
using nlohmann::json;

TEST_CASE("the field's shapes keep B·N = 16384 and H·d = 2048") {
  CHECK(usual_shape("forward", false, 512, 64) == shape_of("forward", false, 32, 32, 512, 64));
  CHECK(usual_shape("backward", true, 16384, 128) == shape_of("backward", true, 1, 16, 16384, 128));
  CHECK(usual_shape("forward", false, 65536, 4096).B() == 1);
  CHECK(usual_shape("forward", false, 65536, 4096).H() == 1);
}

TEST_CASE("operations: 4·d for each visible pair, 2.5 times that backward") {
  const double full = flops(shape_of("forward", false, 2, 3, 100, 64));
  CHECK(full == 4.0 * 2 * 3 * 100 * 100 * 64);
  CHECK(flops(shape_of("forward", true, 2, 3, 100, 64)) == full * 5050 / 10000);  // 1 + 2 + … + 100 pairs
  CHECK(flops(shape_of("backward", false, 2, 3, 100, 64)) == 2.5 * full);
  CHECK(flops(shape_of("forward", false, 1, 32, 16384, 64)) == Approx(2.199e12).epsilon(1e-3));
  auto last = shape_of("forward", true, 2, 3, 100, 64);
  last.shape.Nq = 10;  // the last ten queries: 91 + … + 100 pairs
  CHECK(flops(last) == full * 955 / 10000);
}

TEST_CASE("median and spread do not depend on the order, and one outlier does not move the median") {
  const Times times = summary({5, 1, 2, 4, 3});
  CHECK(times.median == 3);
  CHECK(times.low == Approx(1.4));
  CHECK(times.high == Approx(4.6));
  CHECK(times.runs == 5);
  CHECK(summary({1, 1, 1, 1000}).median == 1);
  CHECK(summary({2, 4}).median == 3);
  const Times one = summary({7});
  CHECK(one.median == 7);
  CHECK(one.low == 7);
  CHECK(one.high == 7);
  CHECK_THROWS_AS(summary({}), std::invalid_argument);
}

TEST_CASE("three points give back any polynomial of the second degree") {
  const auto f = [](double x) { return 3 + 5 * x + 7 * x * x; };
  const std::array<std::pair<double, double>, 3> points{{{256, f(256)}, {512, f(512)}, {768, f(768)}}};
  for (const double x : {256.0, 1024.0, 16384.0}) CHECK(parabola(points, x) == Approx(f(x)).epsilon(1e-12));
}

TEST_CASE("the peak is known for cards that the data sheets list, and for no other") {
  CHECK(peak_flops("NVIDIA H200") == 989e12);
  CHECK(peak_flops("NVIDIA H200 NVL") == 835e12);
  CHECK(peak_flops("NVIDIA H100 80GB HBM3") == 989e12);
  CHECK(peak_flops("NVIDIA H100 PCIe") == 756e12);
  CHECK(peak_flops("NVIDIA A100-SXM4-80GB") == 312e12);
  CHECK_FALSE(peak_flops("Imagined GPU"));
}

TEST_CASE("results survive JSON, and shares refer to measurements of the same run") {
  const Results results = made_up_results();
  const json document = to_json(results);
  CHECK(to_json(from_json(document)) == document);

  const json& fused = document.at("points").at(1);
  CHECK(fused.at("name") == "04_q_split");
  CHECK(fused.at("tflops").get<double>() == Approx(200));
  CHECK(fused.at("share_of_peak").get<double>() == Approx(0.2));
  CHECK(fused.at("share_of_product").get<double>() == Approx(0.25));
  CHECK(fused.at("gigabytes_per_second").get<double>() == Approx(1000));
  CHECK(fused.at("share_of_copy").get<double>() == Approx(0.25));
  CHECK(fused.at("tokens_per_second").get<double>() == Approx(16384 / results.points[1].times->median));
  CHECK(fused.at("runs") == 20);

  const json& failed = document.at("points").at(6);
  CHECK(failed.at("result") == "out of memory");
  CHECK(failed.at("seconds").is_null());
  CHECK(failed.at("tflops").is_null());

  Results grouped = results;
  grouped.points[1].shape.shape.Hkv = 8, grouped.points[1].shape.shape.Nq = 1;
  const json point = to_json(grouped).at("points").at(1);
  CHECK(point.at("Hkv") == 8);
  CHECK(point.at("Nq") == 1);
  CHECK(from_json(to_json(grouped)).points[1].shape == grouped.points[1].shape);
  json older = document;  // from a version without these columns
  for (json& each : older["points"]) each.erase("Hkv"), each.erase("Nq");
  CHECK(to_json(from_json(older)) == document);
}

TEST_CASE("a file that is not a result is refused") {
  CHECK_THROWS_WITH(from_json(json::array()), ContainsSubstring("not a result file of ./workbook bench"));
  json document = to_json(made_up_results());
  document["points"][0].erase("N");
  CHECK_THROWS_AS(from_json(document), ResultsError);
  document = to_json(made_up_results());
  document["points"][0]["seconds"] = 0.0;
  CHECK_THROWS_WITH(from_json(document), ContainsSubstring("0 or less"));
  document["points"][0]["seconds"] = 1.0;
  document["points"][0]["N"] = 0;
  CHECK_THROWS_WITH(from_json(document), ContainsSubstring("below 1"));
}

TEST_CASE("CSV has the environment and one line per point, all with the same number of cells") {
  Results results = made_up_results();
  results.points[0].name = "a \"quoted\" name";
  std::istringstream lines(to_csv(results));
  std::string line;
  int environment = 0, rows = 0;
  long commas = -1;
  while (std::getline(lines, line)) {
    if (line.starts_with("#")) {
      ++environment;
      continue;
    }
    const long here = std::count(line.begin(), line.end(), ',');
    if (commas < 0) commas = here;
    CHECK(here == commas);
    ++rows;
  }
  CHECK(environment == 2);
  CHECK(rows == 1 + int(results.points.size()));
  CHECK_THAT(to_csv(results), ContainsSubstring("\"a \"\"quoted\"\" name\""));
}

TEST_CASE("names, lengths and points are those with a time on a GPU") {
  Results results = made_up_results();
  CHECK(results.on_gpu());
  CHECK(results.names("peer") == std::vector<std::string>{"SDPA FlashAttention-2"});
  CHECK(results.names().size() == 4);
  CHECK(results.lengths() == std::vector<std::int64_t>{4096, 8192});
  const auto times_of = [&](std::int64_t N) {
    return results.find("01_naive_attention", "forward", false, N, 64)->times;
  };
  CHECK(times_of(4096));
  CHECK_FALSE(times_of(8192));
  CHECK(results.find("04_q_split", "forward", true, 4096, 64) == nullptr);
  for (Point& p : results.points) p.backend = workbook::Backend::cpu;
  CHECK_FALSE(results.on_gpu());
  CHECK(results.names().empty());
}
