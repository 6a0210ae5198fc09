// What the command tells a chapter's test program: which workers hold the code under test. A JSON file, named by the
// environment variable WORKBOOK_CONTEXT, written by common/cli/testing.cpp:
//
//   {"chapter": 1, "backend": "cpu", "debug": false, "time_limit": 10.0,
//    "subjects": {"whole": {"executable": PATH, "not_compiled": LOG}, "1.1": {…, "open": true}},
//    "previous": PATH of the previous chapter's worker, or ""}
#pragma once

#include <map>
#include <string>

namespace workbook::test {

/// The code that one group of tests runs on: the whole chapter, or the graft of one exercise.
struct Subject {
  std::string executable;    ///< empty if there is none to run
  std::string not_compiled;  ///< what the compiler said, if that is why
  bool open = false;         ///< the exercise is still a TODO: nothing was built
};

struct Context {
  int chapter = 0;
  std::string backend;
  bool debug = false;
  double time_limit = 10;
  std::map<std::string, Subject> subjects;  ///< by exercise id, and "whole"
  std::string previous;
};

/// Reads the file that WORKBOOK_CONTEXT names, once. std::runtime_error if there is none: these tests are run by
/// `./workbook test`.
const Context& context();

}  // namespace workbook::test
