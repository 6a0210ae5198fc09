// What grading does not take of code that compiles: asked of the compiler's own output, so that `test` at home and
// `grade` say the same. The rules are in object.hpp and names.hpp; notes/allowed.md tells a student of them.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "common/judge/names.hpp"
#include "common/judge/plan.hpp"

namespace workbook::judge {

/// How answers are compiled whose lines addr2line is to name: binutils 2.40 takes the second file that DWARF 5 knows
/// for the first.
inline constexpr const char* kNamesLines = "-gdwarf-4";

/// Whether a job's source is an answer's: stages and operations are the book's own.
bool is_answer(const std::filesystem::path& source);

/// What the preprocessor has made of a source, beside its object file (-save-temps=obj); empty if it is not there.
std::string preprocessed(const std::filesystem::path& object);

/// What the compiled answers of a job may not have, a line each: "chapters/NN_name/x.cpp:31: the compiled code calls
/// fopen, which …", or the source alone where the compiler does not say the line. `taken`: names_taken of what they are
/// linked with; `books_names`: the names in the book's file at this source's place, preprocessed; `toolchain`: what has
/// built them, with kNamesLines. Empty: all is well.
std::string not_allowed(const worker::Toolchain& toolchain, const worker::WorkerJob& job,
                        const worker::WorkerBuilt& built, const std::set<std::string>& taken,
                        const std::function<const NameCounts&(const std::filesystem::path&)>& books_names);

/// What grading would not take of the answers that this plan has built, a line each. A source is preprocessed, here and
/// in the book, only where its text has a name that no answer may have.
std::vector<std::string> not_gradable(const Workspace& workspace, const Plan& plan, const Built& built);

}  // namespace workbook::judge
