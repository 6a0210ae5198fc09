// Known mistakes and mutants are two sides of one list: a mutant makes the mistake that its message names. This finds
// what stands on one side alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "common/book/mutants.hpp"
#include "common/judge/workspace.hpp"

namespace workbook::gates {

/// What a chapter says of its mistakes: judge::ChapterMistakes without the mistakes themselves.
struct KnownMistakes {
  std::string chapter;
  std::vector<std::string> uses, ids;
  std::map<std::string, std::string> without_mutant;  ///< id -> why
};

/// The program `known_mistakes` of the tests, built and asked.
struct AllKnownMistakes {
  std::vector<KnownMistakes> chapters;
  std::vector<std::string> of_any_call;  ///< what any call may end in: "race", "timed-out", …
};
AllKnownMistakes ask_for_mistakes(const judge::Workspace& workspace);

/// A sentence with its place for every mistake without a mutant in its chapter, or in one that uses it, and every
/// mutant whose diagnosis its chapter does not know. `mutants`: by chapter.
std::vector<std::string> unmatched(const AllKnownMistakes& known,
                                   const std::map<std::string, std::vector<book::Mutant>>& mutants);

}  // namespace workbook::gates
