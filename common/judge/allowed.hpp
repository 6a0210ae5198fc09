// What grading does not accept in code that compiles. The check reads the compiler's own output, so that `test` and
// `grade` report the same. The rules are in object.hpp and names.hpp; notes/allowed.md explains them to students.
#pragma once

#include <array>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "common/judge/object.hpp"
#include "common/judge/plan.hpp"

namespace workbook::judge {

/// The flags for answers that are checked: the preprocessed text and dumps beside the object (uninstrumented.hpp), and
/// lines for addr2line, since of DWARF 5 binutils 2.40 reports the second file instead of the first.
inline constexpr std::array kChecked{"-save-temps=obj", "-gdwarf-4", "-fdump-tree-tsan-uid", "-fdump-ipa-visibility"};

/// How the name of a kept object of a file without kernels ends.
inline constexpr const char* kHostObject = ".cpp.o";

/// The preprocessed text of a source, stored beside its object file (-save-temps=obj). Empty if there is none.
std::string preprocessed(const std::filesystem::path& object);

/// What an object file, and the preprocessed text beside it, contain.
struct Inspected {
  NameCounts names;
  std::vector<Refusal> refused;  ///< refused_in_object
  double seconds = 0;            ///< processor time of the program that has read it
};
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Inspected, names, refused)
Inspected inspect(const std::filesystem::path& object, const ObjectRules& rules);
/// The same by the program workbook_inspect, whose time and memory are limited, since a student made the object.
/// `command`: the program, with what isolates it. `books`: a file with the lines of rules.books, or "". `taken`: the
/// files with which the answer is linked. A refusal if the program fails.
Inspected inspect(const std::vector<std::string>& command, const std::filesystem::path& object,
                  const ObjectRules& rules, const std::string& books, const std::vector<std::string>& taken);

/// The violations in the compiled answers of a job, one line each: "chapters/NN_name/x.cpp:31: your compiled code calls
/// fopen, which …". The line number is omitted where the compiler does not record it. `inspected`: what the object of a
/// source contains. `books_names`: the names in the book's preprocessed version of a source. `toolchain`: it has built
/// the answers with kChecked. Empty: no violation.
std::string not_allowed(
    const worker::Toolchain& toolchain, const worker::WorkerJob& job, const worker::WorkerBuilt& built,
    const std::function<Inspected(const std::filesystem::path& source, const ObjectRules&)>& inspected,
    const std::function<const NameCounts&(const std::filesystem::path&)>& books_names);

/// What grading would not accept in the answers that this plan has built, one line each. The reader's source and the
/// book's are preprocessed only where the text contains a name that is not allowed.
std::vector<std::string> not_gradable(const Workspace& workspace, const Plan& plan, const Built& built);

}  // namespace workbook::judge
