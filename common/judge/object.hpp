// What a compiled answer may define and call: read from its object file, before it is linked. Names in a source can be
// made in many ways; what the linker sees is what there is. Knows ELF for 64 bits; nothing of assignments.
#pragma once

#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/judge/names.hpp"

namespace workbook::judge {

struct ObjectRules {
  bool kernels = false;  ///< compiled for the simulator or a GPU: it may launch kernels, and use what they use
  bool cuda = false;     ///< by nvcc: what that adds for itself is allowed, code that registers kernels before main too
  std::set<std::string> taken = {};  ///< what the program around the answer defines: names_taken
};

/// What these objects and shared libraries define and nobody else may, as their symbols are called. An inline function
/// of a header is none of them: where the program has it too, the program's is the one that counts.
std::set<std::string> names_taken(const std::vector<std::string>& files);

/// What in the object file is not for an answer, each once: "calls send", "defines main", "has code that runs before
/// main". Allowed are: definitions in a chapter's namespace (chNN), and those that several objects may share
/// (templates, inline functions) of the language's library, of the book's own types and, in kernels, of the headers
/// that make a kernel, unless their names are taken; and calls of the language, its library but for threads and files
/// of programs, and what kernels are made of. Empty: all is well.
std::vector<Refusal> refused_in_object(const std::filesystem::path& object, const ObjectRules& rules);

/// Who refers to whom in an object file that was compiled with -ffunction-sections and -fdata-sections: functions by
/// the names of their symbols, tables and variables by names that are no symbol's.
std::vector<std::pair<std::string, std::string>> references(const std::filesystem::path& object);

}  // namespace workbook::judge
