// Building worker executables: any folder of chapter files plus the chapter's special operations becomes one program.
// The reader's code, the solutions, grafts, mutants and submissions all go this way. Ninja does the work, so that only
// what changed is rebuilt; the flags come from toolchain.json, which CMake writes.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/worker/backend.hpp"

namespace workbook::worker {

/// What CMake found, from toolchain.json.
struct Toolchain {
  /// How workers of one backend are built.
  struct Rules {
    std::vector<std::string> compile, link, libraries, objects;  ///< objects: of the book, linked into every worker
    std::vector<std::string> kernels;  ///< how a .cu file is compiled; `compile` is for all others
    std::vector<std::string> sources;  ///< of the book, compiled once and linked into every worker
    std::vector<std::string> targets;  ///< CMake targets that must be there before
    /// The same for libraries of stages: what they are linked with, instead of `objects`.
    std::vector<std::string> shared_objects, shared_targets;
    /// Headers of the build folder that kernels, and all other files, are compiled with, precompiled; empty: none.
    std::string precompiled = {}, precompiled_host = {};
    /// As `precompiled`, for kernels with kQuick behind their flags; empty: they are not to have it.
    std::string precompiled_quick = {};

    /// Those that there are.
    std::vector<std::string> all_precompiled() const;
    /// kQuick, where kernels may have it; or nothing.
    std::vector<std::string> quick_flags() const;
  };
  std::filesystem::path build_folder;  ///< build/default
  std::filesystem::path root;          ///< the book; sources are named relative to it in messages
  std::vector<std::string> prefix;     ///< program and arguments that start ninja in an isolation of its own; or none
  std::string ninja, cmake, compiler, compiler_id, build_type, sanitize, version;
  std::map<Backend, Rules> backends;           ///< those whose workers can be built here
  std::map<Backend, std::string> unavailable;  ///< the others, and why
  bool counts = false;                         ///< the simulator counts accesses and looks for races
  std::string simulator;                       ///< what is missing for that, for people; empty if nothing
  std::vector<std::string> cublas;             ///< what a GPU's worker that uses cuBLAS is linked with; or empty

  /// Whether workers of this backend can be built here.
  bool can_build(Backend backend) const { return backends.contains(backend); }
  /// Why not; empty if they can.
  std::string why_not(Backend backend) const;
  /// Whether this backend counts accesses and looks for races.
  bool counts_on(Backend backend) const { return backend == Backend::sim && counts; }
};
/// std::runtime_error if the file is missing or damaged.
Toolchain load_toolchain(const std::filesystem::path& build_folder, const std::filesystem::path& root);

/// A flag for kernels that are compiled for one run: it takes two thirds of the time. What they ask of memory is the
/// same, but g++ does not see the store of a struct that a call has returned: the book's own code has none. The CMake
/// targets that precompile what kernels include, without and with the flag.
inline constexpr const char* kQuick = "-Og";
inline constexpr const char* kPrecompiled = "kernels_precompiled";
inline constexpr const char* kQuickPrecompiled = "kernels_quick_precompiled";

/// One worker executable to build; or the parts of a library of stages, and the library.
struct WorkerJob {
  /// part: its objects alone, for a library. library: a shared object with the interface of common/cuda/workbook.h.
  enum Makes { worker, part, library };

  std::string name;  ///< unique: "solutions/01_naive_attention"; becomes a folder
  Backend backend = Backend::cpu;
  std::vector<std::filesystem::path> sources;  ///< the chapter's .cpp and .cu files and its special operations
  std::filesystem::path include;               ///< the folder with the chapter's headers
  std::vector<std::filesystem::path> books_sources =
      {};                                        ///< those that no change can reach: compiled once for all jobs
  std::filesystem::path books_include = {};      ///< the folder with their headers
  std::vector<std::filesystem::path> used = {};  ///< folders of earlier chapters, included as "NN_name/file"
  std::vector<std::string> libraries = {};       ///< what it is linked with beyond what every worker is
  std::string architecture = {};                 ///< that nvcc compiles it for, "sm_90a"; empty: the toolchain's
  std::vector<std::string> flags = {};           ///< of the compiler, behind its own
  std::vector<std::string> sources_flags = {};   ///< behind those, for `sources` alone
  Makes makes = worker;
  std::vector<std::string> parts = {};  ///< a library's: jobs of the same build, before it
};

struct WorkerBuilt {
  bool ok = false;
  std::filesystem::path executable;                                ///< or the library
  std::string log;                                                 ///< what the compiler said: errors, or warnings
  std::map<std::filesystem::path, std::filesystem::path> objects;  ///< by source
  std::string calls;  ///< what -fcallgraph-info wrote of them, where that is among the flags and all compiled
};

/// Builds all jobs, as far as each can be built; one that fails does not stop the others. Result by job name.
std::map<std::string, WorkerBuilt> build_workers(const Toolchain& toolchain, const std::vector<WorkerJob>& jobs);

/// The files that the compiler read for each of these objects, headers of the system apart, relative to the book's root
/// if they lie there. An object of which that is not known is left out. (What is precompiled is one file of them: see
/// files_precompiled.)
std::map<std::filesystem::path, std::vector<std::filesystem::path>> files_read(
    const Toolchain& toolchain, const std::vector<std::filesystem::path>& objects);
/// The same for what a backend's files are compiled with, precompiled; nothing if that is not known.
std::optional<std::vector<std::filesystem::path>> files_precompiled(const Toolchain& toolchain, Backend backend);

/// Builds CMake targets (test programs, worker_server) unless nothing has changed since they were built.
/// std::runtime_error with the end of the log if that fails.
void build_targets(const Toolchain& toolchain, const std::vector<std::string>& targets);

}  // namespace workbook::worker
