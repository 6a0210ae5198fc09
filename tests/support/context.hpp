// What the command tells a chapter's test program: which workers hold the code under test. A JSON file, named by the
// environment variable WORKBOOK_CONTEXT, written by common/judge/run.cpp:
//
//   {"chapter": 3, "chapter_name": "03_tiled_wmma", "backend": "sim", "unavailable": "", "counts": true, "element":
//   "float16", "debugger": "",
//    "time_limit": 10.0, "version": 0, "worker_prefix": [],
//    "subjects": {"whole": {"executable": PATH, "not_compiled": LOG}, "3.1": {…, "open": true,
//                  "wrong_executable": PATH, "wrong": [1, 2], "wrong_seconds": 8, "wrong_once": false,
//                  "calls": {TEST: 3}}},
//    "previous": PATH of the previous chapter's worker, or "", "previous_element": "float32", "failed": ""}
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/attention/element_type.hpp"
#include "common/worker/backend.hpp"

namespace workbook::test {

/// The code that one group of tests runs on: the whole chapter, or the graft of one exercise.
struct Subject {
  std::string executable;    ///< empty if there is none to run
  std::string not_compiled;  ///< what the compiler said, if that is why
  bool open = false;         ///< the exercise is still a TODO: nothing was built
  bool on_host = false;      ///< its code runs on the CPU, whatever the backend of its chapter
  /// The program that holds the exercise's known wrong solutions, with the book's as version 0. Empty while tests only
  /// judge; they are run again with it to find the cause of a failure.
  std::string wrong_executable = {};
  std::vector<int> wrong = {};
  double wrong_seconds = 0;               ///< how long one test may run them
  bool wrong_once = false;                ///< a wrong solution that one test contradicts is not run in the next
  std::map<std::string, int> calls = {};  ///< of each test that is to be explained: how many it made until it failed
};

struct Context {
  int chapter = 0;
  Backend backend = Backend::cpu;
  std::string unavailable;    ///< why nothing can run on it here; empty if it can
  bool counts = false;        ///< the backend counts accesses and looks for races
  Element element = float32;  ///< type of Q, K, V and O of the code under test
  std::string debugger;       ///< starts the code under test; empty: none
  double time_limit = 10;
  int version = 0;  ///< of the code under test, in a program that holds several (common/book/combine.hpp)
  std::vector<std::string> worker_prefix;   ///< starts the code under test in its isolation; empty: none
  std::map<std::string, Subject> subjects;  ///< by exercise id, and "whole"
  std::string previous;
  Element previous_element = float32;
  std::string failed;  ///< the first exercise that has failed: tests of the whole chapter do not run; empty: none
};

/// Reads the file that WORKBOOK_CONTEXT names, once. std::runtime_error if there is none: these tests are run by
/// `./workbook test`.
const Context& context();

}  // namespace workbook::test
