// Compiling and running a submission where it can neither read nor write what is not its own. What there is on this
// machine is chosen once, and proved once: a program that runs in the isolation tries what must not work.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/judge/names.hpp"
#include "common/judge/plan.hpp"
#include "common/judge/workspace.hpp"
#include "common/worker/build.hpp"

namespace workbook::grading {

struct IsolationLimits {
  double build_seconds = 0;    ///< processor time of compiling a file; 0: by how long the book's own code takes
  bool judge_objects = false;  ///< refuses what no answer may define or call (object.hpp)
};

/// As it is made, none, and the record says so: --unsafe.
struct Isolation {
  bool on = false;
  bool other_user = false;        ///< as root, another user id: files can be closed to it by their mode
  bool view = false;              ///< a root of its own, without what is not named in it
  std::filesystem::path program;  ///< workbook_isolate
  /// For results.json.
  nlohmann::json record = {{"on", false}, {"layers", nlohmann::json::array()}, {"proved", false}, {"unreadable", 0}};
};

/// Held on a file as long as it lives, in whatever container: closed by the last of its owners.
using FileLock = std::shared_ptr<const int>;

/// User ids that are nobody else's on this machine while this lives: another grader beside this one takes others.
class UserIds {
 public:
  static constexpr unsigned kCount = 8;
  /// EnvironmentError if none are free.
  UserIds();
  unsigned first() const { return first_; }

 private:
  unsigned first_ = 0;
  FileLock lock_;
};

/// Chooses: as root another user id, and a root of its own where mounting is allowed; otherwise the latter, in a user
/// namespace. Then proves it: a probe runs as a worker and as a compiler would, and must fail to read any of
/// `protected_paths` and to do everything that it must not. EnvironmentError with what is wrong and how to repair that.
Isolation prove_isolation(const std::filesystem::path& program,
                          const std::vector<std::filesystem::path>& protected_paths);

/// How jobs of the book's own code begin, from which the names are learned that an answer may have, and whose objects
/// are taken in every slot where a job has the same files.
inline constexpr const char* kBooks = "book/";
/// The book's code with the headers that a submission includes beside it: for its names, so it is only preprocessed.
inline constexpr const char* kBooksWithHeaders = "headers/";
/// Jobs that find out whether something compiles, and no more: they are not run, so nothing is refused in them.
inline constexpr const char* kTried = "tried/";

/// The folder that grading works in: the book's headers and what workers are linked with, as a submission may see them,
/// and a slot for each submission that is graded at the same time. Removed with its owner.
class Workshop {
 public:
  /// Copies what is needed of the book in `book_root`, as `toolchain` has built it. `slots` submissions at a time.
  Workshop(const worker::Toolchain& toolchain, const std::filesystem::path& book_root, Isolation isolation,
           IsolationLimits limits, unsigned slots);

  /// A folder for slot `slot` that only the grader can read: the mirror of the book that holds the submission.
  std::filesystem::path mirror(unsigned slot) const;
  /// Builds a submission's workers, each in a folder that holds its own sources alone. Workers of the book's own
  /// solutions are built as always.
  judge::Built build(unsigned slot, const std::vector<worker::WorkerJob>& jobs);
  /// What starts a worker in this slot.
  std::vector<std::string> worker_prefix(unsigned slot, Backend backend) const;
  /// Forgets the slot's submission.
  void clear(unsigned slot);

  const Isolation& isolation() const { return isolation_; }

 private:
  /// Copies the book's headers and what workers are linked with, and sets the toolchain to the copies.
  void copy_book();
  /// What compilers and workers in a slot have in common: its user's id, its root, its part of the cores.
  std::vector<std::string> prefix(const char* mode, unsigned slot, unsigned user) const;
  /// How long a compiler may work for a job. For the slot's submission half of it once that has been too long, and in
  /// the end nothing, so that no submission costs a class minutes.
  double build_seconds(unsigned slot, const worker::WorkerJob& job);
  /// What compiles a worker in the isolation.
  std::vector<std::string> build_prefix(unsigned slot, unsigned thread, const std::filesystem::path& stage,
                                        Backend backend, double seconds) const;
  /// Puts a worker that was built where its user may read and run it.
  void hand_over(unsigned slot, const std::string& name, worker::WorkerBuilt& built) const;
  /// Takes from a job, as it lies in its stage, the sources of which the objects are known: the book's, and those that
  /// another job of the slot's submission has compiled from the same files. They come to lie in the stage and are
  /// linked; their calls are added to `built`.
  void take_known_objects(unsigned slot, const std::filesystem::path& stage, worker::WorkerJob& staged,
                          worker::WorkerBuilt& built);
  /// Keeps the objects of a job that nothing was refused of, and adds their calls; slots_ for the book's own.
  void keep_objects(unsigned slot, const worker::Toolchain& toolchain, const worker::WorkerJob& staged,
                    worker::WorkerBuilt& built);
  /// A stage as its compiler sees it, and nobody else.
  void open_stage(unsigned slot, unsigned thread, const std::filesystem::path& stage) const;
  /// Of the book's own job: keeps its names. Of any that is run: refuses what no answer may have, or keeps its objects.
  void learn_or_judge(unsigned slot, const std::string& name, const worker::Toolchain& toolchain,
                      const worker::WorkerJob& staged, worker::WorkerBuilt& built);
  /// Why a job was not built, in words for a student; std::runtime_error where it is the grader's trouble.
  void explain(unsigned slot, double seconds, worker::WorkerBuilt& built);
  worker::WorkerBuilt build_one(unsigned slot, unsigned thread, const worker::WorkerJob& job);
  /// The slot's worker is user 0; what compiles in its thread i, i + 1.
  unsigned user(unsigned slot, unsigned thread) const { return users_.empty() ? 0 : users_[slot].first() + thread; }

  const worker::Toolchain& toolchain_;
  std::filesystem::path book_root_;
  std::shared_ptr<const std::filesystem::path> temporary_;  ///< folder_, removed with it
  std::filesystem::path folder_;
  FileLock lock_;  ///< on the folder while it is in use
  Isolation isolation_;
  IsolationLimits limits_;
  std::vector<UserIds> users_;  ///< by slot; none where all runs as one user
  unsigned slots_, threads_;
  worker::Toolchain inside_;  ///< the toolchain with the workshop's paths; root and build folder are a stage's
  std::mutex mutex_;          ///< of what stands below, and of building the book's own workers
  struct KnownObject {
    std::filesystem::path object;
    std::map<std::filesystem::path, std::string> files;  ///< what it was compiled from, relative to the stage -> text
    std::string calls;                                   ///< calls_of it
  };
  struct KnownSource {
    judge::NameCounts books_names;  ///< that the book's own file has
    std::vector<KnownObject> objects;
  };
  /// By slot, or slots_ for all, and source and flags.
  std::map<std::pair<unsigned, std::string>, KnownSource> known_;
  std::map<Backend, double> books_seconds_;  ///< processor time of compiling the book's code: the most of all chapters
  std::vector<double> lost_;  ///< by slot: so many times what its submission had to compile in, until it was ended
};

}  // namespace workbook::grading
