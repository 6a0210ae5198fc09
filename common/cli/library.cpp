// library: builds the stages of chapters as a shared library with a C interface, for use by other programs.
#include "common/judge/library.hpp"

#include <algorithm>
#include <filesystem>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;

int library(const Session& session, const LibraryOptions& options) {
  judge::LibraryRequest request;
  request.tree = options.solutions ? "solutions" : "chapters";
  const bool on_gpu = options.backend.empty() ? session.toolchain.can_build(Backend::cuda) && worker::gpu_present()
                                              : options.backend == name(Backend::cuda);
  request.backend = on_gpu ? Backend::cuda : Backend::sim;
  std::vector<std::int64_t> numbers;
  for (const std::int64_t number : options.chapters) {
    if (std::ranges::count(numbers, number) > 0) continue;
    numbers.push_back(number);
    request.chapters.push_back(&session.book.chapter(std::to_string(number)));
  }
  const std::vector<std::string> open =
      options.solutions ? std::vector<std::string>() : judge::open_exercises(session.book, request.chapters);
  const fs::path folder = options.out.empty() ? session.book.root / ".workbook" / "library" : fs::path(options.out);
  require_folder("--out", folder);
  const fs::path built = judge::build_library(session, request);
  const fs::path file = folder / fmt::format("libworkbook_{}.so", name(request.backend)),
                 header = folder / "workbook.h";
  // A program that has loaded the old library keeps the old file, unlinked.
  book::write_file(file, book::read_file(built));
  book::write_file(header, book::read_file(session.book.root / "common" / "cuda" / "workbook.h"));
  if (session.json) {
    print_json({{"library", session.shown(file)},
                {"header", session.shown(header)},
                {"backend", name(request.backend)},
                {"tree", request.tree},
                {"chapters", numbers},
                {"open", open}});
    return kDone;
  }
  fmt::print("{}, {}: {} chapter{} {}, on {}\n", session.shown(file), session.shown(header),
             options.solutions ? "the book's" : "your", request.chapters.size() == 1 ? "" : "s",
             fmt::join(numbers, ", "), text(request.backend));
  if (!open.empty())
    fmt::print("still open: {}; a call that reaches one of these exercises returns an error\n", fmt::join(open, ", "));
  return kDone;
}

}  // namespace workbook::cli
