#include "tests/cli/traced_book.hpp"

#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "common/book/files.hpp"
#include "common/book/manifest.hpp"
#include "common/book/stubs.hpp"

namespace workbook::test {

namespace fs = std::filesystem;
using nlohmann::json;

void require_counts() {
  const json toolchain = json::parse(book::read_file(fs::path(WORKBOOK_BINARY) / "toolchain.json"));
  if (!toolchain.at("backends").contains("sim") || !toolchain.at("counts").get<bool>()) {
    SKIP("the simulator does not count in this build: " << toolchain.at("simulator"));
  }
}

WorkbookCopy book_with(const std::string& chapter) {
  const WorkbookCopy book;
  std::vector<std::string> folders{"chapters/" + chapter, "solutions/" + chapter, "tests/" + chapter};
  const book::Chapter manifest = book::load_chapter(fs::path(WORKBOOK_SOURCE) / folders[0] / "chapter.toml");
  for (const std::string& used : manifest.uses) folders.push_back("solutions/" + used);
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::directory_iterator(fs::path(WORKBOOK_SOURCE) / folder)) {
      const std::string extension = entry.path().extension();
      const bool stub = folder.starts_with("chapters/") && extension != ".toml" && extension != ".md";
      if (stub || !entry.is_regular_file()) continue;
      const std::string copy = fmt::format("{}/{}", folder, entry.path().filename().string());
      book.write(copy, book::read_file(entry.path()));
      fs::last_write_time(book / copy, fs::last_write_time(entry.path()));  // files built from it stay valid
    }
  }
  book::write_stubs(book::load_book(book.root()), /*force=*/true);
  return book;
}

json page_facts(const std::string& html) {
  const std::string begin = "<script type=\"application/json\">";
  const std::size_t from = html.find(begin) + begin.size();
  return json::parse(html.substr(from, html.find("</script>", from) - from));
}

}  // namespace workbook::test
