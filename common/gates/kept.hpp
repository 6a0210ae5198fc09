// Results that were as they must be, of trees and of the book's own test programs, kept in the user's cache folder for
// every clone of the book on the machine.
//
// A result is found by a key, a text with all that is known to go into it before anything is built: how workers are
// compiled and linked, the packages of the machine, the content of the tree's files and of the book's, of the objects
// that workers are linked with and of the test program, and what is asked of it. Beside it is what the compiler has
// read, as ninja knows it afterwards: the result counts only while each of those files has the content that it had.
// Paths within the book are relative to it. Nothing is kept of what ran on a GPU. (Where packages are not Debian's, a
// change of the system's headers and libraries alone goes unnoticed: --fresh.)
//
// Every entry begins with the hash of the rest and holds its key in full. A damaged one, or one that was
// changed by hand, is not believed, and one under a wrong name is not taken. Recomputing the hash by hand can forge a
// result, as can a change of the gate itself; a lie could only be that all is well, since other results are judged
// again after they were run again. `check --fresh` believes none. The hashes have 64 bits: among a million files, two
// that differ have the same one with a chance of 3 in 100 million.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/gates/reads.hpp"
#include "common/judge/run.hpp"

namespace workbook::gates {

/// What files hold, each read once.
class Digests {
 public:
  explicit Digests(const judge::Workspace& workspace);
  /// Size and hash of a file, which may be relative to the root; "none" if there is no such file.
  const std::string& of(const std::filesystem::path& file);
  /// None of the files that were asked for has been written since this was made, the gates' own apart: what was built
  /// and run meanwhile was made of what they hold.
  bool stood_still() const;

 private:
  bool is_gates_own(const std::filesystem::path& path) const;
  std::filesystem::path root_, build_folder_;
  std::filesystem::file_time_type since_;
  std::map<std::filesystem::path, std::string> known_;
};

/// All that goes into a run and is known beforehand. Empty for a run that is not to be kept.
std::string key_of(const judge::Workspace& workspace, const judge::Plan& plan, const judge::RunRequest& request,
                   Digests& digests);

/// All that such a program is made of and reads: the book's files, of chapters only these (nothing: all), and how they
/// are compiled. Empty where there is a GPU.
std::string part_key(const judge::Workspace& workspace, const std::string& program,
                     const std::optional<OfChapters>& reads, Digests& digests);

/// What the compiler has read for the workers of each plan, each file with its digest. Nothing where that is not known.
using FilesRead = std::map<std::string, std::string>;
std::vector<std::optional<FilesRead>> read_for(const judge::Workspace& workspace, const std::vector<judge::Plan>& plans,
                                               const judge::Built& built, Digests& digests);

class KeptResults {
 public:
  /// The folder of the results; it is made when the first is kept. Empty: nothing is kept.
  explicit KeptResults(std::filesystem::path folder, std::uintmax_t most_bytes = std::uintmax_t(256) << 20)
      : folder_(std::move(folder)), most_bytes_(most_bytes) {}

  /// The result of this plan under this key; nothing if there is none that can be believed.
  std::optional<judge::ChapterRun> find(const std::string& key, const judge::Plan& plan, Digests& digests) const;
  /// That it cannot be written is no error: it is run again next time.
  void keep(const std::string& key, const FilesRead& read, const judge::ChapterRun& run) const;
  /// The same for what is known of a program's tests.
  std::optional<nlohmann::json> find(const std::string& key, Digests& digests) const;
  void keep(const std::string& key, const FilesRead& read, const nlohmann::json& result) const;
  /// Deletes those that were not used for the longest time, until a quarter of the space is free.
  void prune() const;

 private:
  std::filesystem::path folder_;
  std::uintmax_t most_bytes_;
};

/// $XDG_CACHE_HOME/flashattention-workbook/trees, where that is not set within ~/.cache; empty without a home.
std::filesystem::path cache_folder();

}  // namespace workbook::gates
