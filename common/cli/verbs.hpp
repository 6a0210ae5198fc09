// The verbs of ./workbook: which there are, what --help says of them, and which of the programs that the command is
// made of has them. Each verb has a file of its own, which declares its options and runs it.
#pragma once

#include <map>
#include <string>

#include "common/cli/options.hpp"
#include "common/cli/session.hpp"

namespace workbook::cli {

/// A program is built when one of its verbs is used for the first time: a reader's first `run` waits for no more than
/// it needs. The launcher starts the reader's.
inline constexpr const char* kReader = "workbook_cli";
inline constexpr const char* kTest = "workbook_test";      ///< a reader who tests code, or looks into it
inline constexpr const char* kCourse = "workbook_course";  ///< instructors and maintainers
inline constexpr const char* kLab = "workbook_lab";        ///< training, benchmarks, pictures

struct Verb {
  const char* name;
  const char* program;
  const char* description;
  const char* example;
};
inline constexpr Verb kVerbs[] = {
    {"status", kReader, "The book at a glance: chapters, exercises, what to do next", "./workbook"},
    {"run", kReader, "Attend over a real text, or your own Q, K, V, with every stage, and check each one",
     "./workbook run --seq 2048 --causal\n         ./workbook run --q q.npy --k k.npy --v v.npy --out o.npy"},
    {"test", kTest, "Test your code: chapters or single exercises", "./workbook test 2\n         ./workbook test 2.1"},
    {"hint", kReader, "The next hint of an exercise", "./workbook hint 2.2"},
    {"reset", kReader, "Put an exercise back to its TODO; a copy of your work is kept", "./workbook reset 2.2"},
    {"watch", kTest, "Test a chapter again whenever you save", "./workbook watch 2"},
    {"trace", kTest, "What a chapter's kernels do, counted on the simulator: traffic, conflicts, which tiles are read",
     "./workbook trace 3\n         ./workbook trace 3 --br 32 --metrics --html trace.html"},
    {"doctor", kTest, "What was found here, what is missing, and what therefore cannot run", "./workbook doctor"},
    {"solution", kTest, "The book's answer beside yours, once yours has passed, and why it is as it is",
     "./workbook solution 3.8"},
    {"stubs", kCourse, "Instructors: write the stubs in chapters/ from solutions/", "./workbook stubs"},
    {"release", kCourse, "Instructors: make an assignment's folder for students",
     "./workbook release --exercises 2.1,2.3\n"
     "         ./workbook release --assignment assignment.toml --gradescope --hidden DIR"},
    {"train", kLab, "Train a small language model in fp32, fp16, fp16 with a scaled loss, and bf16",
     "./workbook train --steps 400\n         ./workbook train --chapters\n"
     "         ./workbook train --resume .workbook/train/train.checkpoint"},
    {"library", kTest, "Your kernels as a library with a C interface, for PyTorch and numpy",
     "./workbook library --chapters 8,9\n         ./workbook library --chapters 11,13 --solutions --backend sim"},
    {"bench", kLab, "Time the stages on the GPU: speed, memory, against the device's limits and PyTorch",
     "./workbook bench\n         ./workbook bench 4 --n 4096,8192 --peers"},
    {"grade", kCourse, "Instructors: grade submissions, isolated from the machine",
     "./workbook grade --assignment assignment.toml submissions/*\n"
     "         ./workbook grade --assignment assignment.toml --hidden hidden --jobs 4 --out graded submissions/*"},
    {"pictures", kLab, "Maintainers: draw the lessons' pictures from what the code says and counts",
     "./workbook pictures\n         ./workbook pictures 5 --check"},
    {"site", kCourse, "The book as web pages: lessons, notes, interactive figures, search; needs Node and npm",
     "./workbook site\n         ./workbook site --out pages --with-solutions"},
    {"check", kCourse, "Maintainers: the whole gate of the book", "./workbook check\n         ./workbook check --full"},
};

/// Those that this program has: defined in reader.cpp, course.cpp and lab.cpp.
std::map<std::string, Declare> verbs_of_this_program();

// One for each verb, in its file.
Runner declare_status(Options& options);
Runner declare_run(Options& options);
Runner declare_test(Options& options);
Runner declare_hint(Options& options);
Runner declare_reset(Options& options);
Runner declare_watch(Options& options);
Runner declare_trace(Options& options);
Runner declare_doctor(Options& options);
Runner declare_solution(Options& options);
Runner declare_stubs(Options& options);
Runner declare_release(Options& options);
Runner declare_train(Options& options);
Runner declare_library(Options& options);
Runner declare_bench(Options& options);
Runner declare_grade(Options& options);
Runner declare_pictures(Options& options);
Runner declare_check(Options& options);
Runner declare_site(Options& options);

}  // namespace workbook::cli
