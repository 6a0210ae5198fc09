// site: writes the book as web pages, by starting the JavaScript program in notes/site.
#include <filesystem>

#include "common/cli/verbs.hpp"
#include "common/worker/command.hpp"

namespace workbook::cli {
namespace {

namespace fs = std::filesystem;

}  // namespace

int site(const Session& session, const SiteOptions& options) {
  const fs::path program = session.book.root / "notes" / "site" / "site.mjs";
  if (!fs::exists(program))
    throw EnvironmentError("notes/site does not exist here; the folder of an assignment omits it");
  for (const char* needed : {"node", "npm"}) {
    if (worker::find_program(needed).empty()) {
      throw EnvironmentError(fmt::format(
          "site needs Node 18 or later and npm, and {} is missing; on Debian and Ubuntu: apt install nodejs npm",
          needed));
    }
  }
  std::vector<std::string> argv{"node", program.string(), "build"};
  if (!options.out.empty()) argv.insert(argv.end(), {"--out", fs::absolute(options.out).string()});
  if (options.with_solutions) argv.emplace_back("--with-solutions");
  worker::CommandOptions command;
  command.capture = session.json;
  const worker::CommandResult result = worker::run_command(argv, command);
  if (!session.json || result.exit_code != kDone) {
    if (session.json) print_error("{}", result.output);
    return result.exit_code;
  }
  const fs::path out = options.out.empty() ? session.book.root / "build" / "site" / "pages" : fs::absolute(options.out);
  print_json({{"index", (out / "index.html").string()}, {"with_solutions", options.with_solutions}});
  return kDone;
}

}  // namespace workbook::cli
