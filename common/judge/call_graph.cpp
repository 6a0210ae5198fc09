#include "common/judge/call_graph.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <sstream>

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
  const auto calls = std::filesystem::path(object).replace_extension(".ci");
  if (!std::filesystem::exists(calls) || !std::filesystem::exists(object)) return "";
  std::string text = book::read_file(calls);
  for (const auto& [from, to] : references(object))
    text += fmt::format("edge: {{ sourcename: \"{}\" targetname: \"{}\" }}\n", from, to);
  return text;
}

void CallGraph::add(const std::string& text) {
  // node: { title: "_Z1fv" label: "int f()\nfile.cu:5:28" }; a function that is defined elsewhere also has a shape.
  static const std::regex node(R"rx(node: \{ title: "([^"]*)" label: ".*\\n([^"\\]*):(\d+):\d+" \})rx");
  static const std::regex edge(R"rx(edge: \{ sourcename: "([^"]*)" targetname: "([^"]*)".*)rx");
  std::istringstream lines(text);
  std::smatch found;
  for (std::string line; std::getline(lines, line);) {
    if (line.size() > 100000)
      continue;  // a name without end; if its function is skipped, its exercise is judged on the whole chapter
    // A function with internal linkage has its file's name as a prefix.
    const auto symbol = [](const std::string& name) { return name.substr(name.rfind(':') + 1); };
    if (line.starts_with("edge") && std::regex_match(line, found, edge))
      calls_[symbol(found[1])].insert(symbol(found[2]));
    if (line.starts_with("node") && std::regex_match(line, found, node))
      places_[symbol(found[1])] = {found[2], std::atoi(found[3].str().c_str())};
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

std::set<std::string> CallGraph::functions_of(const std::string& file, const book::Region& region) const {
  // The function that begins last before the region holds it, unless functions begin in the region itself.
  int last = 0;
  const auto is_here = [&](const Place& place) { return place.file == file || place.file.ends_with("/" + file); };
  for (const auto& [name, place] : places_)
    if (is_here(place) && place.line < region.begin_line) last = std::max(last, place.line);
  std::set<std::string> outer, inner;
  for (const auto& [name, place] : places_) {
    if (!is_here(place)) continue;
    if (place.line == last) outer.insert(name);
    const bool local = name.find("_ZZ") != std::string::npos;  // a lambda, or a member of a local class
    if (place.line > region.begin_line && place.line < region.end_line && !local) inner.insert(name);
  }
  return inner.empty() ? outer : inner;
}

std::set<std::string> calls_of_others(const CallGraph& book, const CallGraph& own,
                                      const std::map<std::string, book::MarkedFile>& files,
                                      const std::set<std::string>& open) {
  std::map<std::string, std::set<std::string>> functions;
  for (const auto& [file, text] : files)
    for (const book::Region& region : text.regions)
      if (open.contains(region.id)) functions[region.id] = book.functions_of(file, region);
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
