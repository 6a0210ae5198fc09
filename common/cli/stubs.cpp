// stubs: generates chapters/ from solutions/, without overwriting a reader's work.
#include "common/book/stubs.hpp"

#include "common/cli/verbs.hpp"

namespace workbook::cli {

int stubs(const Session& session, const StubsOptions& options) {
  const book::StubsWritten result = book::write_stubs(session.book, options.force);
  const auto shown = [&](const std::vector<std::filesystem::path>& paths) {
    std::vector<std::string> names;
    for (const auto& path : paths) names.push_back(session.shown(path));
    return names;
  };
  if (session.json) {
    print_json({{"written", shown(result.written)}, {"kept", shown(result.kept)}, {"backups", shown(result.backups)}});
  } else {
    for (const std::string& name : shown(result.written)) fmt::print("written: {}\n", name);
    for (const std::string& name : shown(result.backups)) fmt::print("kept a copy: {}\n", name);
    for (const std::string& name : shown(result.kept)) fmt::print("kept, it contains your work: {}\n", name);
    if (!result.kept.empty()) fmt::print("--force overwrites them too, after copying them to .workbook/backup/\n");
    if (result.written.empty() && result.kept.empty()) fmt::print("every stub is up to date\n");
  }
  return result.kept.empty() ? kDone : kTestFailed;
}

}  // namespace workbook::cli
