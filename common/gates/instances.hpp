// A wrong answer that one test is to find out is compiled with the kernels alone that this test asks for first: most of
// the time of a compiler goes into others. Which they are is seen on the solution, which notes them
// (common/cuda/instances.hpp). Files of which nothing is asked are not compiled again for each wrong answer: the book's
// stand for them, also where they include a header that was changed. Should a wrong answer come to ask for another
// kernel, it is compiled with that one too, and should that not do, or it not be found out, in full (run_variants).
#pragma once

#include <set>
#include <string>
#include <vector>

#include "common/book/mutants.hpp"
#include "common/gates/variants.hpp"

namespace workbook::gates {

/// Sees to it that inspection.noted has these tests of chapters, as far as they run here and on the simulator.
void note_instances(Inspection& inspection, const std::map<const book::Chapter*, std::set<std::string>>& tests);

/// The tests that kernels of a chapter's mutant are compiled for: its own, and, of the first mutant of an exercise, the
/// one of the whole chapter that the gate "one wrong" runs.
std::set<std::string> tests_of(const book::Mutant& mutant, const std::vector<book::Mutant>& mutants);
/// Has a tree that these tests run on compiled with what they ask for alone, if that is known of all of them.
void ask_for(const Inspection& inspection, const book::Chapter& chapter, const std::set<std::string>& tests,
             judge::Tree& tree);

/// Whether a run has asked for a kernel that was left out: it says nothing of the tree.
bool asked_for_more(const judge::ChapterRun& run);
/// Has the tree compiled with that kernel too. False if it was left out for another reason than its number.
bool ask_for_more(const judge::ChapterRun& run, judge::Tree& tree);

}  // namespace workbook::gates
