// A writer of SVG drawings: shapes and texts that say what they are for, coloured by a style of the drawing's own for
// a light and a dark page. Texts stay texts. Knows nothing of what is drawn.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace workbook::pictures {

/// What a shape or a text is for. Of the numbered ones there are `kColors`, apart from each other: Fill's are pale, and
/// texts can be read on them; Ink's are strong.
enum class Fill { none, faint, numbered };
inline constexpr int kColors = 8;

struct Shape {
  Fill fill = Fill::none;
  int color = 0;         ///< of Fill::numbered and of `edge`
  bool edge = false;     ///< outlined in the strong colour of that number
  bool outline = false;  ///< outlined as lines are drawn
};
inline Shape pale(int color) {
  return {Fill::numbered, color % kColors, false, false};
}
/// The same with an edge.
inline Shape tile(int color) {
  return {Fill::numbered, color % kColors, true, false};
}

enum class Line { plain, thin, dashed, strong };

struct Words {
  enum class Size { normal, small, tiny } size = Size::normal;
  enum class Anchor { start, middle, end } anchor = Anchor::start;
  bool bold = false, soft = false;
};
inline constexpr Words kCentered{Words::Size::normal, Words::Anchor::middle, false, false};
inline constexpr Words kSmall{Words::Size::small, Words::Anchor::start, false, false};
inline constexpr Words kSoft{Words::Size::small, Words::Anchor::start, false, true};
inline constexpr Words kHead{Words::Size::normal, Words::Anchor::start, true, false};
constexpr Words anchored(Words words, Words::Anchor anchor) {
  words.anchor = anchor;
  return words;
}
constexpr Words middle(Words words) {
  return anchored(words, Words::Anchor::middle);
}
constexpr Words right(Words words) {
  return anchored(words, Words::Anchor::end);
}
inline constexpr Words kTiny{Words::Size::tiny, Words::Anchor::middle, false, false};

/// A drawing `kWidth` wide; lengths are in pixels of a page on which it is shown in full size.
class Svg {
 public:
  static constexpr double kWidth = 700;

  void rectangle(double x, double y, double width, double height, Shape shape, double round = 0);
  void line(double x1, double y1, double x2, double y2, Line line = Line::plain, int color = -1);
  /// Through all points; `color` as in Shape.
  void curve(const std::vector<std::pair<double, double>>& points, int color, bool dashed = false);
  /// Filled below the points down to `base`.
  void area(const std::vector<std::pair<double, double>>& points, double base, int color);
  void dot(double x, double y, double radius, int color);
  /// `y` is the line that the letters stand on.
  void text(double x, double y, std::string_view text, Words words = {});
  /// A text in the strong colour of that number.
  void colored(double x, double y, std::string_view text, int color, Words words = {});

  /// The file's text: `title` and `description` are what somebody hears who does not see the drawing.
  std::string file(double height, std::string_view title, std::string_view description) const;

 private:
  std::string body_;
};

}  // namespace workbook::pictures
