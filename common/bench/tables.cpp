#include "common/bench/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <set>

#include "common/book/text.hpp"

namespace workbook::bench {
namespace {

using book::bytes_text;

/// Three significant digits, without an exponent from 0.001 on: "0.00123", "56.2", "1840".
std::string three_digits(double value) {
  if (value >= 100) return fmt::format("{:.0f}", value);
  if (value >= 10) return fmt::format("{:.1f}", value);
  if (value >= 1) return fmt::format("{:.2f}", value);
  return value >= 0.001 ? fmt::format("{:.3g}", value) : fmt::format("{:.1e}", value);
}

std::string time_text(double seconds) {
  return seconds >= 1      ? three_digits(seconds) + " s"
         : seconds >= 1e-3 ? three_digits(seconds * 1e3) + " ms"
                           : three_digits(seconds * 1e6) + " us";
}

/// Half the range from the 10th to the 90th percentile, relative to the median.
std::string spread_text(const Times& times) {
  if (times.runs == 1) return "-";
  return fmt::format("{:.1f}%", 50 * (times.high - times.low) / times.median);
}

/// The run's command and the values of these keys of its environment.
std::string run_text(const Results& results, const std::vector<std::string>& keys) {
  std::string text;
  if (const auto command = results.environment.find("command"); command != results.environment.end())
    text += fmt::format("```sh\n{}\n```\n\n", command->second);
  for (const std::string& key : keys)
    if (const auto value = results.environment.find(key); value != results.environment.end())
      text += fmt::format("{} {}, ", key, value->second);
  return text;
}

std::string percent(std::optional<double> part, std::optional<double> whole) {
  return part && whole ? fmt::format("{:.0f}%", 100 * *part / *whole) : "-";
}

std::optional<double> bandwidth(const Point& p) {
  if (!p.unique_bytes || !p.times || p.backend != Backend::cuda) return std::nullopt;
  return *p.unique_bytes / p.times->median;
}

// Columns are as wide as their contents; the first `left` of them are left-aligned.
std::string columns(const std::vector<std::vector<std::string>>& rows, std::size_t left) {
  std::vector<std::size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (std::size_t i = 0; i < row.size(); ++i) width[i] = std::max(width[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t i = 0; i < row.size(); ++i) {
      line += i < left ? fmt::format("{:<{}}  ", row[i], width[i]) : fmt::format("{:>{}}  ", row[i], width[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
  }
  return text;
}

std::string markdown(const std::vector<std::vector<std::string>>& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    text += fmt::format("| {} |\n", fmt::join(rows[i], " | "));
    if (i != 0) continue;
    text += "|";
    for (std::size_t column = 0; column < rows[i].size(); ++column) text += column == 0 ? "---|" : "---:|";
    text += '\n';
  }
  return text;
}

/// Names of the stages and peers with a point on the GPU, with or without a time.
std::vector<std::string> all_names(const Results& results) {
  std::vector<std::string> names;
  for (const Point& p : results.points) {
    if (p.backend == Backend::cuda && p.kind != "step" && std::find(names.begin(), names.end(), p.name) == names.end())
      names.push_back(p.name);
  }
  return names;
}

std::string environment_section(const Results& results) {
  std::vector<std::vector<std::string>> rows{{"", ""}};
  for (const auto& [key, value] : results.environment) {
    if (key != "command") rows.push_back({key, value});
  }
  const Roofs& roofs = results.roofs;
  const auto add = [&](const std::string& name, std::optional<double> value, const std::string& unit) {
    rows.push_back({name, value ? fmt::format("{} {}", three_digits(*value / 1e12), unit) : "not known"});
  };
  add("dense fp16 peak, data sheet", roofs.peak_flops, "TFLOP/s");
  add("fp16 matrix product, measured in this run", roofs.product_flops, "TFLOP/s");
  add("copy in device memory, read + written, measured in this run", roofs.copy_bytes, "TB/s");
  add("reading from L2, measured in this run", roofs.l2_bytes, "TB/s");
  std::string text;
  const auto command = results.environment.find("command");
  if (command != results.environment.end()) text += fmt::format("```sh\n{}\n```\n\n", command->second);
  text += markdown(rows);
  if (!results.skipped.empty()) text += "\nNot measured:\n\n";
  for (const std::string& reason : results.skipped) text += fmt::format("- {}\n", reason);
  return text;
}

/// One row per name and one column per N with `cell` of that point; empty if there is no point.
std::string over_lengths(const Results& results, const std::string& title, const std::string& pass, const Mask& mask,
                         std::int64_t d, const std::function<std::string(const Point&)>& cell) {
  std::vector<std::vector<std::string>> rows{{title}};
  for (const std::int64_t N : results.lengths()) rows[0].push_back(fmt::format("N = {}", N));
  const Point* first = nullptr;
  for (const std::string& name : all_names(results)) {
    std::vector<std::string> row{name};
    bool any = false;
    for (const std::int64_t N : results.lengths()) {
      const Point* p = results.find(name, pass, mask, N, d);
      any = any || p != nullptr;
      if (first == nullptr) first = p;
      row.push_back(p == nullptr ? "" : cell(*p));
    }
    if (any) rows.push_back(row);
  }
  if (first == nullptr) return "";
  const std::int64_t group = first->shape.H() / first->shape.Hkv();
  return fmt::format("### {}, d = {}, B·N = {}, H = {}{}\n\n{}\n", pass_text(pass, mask), d,
                     first->shape.B() * first->shape.N(), first->shape.H(),
                     group == 1 ? "" : fmt::format(", groups of {}", group), markdown(rows));
}

std::string speed_section(const Results& results) {
  std::string text;
  for (const char* pass : {"forward", "backward"}) {
    for (const auto& [mask_name, mask] : all_masks()) {
      for (const std::int64_t d : results.head_dims()) {
        text += over_lengths(results, "TFLOP/s", pass, mask, d, [](const Point& p) {
          return p.times ? three_digits(flops_per_second(p) / 1e12) : p.result;
        });
      }
    }
  }
  return text;
}

std::vector<std::string> detail_header() {
  return {"",       "time", "spread",  "TFLOP/s",  "of peak",     "of matmul",
          "of FA2", "GB/s", "of copy", "tokens/s", "extra memory"};
}
constexpr const char* kFA2 = "SDPA FlashAttention-2";

/// All figures for one N.
std::string details_section(const Results& results) {
  const std::vector<std::int64_t> lengths = results.lengths();
  if (lengths.empty()) return "";
  std::int64_t N = lengths.front();
  for (const std::int64_t length : lengths) {
    if (length <= 8192) N = length;
  }
  std::string text;
  for (const char* pass : {"forward", "backward"}) {
    for (const auto& [mask_name, mask] : all_masks()) {
      for (const std::int64_t d : results.head_dims()) {
        std::vector<std::vector<std::string>> rows{detail_header()};
        const Point* fa2 = results.find(kFA2, pass, mask, N, d);
        for (const std::string& name : all_names(results)) {
          const Point* p = results.find(name, pass, mask, N, d);
          if (p == nullptr) continue;
          if (!p->times) {
            rows.push_back({name, p->result, "", "", "", "", "", "", "", "", ""});
            continue;
          }
          const double speed = flops_per_second(*p);
          const auto width = bandwidth(*p);
          rows.push_back({name, time_text(p->times->median), spread_text(*p->times), three_digits(speed / 1e12),
                          percent(speed, results.roofs.peak_flops), percent(speed, results.roofs.product_flops),
                          fa2 && fa2->times ? fmt::format("{:.2f}", speed / flops_per_second(*fa2)) : "-",
                          width ? three_digits(*width / 1e9) : "-", percent(width, results.roofs.copy_bytes),
                          fmt::format("{:.3g}", tokens_per_second(*p)),
                          p->extra_bytes ? bytes_text(*p->extra_bytes) : "-"});
        }
        if (rows.size() == 1) continue;
        text += fmt::format("### {}, d = {}, N = {}\n\n{}\n", pass_text(pass, mask), d, N, markdown(rows));
      }
    }
  }
  return text;
}

std::string memory_section(const Results& results) {
  std::string text;
  if (results.head_dims().empty()) return text;
  for (const char* pass : {"forward", "backward"}) {
    text += over_lengths(results, "extra memory", pass, Mask::none, results.head_dims().front(), [](const Point& p) {
      return !p.ok() ? p.result : p.extra_bytes ? bytes_text(*p.extra_bytes) : "-";
    });
  }
  return text;
}

/// "05_causal: forward, speed over that of SDPA FlashAttention-2".
std::string goal_text(const book::Chapter& chapter, const book::Goal& goal) {
  if (goal.over == book::Goal::kUnmasked)
    return fmt::format("{}: {}, time without the mask over time with it", chapter.name(), chapter.pass);
  return fmt::format("{}: {}, speed over that of {}", chapter.name(), pass_text(chapter.pass, goal.mask), goal.over);
}

/// The smallest of the ratios that a goal compares, and the compared N; none if nothing was timed.
struct Reached {
  std::optional<double> least;
  std::vector<std::int64_t> lengths;
};
Reached reached_of(const Results& results, const book::Chapter& chapter, const book::Goal& goal) {
  Reached reached;
  const bool itself = goal.over == book::Goal::kUnmasked;
  for (const std::int64_t N : results.lengths()) {
    if (N < goal.least_N || (goal.most_N != 0 && N > goal.most_N)) continue;
    const Point* stage = results.find(chapter.name(), chapter.pass, goal.mask, N, goal.d);
    const Point* other =
        results.find(itself ? chapter.name() : goal.over, chapter.pass, itself ? Mask::none : goal.mask, N, goal.d);
    if (stage == nullptr || other == nullptr || !stage->times || !other->times) continue;
    const double speed = other->times->median / stage->times->median;
    reached.least = std::min(reached.least.value_or(speed), speed);
    reached.lengths.push_back(N);
  }
  return reached;
}

std::string goals_section(const Results& results, const std::vector<book::Chapter>& chapters) {
  std::vector<std::vector<std::string>> rows{{"", "d", "N", "must", "hoped for", "reached", ""}};
  for (const book::Chapter& chapter : chapters) {
    for (const book::Goal& goal : chapter.goals) {
      const Reached reached = reached_of(results, chapter, goal);
      if (!reached.least) continue;
      rows.push_back({goal_text(chapter, goal), fmt::format("{}", goal.d),
                      fmt::format("{}", fmt::join(reached.lengths, ", ")), fmt::format("{:g}", goal.must),
                      fmt::format("{:g}", goal.hoped), fmt::format("{:.2f}", *reached.least),
                      *reached.least >= goal.hoped  ? "as hoped for"
                      : *reached.least >= goal.must ? "reached"
                                                    : "**missed**"});
    }
  }
  if (rows.size() == 1) return "None of the compared stages and peers were timed in this run.\n";
  return markdown(rows) + "\nFor several N, the smallest value is shown.\n";
}

std::string profile_section(const Results& results) {
  std::set<std::string> metrics;
  for (const Point& p : results.points) {
    for (const auto& [name, value] : p.profile) metrics.insert(name);
  }
  if (metrics.empty()) return "This run was made without `--profile`.\n";
  std::string text;
  for (const Point& p : results.points) {
    if (p.profile.empty()) continue;
    std::vector<std::vector<std::string>> rows{{"metric", "value"}};
    for (const auto& [name, value] : p.profile) {
      rows.push_back({"`" + name + "`", name.find(".pct") != std::string::npos || name.ends_with("pct")
                                            ? fmt::format("{:.1f} %", value)
                                            : fmt::format("{:.4g}", value)});
    }
    text += fmt::format("### {}, {}, d = {}, N = {}\n\n{}\n", p.name, pass_text(p.shape.pass, p.shape.mask),
                        p.shape.d(), p.shape.N(), markdown(rows));
  }
  return text;
}

std::string figures_section(const std::vector<Figure>& figures, const std::string& folder) {
  std::string text;
  for (const Figure& figure : figures) {
    text += fmt::format("![{1}]({0}/{2}.svg)\n\n{1}\n\n", folder, figure.caption, figure.name);
  }
  return text.empty() ? "None.\n" : text;
}

/// K and V in 16 bits.
double bytes_of_cache(const workbook::Shape& shape) {
  return 4 * double(shape.B * shape.Hkv * shape.Nk * shape.d);
}
/// "21_paged_cache, pages of 16".
std::string decoding_name(const Point& p) {
  return p.shape.mask.page_size == 0 ? p.name : fmt::format("{}, pages of {}", p.name, p.shape.mask.page_size);
}
/// One row per cache and one column per name, with cell(point, the row's point of `beside` or null).
std::string over_caches(const Results& results, const std::string& beside,
                        const std::function<std::string(const Point&, const Point*)>& cell) {
  std::vector<std::string> names;
  std::vector<workbook::Shape> caches;
  const auto add = [](auto& to, const auto& value) {
    if (std::ranges::find(to, value) == to.end()) to.push_back(value);
  };
  for (const Point& p : results.points) {
    if (p.backend != Backend::cuda || p.kind == "step") continue;
    add(names, decoding_name(p));
    add(caches, p.shape.shape);
  }
  const auto find = [&](const std::string& name, const workbook::Shape& cache) {
    const auto found = std::ranges::find_if(
        results.points, [&](const Point& p) { return decoding_name(p) == name && p.shape.shape == cache; });
    return found == results.points.end() ? nullptr : &*found;
  };
  std::vector<std::vector<std::string>> rows{{"d, group, B, Nk", "K and V"}};
  rows[0].insert(rows[0].end(), names.begin(), names.end());
  for (const workbook::Shape& cache : caches) {
    rows.push_back({fmt::format("{}, {}, {}, {}", cache.d, cache.H / cache.Hkv, cache.B, cache.Nk),
                    fmt::format("{} MiB", three_digits(bytes_of_cache(cache) / (1 << 20)))});
    for (const std::string& name : names) {
      const Point* p = find(name, cache);
      rows.back().push_back(p == nullptr ? "" : p->times ? cell(*p, find(beside, cache)) : p->result);
    }
  }
  return markdown(rows);
}

std::string decoding_section(const Results& results) {
  std::string text = run_text(results, {"GPU", "date", "driver", "CUDA", "PyTorch", "cuDNN", kFlashAttention3});
  const auto& copy = results.roofs.copy_bytes;
  text += fmt::format("copy in device memory, read + written, {}.\n\n",
                      copy ? three_digits(*copy / 1e12) + " TB/s" : "not measured");
  text += "### Decoding: time in µs\n\n" +
          over_caches(results, "", [](const Point& p, const Point*) { return three_digits(p.times->median * 1e6); });
  for (const std::string beside : {"SDPA cuDNN", kFlashAttention3}) {
    if (beside != "SDPA cuDNN" && std::ranges::count(all_names(results), beside) == 0) continue;
    text += fmt::format("\n### Decoding: speed over that of {}\n\n", beside) +
            over_caches(results, beside, [](const Point& p, const Point* other) {
              return other && other->times ? fmt::format("{:.2f}", other->times->median / p.times->median) : "-";
            });
  }
  text += "\n### Decoding: bytes of K and V over the time, relative to the copy\n\n" +
          over_caches(results, "", [&](const Point& p, const Point*) {
            const double speed = bytes_of_cache(p.shape.shape) / p.times->median;
            return copy ? fmt::format("{:.2f}", speed / *copy) : "-";
          });
  return text;
}

/// The speed of all, and in brackets its ratio to that of FlashAttention-3 (for FP8: of its FP8 kernel).
std::string flash_attention_3_section(const Results& results) {
  std::vector<Mask> masks;
  double spread = 0;
  for (const Point& p : results.points) {
    if (std::ranges::find(masks, p.shape.mask) == masks.end()) masks.push_back(p.shape.mask);
    if (p.backend == Backend::cuda && p.times)
      spread = std::max(spread, (p.times->high - p.times->low) / 2 / p.times->median);
  }
  std::string text = run_text(results, {"GPU", "date", "driver", "CUDA", "PyTorch", kFlashAttention3});
  text += fmt::format("spread of the times at most {:.1f} %.\n\n", 100 * spread);
  const auto cell = [&](const Point& p) {
    if (!p.times) return p.result;
    const std::string speed = three_digits(flops_per_second(p) / 1e12);
    const std::string beside = p.element == float8 ? kFlashAttention3FP8 : kFlashAttention3;
    const Point* other = results.find(beside, p.shape.pass, p.shape.mask, p.shape.N(), p.shape.d());
    if (p.name == beside || other == nullptr || !other->times) return speed;
    return fmt::format("{} ({:.2f})", speed, other->times->median / p.times->median);
  };
  for (const char* pass : {"forward", "backward"})
    for (const Mask& mask : masks)
      for (const std::int64_t d : results.head_dims())
        text += over_lengths(results, "TFLOP/s (over FlashAttention-3)", pass, mask, d, cell);
  return text;
}

/// Prose is not wrapped; a section ends with one newline.
std::string trimmed(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text + '\n';
}

/// N, or Nq and N if they differ; B·H, and the number of query heads per K/V head if it is not 1.
std::string length_text(const Shape& s) {
  return s.Nq() == s.N() ? fmt::format("{}", s.N()) : fmt::format("{} by {}", s.Nq(), s.N());
}
std::string heads_text(const Shape& s) {
  return s.H() == s.Hkv() ? fmt::format("{}", s.B() * s.H()) : fmt::format("{} / {}", s.B() * s.H(), s.H() / s.Hkv());
}

/// The mask's name, with one length for requests that all have it: "none+cache=4096 each+pages=16,1".
std::string mask_text(const Mask& mask) {
  const std::vector<std::int64_t>& lengths = mask.cache;
  if (lengths.size() < 2 || std::ranges::count(lengths, lengths[0]) != std::ptrdiff_t(lengths.size()))
    return mask.name();
  Mask one = mask;
  one.cache.resize(1);
  const std::string cache = fmt::format("cache={}", lengths[0]);
  std::string text = one.name();
  return text.replace(text.find(cache), cache.size(), cache + " each");
}

}  // namespace

std::string terminal_table(const Results& results) {
  // Without a GPU, speeds are in GFLOP/s.
  const double unit = results.on_gpu() ? 1e12 : 1e9;
  std::vector<std::vector<std::string>> rows{{"stage", "on", "pass", "mask", "d", "N", "B*H", "time", "spread",
                                              results.on_gpu() ? "TFLOP/s" : "GFLOP/s", "of peak", "of matmul", "GB/s",
                                              "of copy", "tokens/s", "extra memory", "requested"}};
  std::string messages;
  for (const Point& p : results.points) {
    const Shape& s = p.shape;
    std::vector<std::string> row{p.name,         name(p.backend), s.pass, mask_text(s.mask), fmt::format("{}", s.d()),
                                 length_text(s), heads_text(s)};
    if (p.times) {
      const bool gpu = p.backend == Backend::cuda, sim = p.backend == Backend::sim;
      const auto speed = sim ? std::nullopt : std::optional(flops_per_second(p));
      const auto width = bandwidth(p);
      row.insert(
          row.end(),
          {time_text(p.times->median), spread_text(*p.times), speed ? three_digits(*speed / unit) : "-",
           gpu ? percent(speed, results.roofs.peak_flops) : "-",
           gpu ? percent(speed, results.roofs.product_flops) : "-", width ? three_digits(*width / 1e9) : "-",
           percent(width, results.roofs.copy_bytes), sim ? "-" : fmt::format("{:.3g}", tokens_per_second(p)),
           p.extra_bytes ? bytes_text(*p.extra_bytes) : "-", p.requested_bytes ? bytes_text(*p.requested_bytes) : "-"});
    } else {
      row.push_back(p.result);
    }
    rows.push_back(row);
    if (p.result != "ok" && !p.message.empty())
      messages += fmt::format("{}, {} N={} d={}: {}\n", p.name, s.pass, s.N(), s.d(), p.message);
  }
  std::string text = columns(rows, 4);
  if (!messages.empty()) text += '\n' + messages;
  return text;
}

std::map<std::string, std::string> page_sections(const Results& results, const std::vector<book::Chapter>& chapters,
                                                 const std::vector<Figure>& figures, const std::string& figure_folder) {
  if (const std::string own = results.own_section(); !own.empty())
    return {{own, trimmed(own == "decoding" ? decoding_section(results) : flash_attention_3_section(results))}};
  std::map<std::string, std::string> sections{{"environment", environment_section(results)},
                                              {"goals", goals_section(results, chapters)},
                                              {"speed", speed_section(results)},
                                              {"details", details_section(results)},
                                              {"memory", memory_section(results)},
                                              {"profile", profile_section(results)},
                                              {"figures", figures_section(figures, figure_folder)}};
  for (auto& [name, text] : sections) text = trimmed(text);
  return sections;
}

std::string publish(const std::string& page, const std::string& page_name,
                    const std::map<std::string, std::string>& sections) {
  std::string text = page;
  for (const auto& [name, section] : sections) {
    const std::string begin = fmt::format("<!-- BEGIN {} -->\n", name), end = fmt::format("<!-- END {} -->", name);
    const auto only = [&](const std::string& marker) {
      const std::size_t at = text.find(marker);
      const std::string shown = marker.substr(0, marker.find('\n'));
      if (at == std::string::npos) throw ResultsError(fmt::format("{}: the line {} is missing", page_name, shown));
      if (text.find(marker, at + 1) != std::string::npos)
        throw ResultsError(fmt::format("{}: the line {} occurs twice", page_name, shown));
      return at;
    };
    const std::size_t from = only(begin) + begin.size(), to = only(end);
    if (to < from) throw ResultsError(fmt::format("{}: {} precedes its BEGIN", page_name, end));
    text.replace(from, to - from, section);
  }
  return text;
}

}  // namespace workbook::bench
