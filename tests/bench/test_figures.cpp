// Which curves go into which figure.
#include <catch2/catch_approx.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <stdexcept>
#include <string>
#include <string_view>

#include "common/bench/figures.hpp"
#include "tests/bench/made_up.hpp"

using namespace workbook::bench;
using Catch::Approx;
using Catch::Matchers::ContainsSubstring;

namespace {

const Figure& figure(const std::vector<Figure>& all, std::string_view name) {
  for (const Figure& one : all) {
    if (one.name == name) return one;
  }
  throw std::runtime_error("no figure " + std::string(name));
}
const Curve& curve(const Panel& panel, std::string_view title) {
  for (const Curve& one : panel.curves) {
    if (one.title == title) return one;
  }
  throw std::runtime_error("no curve " + std::string(title));
}
double y_at(const Curve& curve, double x) {
  for (const auto& [at, y] : curve.points) {
    if (at == x) return y;
  }
  throw std::runtime_error("no point");
}

}  // namespace

TEST_CASE("each figure shows the quantities on its axes") {
  Results results = made_up_results();
  const auto all = figures(results);

  const Panel& speed = figure(all, "speed_forward").panels.at(0);
  CHECK(y_at(curve(speed, "04_q_split"), 4096) == Approx(200));
  CHECK(curve(speed, "SDPA FlashAttention-2").style == Curve::Style::dashed);
  CHECK(curve(speed, "01_naive_attention").points.size() == 1);  // out of memory at 8192
  CHECK(y_at(curve(speed, "cuBLAS matmul, measured"), 8192) == Approx(800));

  const Panel& faster = figure(all, "speed_up").panels.at(0);
  CHECK(y_at(curve(faster, "04_q_split"), 4096) == Approx(4));
  CHECK_THAT(faster.title, ContainsSubstring("out of memory at N = 8192"));

  const Panel& memory = figure(all, "memory").panels.at(0);
  CHECK(y_at(curve(memory, "01_naive_attention"), 4096) == Approx(6.0 * 4096 * 4096 + 4 * 4096));
  CHECK(y_at(curve(memory, "04_q_split"), 8192) == Approx(4 * 8192));

  const Panel& causal = figure(all, "causal").panels.at(0);
  CHECK(y_at(curve(causal, "05_causal"), 8192) == Approx(1.8).epsilon(1e-3));
  CHECK(y_at(curve(causal, "2N/(N+1)"), 8192) == Approx(2).epsilon(1e-3));

  const Panel& roof = figure(all, "roofline").panels.at(0);
  const Curve& fused = curve(roof, "04_q_split");
  REQUIRE(fused.points.size() == 1);
  CHECK(fused.points[0].first == Approx(100));
  CHECK(fused.points[0].second == Approx(200));
  const Curve& limit = curve(roof, "cuBLAS matmul, measured");
  CHECK(limit.points.at(1).first == Approx(800.0 / 6));  // the ridge: 800 TFLOP/s over 6 TB/s
  CHECK(limit.points.at(1).second == Approx(800));
}

TEST_CASE("the DRAM roof appears with a profile, the steps with steps") {
  Results results = made_up_results();
  CHECK(figure(figures(results), "roofline").panels.size() == 1);
  for (Point& p : results.points) {
    if (p.name == "04_q_split") p.profile = {{"dram__bytes_read.sum", 3e8}, {"dram__bytes_write.sum", 1e8}};
  }
  const auto shape = usual_shape("forward", false, 4096, 64);
  results.points.push_back(made_up_point("04_q_split: first version", "step", shape, 100));
  results.points.push_back(made_up_point("04_q_split: padded rows", "step", shape, 150));
  // The first step does not support d = 128; the second keeps its position.
  const auto wide = usual_shape("forward", false, 4096, 128);
  results.points.push_back(made_up_point("04_q_split: padded rows", "step", wide, 160));
  const auto all = figures(results);
  const Panel& dram = figure(all, "roofline").panels.at(1);
  const auto at = usual_shape("forward", false, 8192, 64);
  CHECK(curve(dram, "04_q_split").points.at(0).first == Approx(flops(at) / 4e8));
  const Panel& steps = figure(all, "steps").panels.at(0);
  REQUIRE(steps.curves.size() == 2);
  CHECK(steps.curves[1].points == std::vector<std::pair<double, double>>{{1, steps.curves[1].points.at(0).second}});
  CHECK(steps.x_ticks == std::vector<std::string>{"first version", "padded rows"});
  CHECK(steps.curves[0].points[1].second == Approx(150));
  CHECK(curve(figure(all, "speed_forward").panels.at(0), "04_q_split").points.size() == 2);  // steps are not stages
}

TEST_CASE("without a GPU there are no figures") {
  Results results = made_up_results();
  for (Point& p : results.points) p.backend = workbook::Backend::cpu;
  CHECK(figures(results).empty());
}

TEST_CASE("a figure's facts hold its panels and curves") {
  Figure one{"a figure", "what it shows", {{"title", "x label", "y label", false, true, false, {}, true, {}}}};
  one.panels[0].curves.push_back({"a_b", Curve::Style::dashed, 3, {{1, 2}, {3, 4}}});
  const auto all = facts(one);
  CHECK(all["kind"] == "plot");
  CHECK(all["title"] == "what it shows");
  CHECK(all["panels"][0]["x_label"] == "x label");
  CHECK(all["panels"][0]["y_log"] == true);
  CHECK(all["panels"][0]["curves"][0] ==
        nlohmann::ordered_json{{"title", "a_b"}, {"style", "dashed"}, {"form", 3}, {"points", {{1., 2.}, {3., 4.}}}});
}
