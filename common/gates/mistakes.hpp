// Known mistakes and mutants are two sides of one list: a mutant makes the mistake that its message names. This finds
// what is on one side alone.
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

/// What of a problem a mutant may be wrong about: a kernel that is right only for a part of what it may be asked.
inline constexpr const char* kProperties[] = {
    "batches",           // right for B = 1
    "heads",             // right for H = 1, or for few heads
    "Nq is not Nk",      // right for Nq = Nk, or where one is the smaller
    "head dimension",    // wrong at one d alone
    "last tile",         // wrong in the last tile, of the last head alone too
    "mask",              // with one and without, at more than one tile
    "scale",             // its sign and its size, and scores of any size
    "hidden tile",       // all keys of a tile are masked
    "row without keys",  // a row of -inf
};
inline constexpr int kMutantsByProperty = 60;  ///< the least number of mutants that have one

/// How many mutants have each property. A sentence for a property that is not in the list, for one that has no mutant,
/// and for too few in all. That an exercise's own test kills each is a condition of reading them.
struct ByProperty {
  std::map<std::string, int> counts;
  std::vector<std::string> problems;
};
ByProperty count_properties(const std::map<std::string, std::vector<book::Mutant>>& mutants);

}  // namespace workbook::gates
