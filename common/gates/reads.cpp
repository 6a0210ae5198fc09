#include "common/gates/reads.hpp"

#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <exception>
#include <optional>
#include <thread>

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

/// The number of the chapter that a file belongs to; nothing for one that is of no chapter.
std::optional<int> chapter_of(const fs::path& relative) {
  for (const fs::path& part : relative) {
    const std::string name = part.string();
    if (name.size() > 2 && name[2] == '_' && name.find_first_not_of("0123456789") == 2) return std::stoi(name);
  }
  return {};
}

/// What may be read: a set of rules of Landlock, which knows of no exceptions from what is allowed.
class Readable {
 public:
  Readable(const OfChapters& reads, const fs::path& root) : reads_(reads), root_(root) {
    landlock_ruleset_attr handled{};
    handled.handled_access_fs = LANDLOCK_ACCESS_FS_READ_FILE;
    rules_ = int(::syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0));
    if (rules_ >= 0) allow_in("/");
  }
  ~Readable() {
    if (rules_ >= 0) ::close(rules_);
  }
  Readable(const Readable&) = delete;
  Readable& operator=(const Readable&) = delete;

  /// Holds from now on, for this thread and what it starts.
  bool restrict_thread() const {
    return rules_ >= 0 && ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           ::syscall(SYS_landlock_restrict_self, rules_, 0) == 0;
  }

 private:
  void allow_in(const fs::path& folder) {
    std::error_code gone;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, gone)) {
      const fs::path to_root = root_.lexically_relative(entry.path()),
                     relative = entry.path().lexically_relative(root_);
      const bool is_above = !to_root.empty() && *to_root.begin() != "..";  // or the root itself
      const bool is_within = !relative.empty() && *relative.begin() != "..";
      const bool is_source = is_within && *relative.begin() != "build" && *relative.begin() != ".git";
      if (entry.is_directory(gone) && !entry.is_symlink(gone) && (is_above || is_source))
        allow_in(entry.path());
      else if (!is_source || reads_.take(relative))
        allow(entry.path());
    }
  }

  void allow(const fs::path& path) const {
    landlock_path_beneath_attr beneath{};
    beneath.allowed_access = LANDLOCK_ACCESS_FS_READ_FILE;
    beneath.parent_fd = ::open(path.c_str(), O_PATH | O_CLOEXEC);
    if (beneath.parent_fd < 0) return;
    ::syscall(SYS_landlock_add_rule, rules_, LANDLOCK_RULE_PATH_BENEATH, &beneath, 0);
    ::close(beneath.parent_fd);
  }

  const OfChapters& reads_;
  const fs::path& root_;
  int rules_ = -1;
};

}  // namespace

bool OfChapters::take(const fs::path& relative) const {
  const std::optional<int> chapter = chapter_of(relative);
  return !chapter || chapters.contains(*chapter) || names.contains(relative.filename().string());
}

bool with_only(const OfChapters& reads, const fs::path& root, const std::function<void()>& task) {
  const Readable readable(reads, root);
  bool restricted = false;
  std::exception_ptr failure;
  std::thread([&] {
    restricted = readable.restrict_thread();
    try {
      task();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
  return restricted;
}

}  // namespace workbook::gates
