// Many versions of a chapter's files compiled as one program: a function that differs between versions holds all of
// their bodies, and a number chooses among them at run time (common/cuda/version.hpp). One compilation takes the place
// of one per version. This technique is known as mutant schemata (Untch, Offutt, Harrold 1993).
//
//   int kv_tiles(…) {                         int kv_tiles(…) {
//     return (visible + Bc - 1) / Bc;    →      switch (workbook::version()) {
//   }                                             case 7: { return visible / Bc; } break;
//                                                 default: { return (visible + Bc - 1) / Bc; }
//                                               }
//                                             }
#pragma once

#include <map>
#include <set>
#include <string>

namespace workbook::book {

using Files = std::map<std::string, std::string>;  ///< name -> text

struct Combined {
  Files files;
  /// The versions that differ elsewhere than in bodies of functions that run, and are not contained in `files`.
  std::set<int> apart;
};
/// Version 0 is `base`; the others have numbers above 0 and the same file names. #line directives make the compiler and
/// the simulator report the lines of a version's own file. If `naming` is not empty, they report version 3's lines as
/// those of a file `naming`3, so that a compiler's message names the versions that do not compile.
Combined combine(const Files& base, const std::map<int, Files>& versions, const std::string& naming = "");

}  // namespace workbook::book
