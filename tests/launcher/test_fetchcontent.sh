#!/bin/sh
# Tests that the book builds with downloaded libraries (cmake/WorkbookDependencies.cmake), without downloading: the
# libraries' sources are folders given here. Without them it says that it skips, and ends with 77.
#
#     sh tests/launcher/test_fetchcontent.sh FMT NLOHMANN_JSON CLI11 TOMLPLUSPLUS CATCH2 BOOST
set -u

if [ $# -ne 6 ]; then
  echo "skipped fetchcontent: needs the source folders of fmt, nlohmann_json, CLI11, toml++, Catch2 and Boost as arguments"
  exit 77
fi
root=$(CDPATH='' cd -- "$(dirname -- "$0")/../.." && pwd -P) || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf -- "$work"' EXIT
failed=0
step() {  # step NAME COMMAND...: one line of result; the output only if it failed
  name=$1
  shift
  if "$@" >"$work/log" 2>&1; then
    echo "ok $name"
  else
    echo "not ok $name"
    tail -n 40 -- "$work/log" | sed 's/^/    /'
    failed=1
  fi
}

# A small book that uses every library as the real one does: strict warnings, tests that CTest discovers.
book="$work/small book"
build=$book/build
mkdir -p -- "$book"
cat >"$book/CMakeLists.txt" <<END
cmake_minimum_required(VERSION 3.25)
project(small_book LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
list(APPEND CMAKE_MODULE_PATH "$root/cmake")
include(WorkbookDependencies)
enable_testing()
add_library(part STATIC part.cpp)
target_compile_options(part PRIVATE -Wall -Wextra -Werror)
target_link_libraries(part PUBLIC fmt::fmt nlohmann_json::nlohmann_json tomlplusplus::tomlplusplus Boost::context)
add_executable(workbook_cli cli.cpp)
target_compile_options(workbook_cli PRIVATE -Wall -Wextra -Werror)
target_link_libraries(workbook_cli PRIVATE part CLI11::CLI11 Threads::Threads)
add_executable(tests_part test_part.cpp)
target_link_libraries(tests_part PRIVATE part Catch2::Catch2WithMain)
catch_discover_tests(tests_part)
END
cat >"$book/part.cpp" <<'END'
#include <boost/context/detail/fcontext.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <toml++/toml.h>
std::string part() {
  const toml::table table = toml::parse("answer = 42");
  nlohmann::json json;
  json["answer"] = table["answer"].value_or(0);
  static char stack[4096];
  if (boost::context::detail::make_fcontext(stack + sizeof stack, sizeof stack, nullptr) == nullptr) return "no context";
  return fmt::format("{}", json.dump());
}
END
cat >"$book/cli.cpp" <<'END'
#include <CLI/CLI.hpp>
#include <iostream>
std::string part();
int main(int argc, char** argv) {
  CLI::App app{"small book"};
  CLI11_PARSE(app, argc, argv);
  std::cout << part() << "\n";
}
END
cat >"$book/test_part.cpp" <<'END'
#include <catch2/catch_test_macros.hpp>
#include <string>
std::string part();
TEST_CASE("every library answers") { CHECK(part() == "{\"answer\":42}"); }
END

step "configures with downloaded libraries" cmake -S "$book" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DWORKBOOK_FETCH=ON -DFETCHCONTENT_FULLY_DISCONNECTED=ON \
  "-DFETCHCONTENT_SOURCE_DIR_FMT=$1" "-DFETCHCONTENT_SOURCE_DIR_NLOHMANN_JSON=$2" \
  "-DFETCHCONTENT_SOURCE_DIR_CLI11=$3" "-DFETCHCONTENT_SOURCE_DIR_TOMLPLUSPLUS=$4" \
  "-DFETCHCONTENT_SOURCE_DIR_CATCH2=$5" "-DFETCHCONTENT_SOURCE_DIR_BOOST=$6"
step "builds with downloaded libraries" cmake --build "$build"
# shellcheck disable=SC2317  # called through step
no_packages() { ! grep -E '^(fmt|nlohmann_json|CLI11|tomlplusplus|Catch2|Boost)_DIR:PATH=/' "$build/CMakeCache.txt"; }
step "nothing comes from the system's packages" no_packages
# shellcheck disable=SC2317
one_test() { ctest --test-dir "$build" >"$work/ctest" && grep 'passed, 0 tests failed out of 1$' "$work/ctest"; }
step "only the book's own test runs" one_test
step "the command runs" "$build/workbook_cli"
exit $failed
