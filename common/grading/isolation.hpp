// Compiles and runs a submission so that it can neither read nor write other files. The mechanisms available on this
// machine are selected once and verified once: a probe in the isolation attempts everything that must fail.
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
  double build_seconds = 0;    ///< CPU time for compiling a file; 0: proportional to the book's own code
  bool judge_objects = false;  ///< check the names that answers define and call (object.hpp)
};

/// Default-constructed: no isolation (--unsafe), as the record says.
struct Isolation {
  bool other_user = false;        ///< as root: workers use another user id, so that file modes can deny access
  bool view = false;              ///< a separate root directory that contains only listed files
  std::filesystem::path program;  ///< workbook_isolate; empty: no isolation
  /// For results.json.
  nlohmann::json record = {{"on", false}, {"layers", nlohmann::json::array()}, {"proved", false}, {"unreadable", 0}};
};

/// A lock on a file, released when its last owner is destroyed.
using FileLock = std::shared_ptr<const int>;

/// A range of user ids that no other grader on this machine uses during the lifetime of this object.
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

/// Selects the isolation: for root, another user id and, if mounting is allowed, a separate root directory; otherwise a
/// separate root directory in a user namespace. Then verifies it: a probe runs like a worker and like a compiler, and
/// must neither read any of `protected_paths` nor do anything else that is forbidden. EnvironmentError names the
/// problem and the remedy.
Isolation prove_isolation(const std::filesystem::path& program,
                          const std::vector<std::filesystem::path>& protected_paths);

/// The name prefix of jobs with the book's own code. They provide the names that an answer may use. Their objects are
/// reused in every slot where a job has the same files.
inline constexpr const char* kBooks = "book/";
/// The prefix of jobs with the book's code and a submission's additional headers. They are only preprocessed, to
/// collect names.
inline constexpr const char* kBooksWithHeaders = "headers/";
/// The prefix of jobs that only test whether code compiles. They are not run, so their objects are not checked.
inline constexpr const char* kTried = "tried/";

/// The working folder of grading. It contains the book's headers and the link inputs of workers, which submissions may
/// read, and one slot per submission that is graded concurrently. Removed with its owner.
class Workshop {
 public:
  /// Copies the required parts of the book that `toolchain` builds. `slots`: the number of concurrent submissions.
  Workshop(const worker::Toolchain& toolchain, Isolation isolation, IsolationLimits limits, unsigned slots);

  /// The folder of slot `slot` that only the grader can read: the mirror of the book with the submission.
  std::filesystem::path mirror(unsigned slot) const;
  /// Builds a submission's workers, each in a folder with only its own sources. Workers of the book's own solutions are
  /// built outside the isolation.
  judge::Built build(unsigned slot, const std::vector<worker::WorkerJob>& jobs);
  /// The command prefix that starts a worker in this slot.
  std::vector<std::string> worker_prefix(unsigned slot, Backend backend) const;
  /// Removes the slot's submission.
  void clear(unsigned slot);

  const Isolation& isolation() const { return isolation_; }

 private:
  /// Copies the book's headers and the link inputs of workers, and points the toolchain to the copies.
  void copy_book();
  /// The common options of compilers and workers in a slot: user id, root directory, share of the cores.
  std::vector<std::string> prefix(const char* mode, unsigned slot, unsigned user) const;
  /// The CPU time limit of a compiler for a job. It is halved after a submission's first timeout and 0 after several,
  /// so that no submission delays a class by minutes.
  double build_seconds(unsigned slot, const worker::WorkerJob& job);
  /// The command prefix that compiles a worker in the isolation.
  std::vector<std::string> build_prefix(unsigned slot, unsigned thread, const std::filesystem::path& stage,
                                        Backend backend, double seconds) const;
  /// Moves a built worker to where its user may read and run it.
  void hand_over(unsigned slot, const std::string& name, worker::WorkerBuilt& built) const;
  /// Removes from a staged job the sources whose objects exist already: the book's, and those that another job of the
  /// same submission has compiled from the same files. Copies these objects to the stage for linking.
  void take_known_objects(unsigned slot, const std::filesystem::path& stage, worker::WorkerJob& staged);
  /// Keeps the objects of a job without refusals. Slot slots_ holds the book's own.
  void keep_objects(unsigned slot, const worker::Toolchain& toolchain, const worker::WorkerJob& staged,
                    const worker::WorkerBuilt& built);
  /// Prepares a stage so that only its compiler can access it.
  void open_stage(unsigned slot, unsigned thread, const std::filesystem::path& stage) const;
  /// For the book's own job: stores its names. For any job that will run: refuses forbidden names, or keeps the
  /// objects.
  void learn_or_judge(unsigned slot, const std::string& name, const worker::Toolchain& toolchain,
                      const worker::WorkerJob& staged, worker::WorkerBuilt& built);
  /// Sets the log of a failed job to a message for the student. std::runtime_error if the failure is the grader's.
  void explain(unsigned slot, double seconds, worker::WorkerBuilt& built);
  worker::WorkerBuilt build_one(unsigned slot, unsigned thread, const worker::WorkerJob& job);
  /// The slot's worker is user 0; the compiler in its thread i is user i + 1.
  unsigned user(unsigned slot, unsigned thread) const { return users_.empty() ? 0 : users_[slot].first() + thread; }

  const worker::Toolchain& toolchain_;
  std::shared_ptr<const std::filesystem::path> temporary_;  ///< folder_, removed with it
  std::filesystem::path folder_;
  FileLock lock_;  ///< lock on the folder while it is in use
  Isolation isolation_;
  IsolationLimits limits_;
  std::vector<UserIds> users_;  ///< by slot; empty if everything runs as one user
  unsigned slots_, threads_;
  worker::Toolchain inside_;  ///< the toolchain with the workshop's paths; each stage sets root and build folder
  std::mutex mutex_;          ///< protects the members below and the builds of the book's own workers
  struct KnownObject {
    std::filesystem::path object;
    std::map<std::filesystem::path, std::string> files;  ///< its source files: path relative to the stage -> text
  };
  struct KnownSource {
    judge::NameCounts books_names;  ///< names in the book's own file
    std::vector<KnownObject> objects;
  };
  /// The key is the slot (slots_ for all slots), and source and flags.
  std::map<std::pair<unsigned, std::string>, KnownSource> known_;
  std::map<Backend, double> books_seconds_;  ///< CPU time of compiling the book's code: the maximum over all chapters
  std::vector<double> lost_;  ///< by slot: compile time lost to timeouts and slow code, in multiples of the limit
};

}  // namespace workbook::grading
