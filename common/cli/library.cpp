// library: builds the stages of chapters as a shared library with a C interface, for use by other programs.
#include "common/judge/library.hpp"

#include <algorithm>
#include <filesystem>

#include "common/attention/error.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

/// Replaces a file by a copy of another. A program that has loaded the old library keeps the old file, unlinked.
void put(const fs::path& from, const fs::path& to) {
  const fs::path next = to.string() + ".new";
  std::error_code error;
  fs::copy_file(from, next, fs::copy_options::overwrite_existing, error);
  if (!error) fs::rename(next, to, error);
  if (error) judge::fail_environment("cannot write {}: {}", to.string(), error.message());
}

}  // namespace

int library(const Session& session, const LibraryOptions& options) {
  judge::LibraryRequest request;
  request.tree = options.solutions ? "solutions" : "chapters";
  const bool on_gpu = options.backend.empty() ? session.toolchain.can_build(Backend::cuda) && worker::gpu_present()
                                              : options.backend == name(Backend::cuda);
  request.backend = on_gpu ? Backend::cuda : Backend::sim;
  for (const std::int64_t number : options.chapters) {
    const book::Chapter* chapter = &session.book.chapter(std::to_string(number));
    if (std::ranges::count(request.chapters, chapter) == 0) request.chapters.push_back(chapter);
  }
  const std::vector<std::string> open =
      options.solutions ? std::vector<std::string>() : judge::open_exercises(session.book, request.chapters);
  const fs::path folder = options.out.empty() ? session.book.root / ".workbook" / "library" : fs::path(options.out);
  require_folder("--out", folder);
  const fs::path built = judge::build_library(session, request);
  const fs::path file = folder / fmt::format("libworkbook_{}.so", name(request.backend)),
                 header = folder / "workbook.h";
  put(built, file);
  put(session.book.root / "common" / "cuda" / "workbook.h", header);
  if (session.json) {
    print_json({{"library", session.shown(file)},
                {"header", session.shown(header)},
                {"backend", name(request.backend)},
                {"tree", request.tree},
                {"chapters", options.chapters},
                {"open", open}});
    return kDone;
  }
  fmt::print("{}, {}: {} chapter{} {}, on {}\n", session.shown(file), session.shown(header),
             options.solutions ? "the book's" : "your", request.chapters.size() == 1 ? "" : "s",
             fmt::join(options.chapters, ", "), text(request.backend));
  if (!open.empty())
    fmt::print("still open: {}; a call that reaches one of these exercises returns an error\n", fmt::join(open, ", "));
  return kDone;
}

}  // namespace workbook::cli
