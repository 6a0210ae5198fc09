#include "common/book/combine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "common/book/markers.hpp"

namespace workbook::book {
namespace {

/// A part of a file: the body of a function with its braces, or the text between two bodies.
struct Part {
  std::string text;
  bool is_body = false;
  bool may_be_constant = false;  ///< the body of a constexpr function, which a constant expression may evaluate
};

bool in_word(char c) {
  return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool has_word(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos; at = text.find(word, at + 1)) {
    const std::size_t end = at + word.size();
    if ((at == 0 || !in_word(text[at - 1])) && (end == text.size() || !in_word(text[end]))) return true;
  }
  return false;
}

/// Divides a file into parts. Braces are matched in a copy without comments, literals and directives.
class PartsReader {
 public:
  explicit PartsReader(const std::string& text) : text_(text), code_(code_at_its_positions(text)) {
    for (std::size_t line = 0; line < code_.size(); line = end_of_line(line) + 1) {
      const std::size_t first = code_.find_first_not_of(" \t", line);
      if (first != std::string::npos && code_[first] == '#')
        std::fill(code_.begin() + std::ptrdiff_t(line), code_.begin() + std::ptrdiff_t(end_of_line(line)), ' ');
    }
  }

  std::vector<Part> read() {
    int parentheses = 0;
    for (std::size_t at = 0; at < code_.size(); ++at) {
      const char c = code_[at];
      if (c == '(' || c == '[') ++parentheses;
      if (c == ')' || c == ']') --parentheses;
      if (parentheses == 0 && (c == ';' || c == '}')) declaration_ = at + 1;
      if (c != '{') continue;
      const std::string_view head = std::string_view(code_).substr(declaration_, at - declaration_);
      if (parentheses == 0 && is_scope(head)) {
        declaration_ = at + 1;
        continue;
      }
      const std::size_t end = closing_brace(at) + 1;
      if (parentheses == 0 && is_function(head)) {
        add_body(at, end, has_word(head, "constexpr"));
        declaration_ = end;
      }
      at = end - 1;
    }
    parts_.push_back({text_.substr(done_)});
    return std::move(parts_);
  }

 private:
  std::size_t end_of_line(std::size_t at) const { return std::min(code_.find('\n', at), code_.size()); }

  std::size_t closing_brace(std::size_t open) const {
    int depth = 0;
    for (std::size_t at = open; at < code_.size(); ++at) {
      depth += code_[at] == '{' ? 1 : code_[at] == '}' ? -1 : 0;
      if (depth == 0) return at;
    }
    return code_.size() - 1;
  }

  /// A declaration without `template <…>`.
  static std::string_view without_template(std::string_view head) {
    head.remove_prefix(std::min(head.find_first_not_of(" \t\n"), head.size()));
    while (head.starts_with("template")) {
      std::size_t at = head.find('<');
      for (int depth = 0; at < head.size(); ++at) {
        depth += head[at] == '<' ? 1 : head[at] == '>' ? -1 : 0;
        if (depth == 0) break;
      }
      head.remove_prefix(std::min(at + 1, head.size()));
      head.remove_prefix(std::min(head.find_first_not_of(" \t\n"), head.size()));
    }
    return head;
  }
  static bool is_class(std::string_view head) {
    head = without_template(head);
    const std::string_view first = head.substr(0, head.find_first_of(" \t\n"));
    return first == "struct" || first == "class" || first == "union";
  }
  /// A namespace, or the members of a class.
  static bool is_scope(std::string_view head) {
    return has_word(head, "namespace") || has_word(head, "extern") || is_class(head);
  }
  /// Neither an initialiser, which has no parameters or follows an equals sign, nor an enumeration.
  static bool is_function(std::string_view head) {
    head = without_template(head);
    int parentheses = 0;
    bool has_parameters = false;
    for (const char c : head) {
      if (c == '(') ++parentheses, has_parameters = true;
      if (c == ')') --parentheses;
      if (c == '=' && parentheses == 0 && !has_word(head, "operator")) return false;
    }
    return has_parameters;
  }

  void add_body(std::size_t begin, std::size_t end, bool may_be_constant) {
    parts_.push_back({text_.substr(done_, begin - done_)});
    parts_.push_back({text_.substr(begin, end - begin), true, may_be_constant});
    done_ = end;
  }

  const std::string& text_;
  std::string code_;
  std::size_t declaration_ = 0;  ///< where the declaration begins that is being read
  std::size_t done_ = 0;
  std::vector<Part> parts_;
};

/// The other bodies that versions have, by the part's number.
using Bodies = std::map<std::size_t, std::vector<std::pair<int, std::string>>>;

/// The bodies in which a file differs from the base's; nothing if it differs elsewhere.
std::optional<std::map<std::size_t, std::string>> changed_bodies(const std::vector<Part>& base,
                                                                 const std::string& text) {
  const std::vector<Part> parts = PartsReader(text).read();
  if (parts.size() != base.size()) return {};
  std::map<std::size_t, std::string> changed;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].text == base[i].text) continue;
    if (!base[i].is_body || base[i].may_be_constant) return {};
    changed[i] = parts[i].text;
  }
  return changed;
}

/// A file with all bodies. Its #line directives keep the combined file's name, except for versions with a `naming`.
std::string joined(const std::string& name, const std::vector<Part>& parts, const Bodies& bodies,
                   const std::string& naming) {
  const std::string own = naming.empty() ? "" : fmt::format(" \"{}\"", name);
  if (bodies.empty()) {
    std::string text;
    for (const Part& part : parts) text += part.text;
    return text;
  }
  std::string text = "#include \"common/cuda/version.hpp\"\n#line 1\n";
  int line = 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const auto others = bodies.find(i);
    if (others == bodies.end()) {
      text += parts[i].text;
    } else {
      text += "{\nswitch (workbook::version()) {\n";
      for (const auto& [number, body] : others->second)
        text += fmt::format("case {}:\n#line {}{}\n{} break;\n", number, line,
                            naming.empty() ? "" : fmt::format(" \"{}{}\"", naming, number), body);
      text += fmt::format("default:\n#line {}{}\n{}\n}}\n}}", line, own, parts[i].text);
    }
    line += int(std::ranges::count(parts[i].text, '\n'));
    if (others != bodies.end()) text += fmt::format("\n#line {}{}\n", line, own);
  }
  return text;
}

}  // namespace

Combined combine(const Files& base, const std::map<int, Files>& versions, const std::string& naming) {
  std::map<std::string, std::vector<Part>> parts;
  for (const auto& [name, text] : base) parts[name] = PartsReader(text).read();
  Combined combined;
  std::map<std::string, Bodies> bodies;
  for (const auto& [number, files] : versions) {
    std::map<std::string, std::map<std::size_t, std::string>> changed;
    for (const auto& [name, text] : files) {
      if (text == base.at(name)) continue;
      auto of_file = changed_bodies(parts.at(name), text);
      if (!of_file) combined.apart.insert(number);
      if (of_file) changed[name] = std::move(*of_file);
    }
    if (combined.apart.contains(number)) continue;
    for (auto& [name, of_file] : changed)
      for (auto& [part, body] : of_file) bodies[name][part].emplace_back(number, std::move(body));
  }
  for (const auto& [name, of_file] : parts) combined.files[name] = joined(name, of_file, bodies[name], naming);
  return combined;
}

}  // namespace workbook::book
