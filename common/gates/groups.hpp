// The gates by name, one function each; gate.cpp has their table. One file for each group.
#pragma once

#include "common/gates/gate.hpp"

namespace workbook::gates {

// text_gates.cpp: what is written down.
/// Stubs regenerate byte-identical. A filled region is the reader's work, an error only in continuous integration.
void check_stubs(Inspection& inspection, Findings& findings);
/// Chapter N uses nothing from later chapters: neither their folders nor their namespaces. Of the earlier chapters that
/// its chapter.toml names it includes given files only, except of those whose kernels it compiles again.
void check_order(Inspection& inspection, Findings& findings);

// lesson_gates.cpp
/// Every exercise is in its lesson, with a why, and every picture of the chapter; at most 800 words precede the
/// first exercise; C++ in a lesson occurs in the code that the build compiles, outside the answers; links within the
/// repository lead somewhere; the exercises and tests that commands name are there; figures that a page takes from
/// another file stand in it.
void check_lessons(Inspection& inspection, Findings& findings);

// language.cpp
/// Lessons, notes, hints, messages and comments use the field's terms (notes/language.toml), and no sentence of a
/// lesson is longer than 35 words.
void check_language(Inspection& inspection, Findings& findings);

// tool_gates.cpp: what other programs think of the book.
/// clang-format, with the version that the style was settled with; other versions format differently.
void check_format(Inspection& inspection, Findings& findings);
/// The launcher's own tests, and what the shell thinks of the scripts.
void check_launcher(Inspection& inspection, Findings& findings);
/// The parts and the solutions, built with sanitizers by another preset.
void check_sanitized_by_gcc(Inspection& inspection, Findings& findings);
void check_sanitized_by_clang(Inspection& inspection, Findings& findings);
void check_tidy(Inspection& inspection, Findings& findings);
/// The web pages, in Chromium where it is.
void check_site(Inspection& inspection, Findings& findings);

// part_gates.cpp: the book's own parts.
/// The tests of the book's own parts, and those of them that take long.
void check_parts(Inspection& inspection, Findings& findings);
void check_long_parts(Inspection& inspection, Findings& findings);
/// Every chapter is graded with all of its exercises opened, answered in other words, by two graders at a time.
void check_graded_chapters(Inspection& inspection, Findings& findings);
/// The lessons' pictures are what the command would draw now.
void check_pictures(Inspection& inspection, Findings& findings);
/// The main job, through the command itself.
void check_run(Inspection& inspection, Findings& findings);

// chapter_gates.cpp: the chapters' tests on variants of the solutions.
/// Every test passes on the solutions, the tests are those that chapter.toml names, and each part of a chapter is given
/// every kind of input that it takes.
void check_solutions(Inspection& inspection, Findings& findings);
/// The stub trees compile, and every test on them is todo or blocked.
void check_stub_trees(Inspection& inspection, Findings& findings);
/// With only one exercise open, the whole-chapter test that its first mutant fails is blocked by it, and every other
/// exercise is judged on the book's worker.
void check_one_open(Inspection& inspection, Findings& findings);
/// With only one exercise wrong (its first mutant), the recorded whole-chapter test fails, and every other exercise is
/// judged on the book's worker.
void check_one_wrong(Inspection& inspection, Findings& findings);

// gpu_gates.cpp: other GPUs than the one that is here.
/// The whole-chapter tests under the limits of the smallest GPU classes, on the simulator; all tests under the limits
/// of all classes that students have. Of a chapter for which the class has the instructions none fails, and few are
/// skipped.
void check_gpu_classes(Inspection& inspection, Findings& findings);
void check_all_gpu_classes(Inspection& inspection, Findings& findings);
/// nvcc compiles every kernel for each architecture that readers have; registers and spills go to a table.
void check_architectures(Inspection& inspection, Findings& findings);

// mutant_gates.cpp
/// The tests of each mutant's exercise kill it, or else those of the whole chapter, and report the cause that
/// killed_by.tsv records, never another mutant's.
void check_mutants(Inspection& inspection, Findings& findings);
/// Each mutant fails the test that killed_by.tsv records. The search for its cause, which takes most of the time of
/// check_mutants, is left out.
void check_killed(Inspection& inspection, Findings& findings);
/// The same for one mutant of each test: no such test passes whatever it is given.
void check_tests_fail(Inspection& inspection, Findings& findings);

}  // namespace workbook::gates
