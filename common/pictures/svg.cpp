#include "common/pictures/svg.hpp"

#include <fmt/format.h>

#include "common/book/text.hpp"

namespace workbook::pictures {
namespace {

constexpr double kMargin = 10;  // around the drawing

/// "12", "12.5": a tenth of a pixel is enough, and the same on every machine.
std::string px(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

struct Palette {
  const char *page, *ink, *soft, *rule, *faint;
  const char *pale[kColors], *strong[kColors];
};
constexpr Palette kLight{
    "#ffffff",
    "#1c2024",
    "#57606a",
    "#8b949e",
    "#eef1f4",
    {"#cfe3fa", "#fde0b8", "#cdeccf", "#e3d9f7", "#f9d2d4", "#c9ecec", "#ece6b4", "#dfe2e6"},
    {"#1f66b3", "#b45f06", "#1f7a34", "#6b4bb5", "#b3261e", "#0f7676", "#7d6f00", "#57606a"},
};
constexpr Palette kDark{
    "#0d1117",
    "#e6edf3",
    "#9aa4ae",
    "#6e7681",
    "#1b2129",
    {"#163a63", "#5a3a0a", "#174a22", "#3d2c6b", "#6a2426", "#124848", "#4a4408", "#333a42"},
    {"#6cb0f5", "#f0a94e", "#5fcf78", "#b79cf2", "#ff8a80", "#4fd0d0", "#d8c94a", "#9aa4ae"},
};

std::string rules(const Palette& p) {
  std::string css = fmt::format(".page{{fill:{}}}.faint{{fill:{}}}text{{fill:{}}}.soft{{fill:{}}}.rule{{stroke:{}}}\n",
                                p.page, p.faint, p.ink, p.soft, p.rule);
  for (int i = 0; i < kColors; ++i)
    css += fmt::format(".p{0}{{fill:{1}}}.s{0}{{stroke:{2}}}.k{0}{{fill:{2}}}\n", i, p.pale[i], p.strong[i]);
  return css;
}

std::string classes(Words words) {
  std::string names;
  const auto add = [&](const char* name) { names += names.empty() ? name : std::string(" ") + name; };
  if (words.size == Words::Size::small) add("small");
  if (words.size == Words::Size::tiny) add("tiny");
  if (words.anchor == Words::Anchor::middle) add("mid");
  if (words.anchor == Words::Anchor::end) add("end");
  if (words.bold) add("bold");
  if (words.soft) add("soft");
  return names;
}

std::string points_text(const std::vector<std::pair<double, double>>& points) {
  std::string text;
  for (const auto& [x, y] : points) text += fmt::format("{}{},{}", text.empty() ? "" : " ", px(x), px(y));
  return text;
}

}  // namespace

void Svg::rectangle(double x, double y, double width, double height, Shape shape, double round) {
  std::string names;
  switch (shape.fill) {
    case Fill::none:
      names = "none";
      break;
    case Fill::faint:
      names = "faint";
      break;
    case Fill::numbered:
      names = fmt::format("p{}", shape.color);
      break;
  }
  if (shape.edge) names += fmt::format(" s{}", shape.color);
  if (shape.outline) names += " rule";
  body_ += fmt::format("<rect class=\"{}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"{}/>\n", names, px(x), px(y),
                       px(width), px(height), round > 0 ? fmt::format(" rx=\"{}\"", px(round)) : "");
}

void Svg::line(double x1, double y1, double x2, double y2, Line line, int color) {
  std::string names = color < 0 ? "rule" : fmt::format("s{}", color % kColors);
  if (line == Line::thin) names += " thin";
  if (line == Line::dashed) names += " dashed";
  if (line == Line::strong) names += " wide";
  body_ += fmt::format("<line class=\"{}\" x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"/>\n", names, px(x1), px(y1), px(x2),
                       px(y2));
}

void Svg::curve(const std::vector<std::pair<double, double>>& points, int color, bool dashed) {
  body_ += fmt::format("<polyline class=\"none wide s{}{}\" points=\"{}\"/>\n", color % kColors,
                       dashed ? " dashed" : "", points_text(points));
}

void Svg::area(const std::vector<std::pair<double, double>>& points, double base, int color) {
  if (points.empty()) return;
  auto closed = points;
  closed.emplace_back(points.back().first, base);
  closed.emplace_back(points.front().first, base);
  body_ += fmt::format("<polygon class=\"p{} s{}\" points=\"{}\"/>\n", color % kColors, color % kColors,
                       points_text(closed));
}

void Svg::dot(double x, double y, double radius, int color) {
  body_ +=
      fmt::format("<circle class=\"k{}\" cx=\"{}\" cy=\"{}\" r=\"{}\"/>\n", color % kColors, px(x), px(y), px(radius));
}

void Svg::text(double x, double y, std::string_view text, Words words) {
  const std::string names = classes(words);
  body_ += fmt::format("<text{} x=\"{}\" y=\"{}\">{}</text>\n",
                       names.empty() ? "" : fmt::format(" class=\"{}\"", names), px(x), px(y), book::xml_escaped(text));
}

void Svg::colored(double x, double y, std::string_view text, int color, Words words) {
  std::string names = fmt::format("k{}", color % kColors);
  if (const std::string more = classes(words); !more.empty()) names += " " + more;
  body_ +=
      fmt::format("<text class=\"{}\" x=\"{}\" y=\"{}\">{}</text>\n", names, px(x), px(y), book::xml_escaped(text));
}

std::string Svg::file(double height, std::string_view title, std::string_view description) const {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"-{7} -{7} {0} {1}\" width=\"{0}\" height=\"{1}\" "
      "role=\"img\" "
      "aria-labelledby=\"title desc\">\n<title id=\"title\">{2}</title>\n<desc id=\"desc\">{3}</desc>\n<style>\n"
      "text{{font:14px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif}}"
      ".small{{font-size:12px}}.tiny{{font-size:10px}}.mid{{text-anchor:middle}}.end{{text-anchor:end}}"
      ".bold{{font-weight:600}}"
      ".none{{fill:none}}.thin{{stroke-width:.5}}.wide{{stroke-width:2}}.dashed{{stroke-dasharray:5 4}}\n"
      "{4}@media (prefers-color-scheme:dark){{\n{5}}}\n</style>\n"
      "<rect class=\"page\" x=\"-{7}\" y=\"-{7}\" width=\"{0}\" height=\"{1}\"/>\n{6}</svg>\n",
      px(kWidth + 2 * kMargin), px(height + 2 * kMargin), book::xml_escaped(title), book::xml_escaped(description),
      rules(kLight), rules(kDark), body_, px(kMargin));
}

}  // namespace workbook::pictures
