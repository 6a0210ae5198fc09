// watch: tests a chapter or an exercise again whenever one of its files is saved. It polls, because under WSL2 Linux
// programs receive no file events for saves by Windows editors.
#include <chrono>
#include <filesystem>
#include <map>
#include <thread>

#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

using Times = std::map<std::string, std::filesystem::file_time_type>;

Times save_times(const Session& session, const book::Chapter& chapter) {
  Times times;
  for (const std::string& file : chapter.files) {
    std::error_code missing;  // editors replace files, so a file may be missing for a moment
    times[file] = std::filesystem::last_write_time(session.book.reader(chapter, file), missing);
  }
  return times;
}

}  // namespace

int watch(const Session& session, const WatchOptions& watched) {
  const std::string& which = watched.chapter;
  // A chapter, or one of its exercises.
  const std::size_t point = which.find('.');
  const book::Chapter& chapter =
      session.book.chapter(point == std::string::npos ? which : session.book.exercise(which).id.substr(0, point));
  TestOptions options;
  options.chapters = {which};
  for (Times seen;;) {
    const Times now = save_times(session, chapter);
    if (now != seen) {
      seen = now;
      if (session.terminal) fmt::print("\x1b[H\x1b[2J");
      try {
        test(session, options);
      } catch (const std::runtime_error& error) {
        print_error("{}\n", error.what());
      }
      if (!session.json)
        fmt::print("\nwatching chapters/{}: save a file to test again, Ctrl-C to stop\n", chapter.name());
      std::fflush(stdout);
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(watched.poll));
  }
}

}  // namespace workbook::cli
