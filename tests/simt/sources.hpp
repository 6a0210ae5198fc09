// The sources of the test kernels, for tests that compare a report's line with the comment on it.
#pragma once

#include <fstream>
#include <map>
#include <set>
#include <string>

namespace zoo {

/// The lines of one file with comments `bug: NAME` and `other: NAME`, by name.
struct MarkedLines {
  std::map<std::string, std::set<int>> bug, other;
};

inline MarkedLines marked_lines(const std::string& path) {
  MarkedLines lines;
  std::ifstream file(path);
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    for (const auto& [word, where] : {std::pair{"bug: ", &lines.bug}, std::pair{"other: ", &lines.other}}) {
      for (std::size_t at = line.find(word); at != std::string::npos; at = line.find(word, at + 1)) {
        const std::size_t begin = at + std::string(word).size();
        (*where)[line.substr(begin, line.find(' ', begin) - begin)].insert(number);
      }
    }
  }
  return lines;
}

}  // namespace zoo
