// Building worker executables: any folder of chapter files plus the chapter's special operations becomes one program.
// This applies to the reader's code, the solutions, grafts, mutants and submissions. Ninja runs the build, so that only
// changes are rebuilt. The flags come from toolchain.json, which CMake writes.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/worker/backend.hpp"

namespace workbook::worker {

/// The toolchain that CMake found, read from toolchain.json.
struct Toolchain {
  /// How workers of one backend are built.
  struct Rules {
    std::vector<std::string> compile, link, libraries, objects;  ///< objects: the book's, linked into every worker
    std::vector<std::string> kernels;                            ///< command for .cu files; `compile` is for all others
    std::vector<std::string> sources;  ///< the book's, compiled once and linked into every worker
    std::vector<std::string> targets;  ///< CMake targets that must be built first
    /// The objects for libraries of stages, instead of `objects`.
    std::vector<std::string> shared_objects, shared_targets;
    /// Precompiled headers in the build folder for kernels and for all other files; empty: none.
    std::string precompiled = {}, precompiled_host = {};
    /// Like `precompiled`, for kernels compiled with kQuick; empty: kQuick is not used.
    std::string precompiled_quick = {};

    /// The headers that exist.
    std::vector<std::string> all_precompiled() const;
    /// kQuick if kernels may be compiled with it, else nothing.
    std::vector<std::string> quick_flags() const;
  };
  std::filesystem::path build_folder;  ///< build/default
  std::filesystem::path root;          ///< the book; sources are named relative to it in messages
  std::vector<std::string> prefix;     ///< program and arguments that start ninja in an isolated process; or none
  std::string ninja, cmake, compiler, compiler_id, build_type, sanitize, version;
  std::map<Backend, Rules> backends;           ///< backends whose workers can be built here
  std::map<Backend, std::string> unavailable;  ///< the other backends, with reasons
  bool counts = false;                         ///< the simulator counts accesses and detects races
  std::string simulator;                       ///< what is missing for that, as text; empty if nothing
  std::vector<std::string> cublas;             ///< libraries for a GPU worker that uses cuBLAS; or empty

  /// Whether workers of this backend can be built here.
  bool can_build(Backend backend) const { return backends.contains(backend); }
  /// Why they cannot; empty if they can.
  std::string why_not(Backend backend) const;
  /// Whether this backend counts accesses and detects races.
  bool counts_on(Backend backend) const { return backend == Backend::sim && counts; }
};
/// std::runtime_error if the file is missing or damaged.
Toolchain load_toolchain(const std::filesystem::path& build_folder, const std::filesystem::path& root);

/// kQuick: a flag for kernels that are compiled for a single run; it saves a third of the compile time. Memory accesses
/// stay the same, except that g++ does not instrument the store of a struct returned by a call, which the book's code
/// does not have. The other two are the CMake targets that precompile the kernels' headers, without and with the flag.
inline constexpr const char* kQuick = "-Og";
inline constexpr const char* kPrecompiled = "kernels_precompiled";
inline constexpr const char* kQuickPrecompiled = "kernels_quick_precompiled";

/// One worker executable to build; or the parts of a library of stages, and the library.
struct WorkerJob {
  /// part: only the objects, for a library. library: a shared object with the interface of common/cuda/workbook.h.
  enum Makes { worker, part, library };

  std::string name;  ///< unique: "solutions/01_naive_attention"; becomes a folder
  Backend backend = Backend::cpu;
  std::vector<std::filesystem::path> sources;  ///< the chapter's .cpp and .cu files and its special operations
  std::filesystem::path include;               ///< the folder with the chapter's headers
  std::vector<std::filesystem::path> books_sources = {};  ///< sources that no edit affects, compiled once for all jobs
  std::filesystem::path books_include = {};               ///< the folder with their headers
  std::vector<std::filesystem::path> used = {};           ///< folders of earlier chapters, included as "NN_name/file"
  std::vector<std::string> libraries = {};                ///< additional libraries to link
  std::string architecture = {};                          ///< target of nvcc, "sm_90a"; empty: the toolchain's
  std::vector<std::string> flags = {};                    ///< additional compiler flags
  std::vector<std::string> sources_flags = {};            ///< further flags, only for `sources`
  Makes makes = worker;
  std::vector<std::string> parts = {};  ///< of a library: earlier jobs of the same build
};

struct WorkerBuilt {
  bool ok = false;
  std::filesystem::path executable;                                ///< or the library
  std::string log;                                                 ///< the compiler's errors and warnings
  std::map<std::filesystem::path, std::filesystem::path> objects;  ///< by source
  double seconds = 0;  ///< processor time of the compilers, for all jobs that were built together
};

/// Builds all jobs; a failing job does not stop the others. Results by job name.
std::map<std::string, WorkerBuilt> build_workers(const Toolchain& toolchain, const std::vector<WorkerJob>& jobs);

/// The files that the compiler read for each of these objects, without system headers, relative to the book's root if
/// they are inside. Objects with unknown files are omitted. (A precompiled header is one file here.)
std::map<std::filesystem::path, std::vector<std::filesystem::path>> files_read(
    const Toolchain& toolchain, const std::vector<std::filesystem::path>& objects);

/// Builds CMake targets (test programs, worker_server) unless nothing has changed since they were built.
/// std::runtime_error with the end of the log if that fails.
void build_targets(const Toolchain& toolchain, const std::vector<std::string>& targets);

}  // namespace workbook::worker
