// workbook_inspect OBJECT host|kernels|cuda BOOKS FILE…: prints as JSON what an object file and the preprocessed text
// beside it contain (allowed.hpp). BOOKS: a file with the names in the book's own object, or empty. The FILEs are
// linked with the object. A student made the object, so reading it may take more time or memory than a machine has:
// this process has limits, and its end is the answer's fault alone.
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <fstream>
#include <string>
#include <utility>

#include "common/judge/allowed.hpp"

int main(int argc, char** argv) {
  using namespace workbook;
  if (argc < 4) return 2;
  constexpr rlim_t memory = 1 << 30, seconds = 3;
  for (const auto& [resource, most] : {std::pair{RLIMIT_AS, memory}, {RLIMIT_CPU, seconds}, {RLIMIT_CORE, rlim_t(0)}}) {
    rlimit limit{};
    if (::getrlimit(resource, &limit) != 0) return 2;
    limit.rlim_cur = limit.rlim_max = std::min(limit.rlim_max, most);
    if (::setrlimit(resource, &limit) != 0) return 2;
  }
  try {
    const std::string kind = argv[2];
    judge::ObjectRules rules{kind != "host", kind == "cuda", judge::names_taken({argv + 4, argv + argc})};
    std::ifstream books(argv[3]);
    for (std::string name; std::getline(books, name);) rules.books.insert(name);
    const nlohmann::json document = judge::inspect(argv[1], rules);
    std::puts(document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
