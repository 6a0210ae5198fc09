#include "common/judge/call_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string_view>

#include "common/book/files.hpp"
#include "common/judge/object.hpp"

namespace workbook::judge {

const std::vector<std::string>& call_graph_flags() {
  // __OPTIMIZE__ is defined as for the answer itself, so that no source can have a branch for this build alone. Answers
  // may not use what else would reveal it (__builtin_constant_p, __builtin_object_size).
  static const std::vector<std::string> flags{"-O0",
                                              "-D__OPTIMIZE__=1",
                                              "-fno-inline",
                                              "-U__NO_INLINE__",
                                              "-fkeep-static-functions",
                                              "-fcallgraph-info",
                                              "-ffunction-sections",
                                              "-fdata-sections",
                                              "-D__forceinline__=inline"};
  return flags;
}

std::string calls_of(const std::filesystem::path& object) {
  constexpr std::uintmax_t most = 64 << 20;
  const auto calls = std::filesystem::path(object).replace_extension(".ci");
  for (const auto& file : {calls, object})
    if (!std::filesystem::exists(file) || std::filesystem::file_size(file) > most) return "";
  std::string text = book::read_file(calls);
  for (const auto& [from, to] : references(object))
    text += fmt::format("edge: {{ sourcename: \"{}\" targetname: \"{}\" }}\n", from, to);
  return text;
}

/// The text in quotes after `before`; empty: none. By hand: the lines are as long as a student's names, and a regular
/// expression takes a stack frame for each character.
static std::string_view quoted(std::string_view line, std::string_view before) {
  const std::size_t at = line.find(before);
  if (at == line.npos) return {};
  line.remove_prefix(at + before.size());
  return line.substr(0, line.find('"'));
}

void CallGraph::add(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    // A function with internal linkage has its file's name as a prefix.
    const auto symbol = [&](std::string_view before) {
      const std::string_view name = quoted(line, before);
      return std::string(name.substr(name.rfind(':') + 1));
    };
    if (line.starts_with("edge: ")) calls_[symbol("sourcename: \"")].insert(symbol("targetname: \""));
    // node: { title: "_Z1fv" label: "int f()\nfile.cu:5:28" }; a function that is defined elsewhere also has a shape.
    if (!line.starts_with("node: ") || !line.ends_with("\" }")) continue;
    const std::string place = line.substr(line.rfind("\\n") + 2);
    const std::size_t column = place.rfind(':'), at = place.rfind(':', column - 1);
    if (column == place.npos || at == place.npos) continue;
    locations_[symbol("title: \"")] = {place.substr(0, at), std::atoi(place.c_str() + at + 1)};
  }
}

std::set<std::string> CallGraph::reached(const std::set<std::string>& from) const {
  std::set<std::string> all;
  std::vector<std::string> next(from.begin(), from.end());
  while (!next.empty()) {
    const auto calls = calls_.find(next.back());
    next.pop_back();
    if (calls == calls_.end()) continue;
    for (const std::string& called : calls->second)
      if (all.insert(called).second) next.push_back(called);
  }
  return all;
}

std::set<std::string> CallGraph::around(const std::set<std::string>& functions) const {
  std::map<std::string, std::set<std::string>> callers;
  for (const auto& [from, calls] : calls_)
    for (const std::string& to : calls) callers[to].insert(from);
  // What runs at the start of a program refers to every operation; so do sections that no code refers to (.eh_frame).
  std::set<std::string> starts;
  const auto is_start = [&](const std::string& name) { return starts.contains(name); };
  for (std::size_t before = 1; before != starts.size();) {
    before = starts.size();
    for (const auto& [name, calls] : calls_) {
      const bool of_compiler = name.find("_sub_I_") != name.npos || name.find("__static_init") != name.npos;
      if (of_compiler || (name.starts_with("section ") && std::ranges::all_of(callers[name], is_start)))
        starts.insert(name);
    }
  }
  std::set<std::string> all = functions;
  std::vector<std::string> next(functions.begin(), functions.end());
  while (!next.empty()) {
    const std::set<std::string> from = callers[next.back()];
    next.pop_back();
    for (const std::string& caller : from)
      if (!is_start(caller) && all.insert(caller).second) next.push_back(caller);
  }
  all.merge(reached(all));
  return all;
}

std::set<std::string> CallGraph::functions_of(const std::string& file, const book::Region& region) const {
  // The function that begins last before the region holds it, unless functions begin in the region itself.
  int last = 0;
  const auto is_here = [&](const Location& place) { return place.file == file || place.file.ends_with("/" + file); };
  for (const auto& [name, place] : locations_)
    if (is_here(place) && place.line < region.begin_line) last = std::max(last, place.line);
  std::set<std::string> outer, inner;
  for (const auto& [name, place] : locations_) {
    if (!is_here(place)) continue;
    if (place.line == last) outer.insert(name);
    const bool local = name.find("_ZZ") != std::string::npos;  // a lambda, or a member of a local class
    if (place.line > region.begin_line && place.line < region.end_line && !local) inner.insert(name);
  }
  return inner.empty() ? outer : inner;
}

/// The functions that hold each exercise of `open`.
static std::map<std::string, std::set<std::string>> holders(const CallGraph& book,
                                                            const std::map<std::string, book::MarkedFile>& files,
                                                            const std::set<std::string>& open) {
  std::map<std::string, std::set<std::string>> functions;
  for (const auto& [file, text] : files)
    for (const book::Region& region : text.regions)
      if (open.contains(region.id)) functions[region.id] = book.functions_of(file, region);
  return functions;
}

std::map<std::string, std::set<std::string>> not_needed(const CallGraph& book,
                                                        const std::map<std::string, book::MarkedFile>& files,
                                                        const std::set<std::string>& open) {
  const auto functions = holders(book, files, open);
  std::map<std::string, std::set<std::string>> found;
  for (const auto& [id, own] : functions) {
    const std::set<std::string> needed = book.around(own);
    for (const auto& [other, held] : functions) {
      const bool apart = std::ranges::none_of(held, [&](const std::string& name) { return needed.contains(name); });
      if (!own.empty() && !held.empty() && apart) found[id].insert(other);
    }
  }
  return found;
}

std::set<std::string> calls_of_others(const CallGraph& book, const CallGraph& own,
                                      const std::map<std::string, book::MarkedFile>& files,
                                      const std::set<std::string>& open) {
  const auto functions = holders(book, files, open);
  std::set<std::string> found;
  for (const auto& [id, from] : functions) {
    const std::set<std::string> before = book.reached(from), now = own.reached(from);
    const bool gone = std::ranges::any_of(from, [&](const std::string& f) { return book.has(f) && !own.has(f); });
    const auto is_new = [&](const std::string& name) { return now.contains(name) && !before.contains(name); };
    bool calls = gone || is_new("__indirect_call");
    for (const auto& [other, held] : functions) calls = calls || (other != id && std::ranges::any_of(held, is_new));
    if (calls) found.insert(id);
  }
  return found;
}

}  // namespace workbook::judge
