// pictures: draws the lessons' pictures, and writes them or compares them with the existing files.
#include "common/pictures/pictures.hpp"

#include <fmt/format.h>

#include <map>

#include "common/book/files.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

using nlohmann::json;
using pictures::Compared, pictures::Picture, pictures::State;

/// The folder in chapters/ that "5" or "05_causal" names. A chapter without a manifest can only be named in full.
std::string folder_of(const Session& session, const std::string& which) {
  if (std::filesystem::is_directory(session.book.root / "chapters" / which)) return which;
  return session.book.chapter(which).name();
}

}  // namespace

int pictures(const Session& session, const PicturesOptions& options) {
  std::vector<std::string> folders;
  for (const std::string& which : options.folders) folders.push_back(folder_of(session, which));
  const std::vector<Picture> drawn = pictures::draw(session, folders);
  std::map<std::string, bool> written;
  for (const Picture& picture : drawn) {
    if (!options.check && picture.why_not.empty())
      written[picture.file] = book::write_if_changed(picture.file, picture.text);
  }
  bool current = true;
  json files = json::array();
  for (const Compared& picture : pictures::compare(drawn)) {
    const bool right = picture.state == State::current || picture.state == State::unknown;
    current = current && right;
    const std::string file = session.shown(picture.file);
    files.push_back({{"file", file},
                     {"state", name(picture.state)},
                     {"written", written[picture.file]},
                     {"why", picture.why.empty() ? json(nullptr) : json(picture.why)}});
    if (session.json) continue;
    fmt::print("{} {}{}\n",
               session.colored(fmt::format("{:<8}", written[picture.file] ? "written" : name(picture.state)),
                               right ? "green" : "red"),
               file, picture.why.empty() ? "" : ": " + picture.why);
  }
  if (session.json) print_json({{"pictures", files}});
  if (!session.json && !current && options.check) fmt::print("./workbook pictures updates them\n");
  return current ? kDone : kTestFailed;
}

}  // namespace workbook::cli
