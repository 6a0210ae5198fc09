// What a compiled answer may define and call: read from its object file, before it is linked. Names in a source can be
// made in many ways; what the linker sees is what there is. Knows ELF for 64 bits; nothing of assignments.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace workbook::grading {

struct ObjectRules {
  bool kernels = false;  ///< compiled for the simulator or a GPU: it may launch kernels, and use what they use
  bool cuda = false;     ///< by nvcc: what that adds for itself is allowed, code that registers kernels before main too
};

/// What in the object file is not for an answer, each once: "calls send", "defines main", "has code that runs before
/// main". Allowed are: definitions in a chapter's namespace (chNN), and those that several objects may share
/// (templates, inline functions) of the language's library and of the book's own types; and calls of the language, its
/// library but for threads and files of programs, and what kernels are made of. Empty: all is well.
std::vector<std::string> refused_in_object(const std::filesystem::path& object, const ObjectRules& rules);

/// The same for what a compiler says of the stack that each function uses (-fstack-usage): no array of a size that only
/// the call knows, and nothing large, which counts of memory would not see.
std::vector<std::string> refused_on_stack(const std::filesystem::path& report);

}  // namespace workbook::grading
