// Tables for a terminal and for notes/results.md, and the text between the markers of that page.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <sstream>

#include "common/attention/mask_text.hpp"
#include "common/bench/measure.hpp"
#include "common/bench/tables.hpp"
#include "common/book/files.hpp"
#include "tests/bench/made_up.hpp"

using namespace workbook::bench;
using Catch::Matchers::ContainsSubstring;
using workbook::book::Chapter, workbook::book::Goal;

namespace {

/// The line that begins with `start`.
std::string line_of(const std::string& text, const std::string& start) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(start)) return line;
  }
  return "";
}

Chapter chapter_with(int number, const std::string& slug, const std::vector<Goal>& goals) {
  Chapter chapter;
  chapter.number = number;
  chapter.slug = slug;
  chapter.pass = slug == "backward" ? "backward" : "forward";
  chapter.goals = goals;
  return chapter;
}

}  // namespace

TEST_CASE("the terminal table has every point, and says why one has no time") {
  const std::string table = terminal_table(made_up_results());
  const std::string fused = line_of(table, "04_q_split");
  CHECK_THAT(fused, ContainsSubstring(" 200 "));
  CHECK_THAT(fused, ContainsSubstring("20%"));
  CHECK_THAT(fused, ContainsSubstring("1.0%"));
  CHECK_THAT(table, ContainsSubstring("out of memory"));
  CHECK_THAT(table, ContainsSubstring("01_naive_attention, forward N=8192 d=64: allocating bytes for S"));
  CHECK(std::count(table.begin(), table.end(), '\n') == 1 + 12 + 1 + 1);  // header, points, empty line, message
}

TEST_CASE("the goals that chapters set are compared with the results") {
  const std::vector<workbook::book::Chapter> chapters{
      chapter_with(4, "q_split",
                   {{"SDPA FlashAttention-2", false, 64, 4096, 0, 0.7, 1.0},
                    {"01_naive_attention", false, 64, 8192, 8192, 4, 8}}),
      chapter_with(5, "causal",
                   {{"SDPA FlashAttention-2", true, 64, 8192, 8192, 0.65, 1.0},
                    {Goal::kUnmasked, true, 64, 8192, 8192, 1.75, 1.9}}),
      chapter_with(6, "backward", {{"SDPA FlashAttention-2", false, 64, 8192, 8192, 0.6, 0.85}})};
  Results results = made_up_results();
  std::string goals = page_sections(results, chapters, {}, "figures").at("goals");
  // 200 of 400; 180 of 360; half the pairs at 0.9 of the speed: 1.8 times faster.
  CHECK_THAT(line_of(goals, "| 04_q_split: forward, speed over that of SDPA"),
             ContainsSubstring("| 4096, 8192 | 0.7 | 1 | 0.50 | **missed** |"));
  CHECK_THAT(line_of(goals, "| 05_causal: forward, causal, speed over that of SDPA"),
             ContainsSubstring("| 0.50 | **missed** |"));
  CHECK_THAT(line_of(goals, "| 05_causal: forward, time without"), ContainsSubstring("| 1.80 | reached |"));
  CHECK(line_of(goals, "| 06_backward").empty());  // not timed
  CHECK(
      line_of(goals, "| 04_q_split: forward, speed over that of 01_naive_attention").empty());  // out of memory at 8192
  for (Point& p : results.points) {
    if (p.name == "04_q_split") p.times->median /= 2;
  }
  goals = page_sections(results, chapters, {}, "figures").at("goals");
  CHECK_THAT(line_of(goals, "| 04_q_split: forward, speed over that of SDPA"),
             ContainsSubstring("| 1.00 | as hoped for |"));
  CHECK_THAT(page_sections(Results{}, chapters, {}, "figures").at("goals"), ContainsSubstring("None"));
}

TEST_CASE("the page's sections hold the run's environment, speeds, memory and figures") {
  Results results = made_up_results();
  results.skipped = {"something was not there"};
  const auto sections = page_sections(results, {}, {{"speed_forward", "Speed over N.", {}}}, "figures");
  CHECK_THAT(sections.at("environment"), ContainsSubstring("```sh\n./workbook bench --peers\n```"));
  CHECK_THAT(sections.at("environment"), ContainsSubstring("| GPU | Imagined GPU |"));
  CHECK_THAT(sections.at("environment"), ContainsSubstring("| 4.00 TB/s |"));
  CHECK_THAT(sections.at("environment"), ContainsSubstring("- something was not there"));
  CHECK_THAT(sections.at("speed"), ContainsSubstring("| 01_naive_attention | 50.0 | out of memory |"));
  CHECK_THAT(sections.at("speed"), ContainsSubstring("### forward, causal, d = 64, B·N = 16384, H = 32"));
  CHECK_THAT(sections.at("details"),
             ContainsSubstring("| 04_q_split | 5.50 ms | 1.0% | 200 | 20% | 25% | 0.50 | 1000 | 25% |"));
  CHECK_THAT(sections.at("memory"), ContainsSubstring("| 01_naive_attention | 12.0 GiB | out of memory |"));
  CHECK_THAT(sections.at("profile"), ContainsSubstring("without `--profile`"));
  CHECK_THAT(sections.at("figures"), ContainsSubstring("![Speed over N.](figures/speed_forward.svg)"));
}

TEST_CASE("results of decoding become a section of their own: times, over cuDNN, and over the copy") {
  Results results = made_up_results();
  CHECK(!results.decoding());
  results.points.clear();
  const auto add = [&](const std::string& name, const workbook::bench::Shape& shape, double seconds) {
    results.points.push_back(made_up_point(name, name.starts_with("SDPA") ? "peer" : "stage", shape, 1));
    results.points.back().times->median = seconds;
  };
  const auto at_copy = [](const workbook::bench::Shape& shape) {
    return 4 * double(shape.B() * shape.Hkv() * shape.N() * shape.d()) / 4e12;
  };
  const auto shapes = decoding_shapes(128);
  for (const auto& shape : shapes) add("21_paged_cache", shape, (shape.mask.page_size == 0 ? 2 : 4) * at_copy(shape));
  for (const auto& shape : shapes)
    if (shape.mask == workbook::Mask::none) add("SDPA cuDNN", shape, at_copy(shape));
  CHECK_THAT(page_sections(results, {}, {}, "figures").at("decoding"), !ContainsSubstring(kFlashAttention3));
  for (const auto& shape : shapes)
    if (shape.mask == workbook::Mask::none) add(kFlashAttention3, shape, 3 * at_copy(shape));
  results.environment[kFlashAttention3] = "commit 0123456789ab";
  CHECK(results.decoding());
  const auto sections = page_sections(results, {}, {}, "figures");
  REQUIRE(sections.size() == 1);
  CHECK_THAT(terminal_table(results), ContainsSubstring(" none+cache=4096 each+pages=16,1 "));
  const std::string& text = sections.at("decoding");
  CHECK_THAT(text, ContainsSubstring("```sh\n./workbook bench --peers\n```"));
  CHECK_THAT(text, ContainsSubstring(
                       "GPU Imagined GPU, FlashAttention-3 commit 0123456789ab, copy in device memory, read + written, "
                       "4.00 TB/s."));
  CHECK_THAT(text, ContainsSubstring(
                       "| d, group, B, Nk | K and V | 21_paged_cache | 21_paged_cache, pages of 64 | "
                       "21_paged_cache, pages of 16 | 21_paged_cache, pages of 1 | SDPA cuDNN | FlashAttention-3 |"));
  CHECK_THAT(text, ContainsSubstring("| 128, 4, 32, 4096 | 512 MiB | 268 | 537 | 537 | 537 | 134 | 403 |"));
  CHECK_THAT(text, ContainsSubstring("| 128, 4, 32, 4096 | 512 MiB | 0.50 | 0.25 | 0.25 | 0.25 | 1.00 | 0.33 |"));
  CHECK_THAT(text, ContainsSubstring("### Decoding: speed over that of FlashAttention-3\n"));
  CHECK_THAT(text, ContainsSubstring("| 128, 4, 32, 4096 | 512 MiB | 1.50 | 0.75 | 0.75 | 0.75 | 3.00 | 1.00 |"));
  const std::string page = workbook::book::read_file(std::string(WORKBOOK_SOURCE) + "/notes/results.md");
  CHECK_THAT(publish(page, "notes/results.md", sections), ContainsSubstring("| 128, 8, 1, 65536 | 256 MiB | 134 |"));
}

TEST_CASE("results with FlashAttention-3 become a section of their own: speeds, and their ratios to its speeds") {
  Results results = made_up_results();
  results.environment[kFlashAttention3] = "commit 0123456789ab";
  const auto add = [&](const std::string& name, bool causal, double speed, workbook::Element element) {
    for (const std::int64_t N : {4096, 8192}) {
      const auto shape = usual_shape("forward", causal, N, 64);
      results.points.push_back(made_up_point(name, name[0] == 'F' ? "peer" : "stage", shape, speed));
      results.points.back().element = element;
    }
  };
  add("12_fp8", true, 600, workbook::float8);
  add(kFlashAttention3, true, 240, workbook::float16);
  add(kFlashAttention3FP8, true, 800, workbook::float8);
  const auto sections = page_sections(results, {}, {}, "figures");
  REQUIRE(sections.size() == 1);
  const std::string& text = sections.at("flash_attention_3");
  CHECK_THAT(text, ContainsSubstring("GPU Imagined GPU, FlashAttention-3 commit 0123456789ab, spread of the times at "
                                     "most 1.0 %."));
  CHECK_THAT(text, ContainsSubstring("### forward, causal, d = 64, B·N = 16384, H = 32\n"));
  CHECK_THAT(text, ContainsSubstring("| 05_causal | 180 (0.75) | 180 (0.75) |"));
  CHECK_THAT(text, ContainsSubstring("| 12_fp8 | 600 (0.75) | 600 (0.75) |"));
  CHECK_THAT(text, ContainsSubstring("| FlashAttention-3 | 240 | 240 |"));
  CHECK_THAT(text, ContainsSubstring("| FlashAttention-3 FP8, codes given | 800 | 800 |"));
  CHECK_THAT(text, ContainsSubstring("| 01_naive_attention | 50.0 | out of memory |"));

  results.points.back().shape.shape.Hkv /= 4;
  CHECK(results.own_section() == "flash_attention_3_groups");
  results.points.back().shape.mask = workbook::mask_of("window=64,0").value();
  CHECK(results.own_section() == "flash_attention_3_windows");
  const std::string page = workbook::book::read_file(std::string(WORKBOOK_SOURCE) + "/notes/results.md");
  for (const char* section : {"flash_attention_3", "flash_attention_3_groups", "flash_attention_3_windows"})
    CHECK_THAT(publish(page, "notes/results.md", {{section, "the section\n"}}), ContainsSubstring("the section\n"));
}

TEST_CASE("only the text between the markers is replaced, and a second run gives the same page") {
  const std::string page =
      "# Results\n\nAbove.\n<!-- BEGIN a -->\nold\n<!-- END a -->\nBetween.\n<!-- BEGIN b -->\n<!-- END b "
      "-->\nBelow.\n";
  const std::string published = publish(page, "notes/results.md", {{"a", "new\n"}, {"b", "| table |\n"}});
  CHECK(published ==
        "# Results\n\nAbove.\n<!-- BEGIN a -->\nnew\n<!-- END a -->\nBetween.\n<!-- BEGIN b -->\n| table |\n"
        "<!-- END b -->\nBelow.\n");
  CHECK(publish(published, "notes/results.md", {{"a", "new\n"}, {"b", "| table |\n"}}) == published);
}

TEST_CASE("a page without markers is refused by name") {
  const auto refused = [](const std::string& page) {
    try {
      publish(page, "notes/results.md", {{"a", "new\n"}});
    } catch (const ResultsError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(refused("nothing\n") == "notes/results.md: the line <!-- BEGIN a --> is missing");
  CHECK(refused("<!-- BEGIN a -->\n") == "notes/results.md: the line <!-- END a --> is missing");
  CHECK(refused("<!-- BEGIN a -->\n<!-- BEGIN a -->\n<!-- END a -->\n") ==
        "notes/results.md: the line <!-- BEGIN a --> occurs twice");
  CHECK_THAT(refused("<!-- END a -->\n<!-- BEGIN a -->\n"), ContainsSubstring("precedes its BEGIN"));
}

TEST_CASE("notes/results.md has markers for every section") {
  const std::string page = workbook::book::read_file(std::string(WORKBOOK_SOURCE) + "/notes/results.md");
  const std::string published = publish(page, "notes/results.md", page_sections(made_up_results(), {}, {}, "figures"));
  CHECK_THAT(published, ContainsSubstring("Imagined GPU"));
}
