// What a compiled answer may define and call, read from its object file before linking. A source can form names in many
// ways; the symbol table is complete. Supports 64-bit ELF.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "common/judge/names.hpp"

namespace workbook::judge {

struct ObjectRules {
  bool kernels = false;  ///< compiled for the simulator or a GPU: it may launch kernels and call their functions
  bool cuda = false;  ///< compiled by nvcc, whose additions are allowed, even code that registers kernels before main
  std::set<std::string> taken = {};  ///< names that the program linked with the answer defines: names_taken
  /// Objects of the chapter's files without kernels. A kernel file may not call them: a kernel cannot on a GPU.
  std::vector<std::string> host_objects = {};
  /// Names in the book's own object of this source, which are allowed: names_in. Empty for an answer. A stage or the
  /// operations include headers with answers.
  std::set<std::string> books = {};
};

/// The symbols that only these objects and shared libraries may define. Inline functions of headers are excluded: if
/// the program defines one too, the program's definition is used.
std::set<std::string> names_taken(const std::vector<std::string>& files);

/// All names in an object file, defined or not.
std::set<std::string> names_in(const std::filesystem::path& object);

/// The first violations in an object file, each once: "calls send", "defines main", "has writable code".
/// Definitions are allowed in a chapter's namespace (chNN). So are those that several objects may share (templates,
/// inline functions) of the standard library, of the book's types and, in kernels, of the kernel headers, unless their
/// names are taken. Calls are allowed to the language's runtime, to its library except for threads, files and
/// processes, and to the functions of kernels. Empty: no violation.
std::vector<Refusal> refused_in_object(const std::filesystem::path& object, const ObjectRules& rules);

}  // namespace workbook::judge
