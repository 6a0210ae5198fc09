// What other programs think of the book: formatters, shells, sanitizers, linters.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>

#include "common/book/files.hpp"
#include "common/book/folders.hpp"
#include "common/gates/groups.hpp"
#include "common/worker/command.hpp"
#include "common/worker/share_cores.hpp"

namespace workbook::gates {
namespace fs = std::filesystem;
namespace {

using judge::Workspace;

void check_sanitized(const Inspection& inspection, Findings& findings, const std::string& preset,
                     const std::string& compiler) {
  const Workspace& workspace = inspection.workspace;
  worker::CommandOptions options;
  options.folder = workspace.book.root;
  std::vector<std::string> configure{workspace.toolchain.cmake, "--preset", preset};
  if (!compiler.empty()) configure.push_back("-DCMAKE_CXX_COMPILER=" + compiler);
  const fs::path build = workspace.book.root / "build" / preset;
  worker::CommandResult result = worker::run_command(configure, options);
  if (result.exit_code == 0) {
    workspace.progress("building " + preset);
    result = worker::run_command({workspace.toolchain.cmake, "--build", build.string(), "--target", "workbook_cli"},
                                 options);
  }
  findings.expect(result.exit_code == 0,
                  result.output.size() > 4000 ? result.output.substr(result.output.size() - 4000) : result.output);
  if (result.exit_code != 0) return;
  workspace.progress("testing " + preset);
  options.environment["WORKBOOK_BUILD"] = build.string();
  options.environment["WORKBOOK_ROOT"] = workspace.book.root.string();
  std::vector<std::string> check{(build / "bin" / "workbook_cli").string(), "check"};
  for (const char* gate : {"parts", "solutions", "stub trees", "run"}) check.insert(check.end(), {"--gate", gate});
  result = worker::run_command(check, options);
  findings.expect(result.exit_code == 0, result.output);
  findings.detail = result.output.substr(result.output.rfind('\n', result.output.size() - 2) + 1);
  while (!findings.detail.empty() && findings.detail.back() == '\n') findings.detail.pop_back();
}

/// The folder with the build's commands as clang reads them: g++'s precompiled header is none of its own.
fs::path commands_for_clang(const Workspace& workspace) {
  static const std::regex precompiled(" -Winvalid-pch -include .*?cmake_pch\\.hxx\\S*");
  const fs::path folder = workspace.toolchain.build_folder / "check" / "clang";
  const std::string commands = book::read_file(workspace.toolchain.build_folder / "compile_commands.json");
  book::write_if_changed(folder / "compile_commands.json", std::regex_replace(commands, precompiled, ""));
  return folder;
}

}  // namespace

void check_format(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  constexpr const char* version = "14";
  fs::path program = worker::find_program(std::string("clang-format-") + version);
  if (program.empty()) program = worker::find_program("clang-format");
  if (program.empty() ||
      worker::run_command({program.string(), "--version"}).output.find(std::string("version ") + version + ".") ==
          std::string::npos) {
    findings.skip_reason = fmt::format("clang-format {} is not here", version);
    return;
  }
  std::vector<std::string> argv{program.string(), "--dry-run", "-Werror", "--style=file"};
  std::size_t files = 0;
  for (const char* folder : {"common", "solutions", "tests"}) {
    for (const fs::path& file : book::files_below(workspace.book.root / folder)) {
      if (!book::is_code(file)) continue;
      argv.push_back(fs::relative(file, workspace.book.root).string());
      ++files;
    }
  }
  worker::CommandOptions options;
  options.folder = workspace.book.root;
  const worker::CommandResult result = worker::run_command(argv, options);
  findings.expect(result.exit_code == 0, result.output.substr(0, 3000));
  findings.detail = fmt::format("{} files", files);
}

namespace {

/// Counts lines "ok …", "skipped …" and "not ok …" of a program's tests.
void take_lines(const worker::CommandResult& result, Findings& findings) {
  std::istringstream lines(result.output);
  int problems = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("ok ")) ++findings.passed;
    if (line.starts_with("skipped")) ++findings.skipped;
    if (line.starts_with("not ok")) {
      ++problems;
      findings.problems.push_back(line);
    }
  }
  if (result.exit_code != 0 && problems == 0) findings.problems.push_back(result.output);
  findings.detail = fmt::format("{} tests", findings.passed);
}

/// What trace writes as a page, and beside it what --json says of the same run.
void write_trace(const Workspace& workspace, const fs::path& page, std::vector<std::string> options) {
  std::vector<std::string> argv{(workspace.toolchain.build_folder / "bin" / "workbook_cli").string(), "trace"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.insert(argv.end(), {"--solutions", "--heads", "1", "--json", "--lines", "--html", page.string()});
  const worker::CommandResult result = worker::run_command(argv);
  if (result.exit_code != 0) throw std::runtime_error("trace failed:\n" + result.output);
  book::write_file(fs::path(page).replace_extension(".json"), result.output);
}

/// The page of the first chapter's kernels that follow others on the simulator, and one of it beside the next chapter
/// (…_beside.html); empty if there can be none.
fs::path trace_page_of(const Workspace& workspace) {
  std::vector<std::string> numbers;
  for (const book::Chapter& chapter : workspace.book.chapters) {
    if (chapter.runs_on(Backend::sim) && chapter.pass == "forward") numbers.push_back(std::to_string(chapter.number));
  }
  if (numbers.size() < 3 || !workspace.toolchain.counts) return {};
  const fs::path page = workspace.toolchain.build_folder / "check" / "trace.html";
  fs::create_directories(page.parent_path());
  write_trace(workspace, page, {numbers[1], "--seq", "1024"});
  write_trace(workspace, page.parent_path() / "trace_beside.html",
              {numbers[1], "--seq", "128", "--beside", numbers[2]});
  return page;
}

}  // namespace

void check_launcher(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  const fs::path tests = workspace.book.root / "tests" / "launcher" / "test_launcher.sh";
  const worker::CommandResult syntax = worker::run_command({"sh", "-n", (workspace.book.root / "workbook").string()});
  findings.expect(syntax.exit_code == 0, syntax.output);
  if (!worker::find_program("shellcheck").empty()) {
    worker::CommandOptions options;
    options.folder = workspace.book.root;
    const worker::CommandResult lint = worker::run_command({"shellcheck", "workbook", ".ci/run"}, options);
    findings.expect(lint.exit_code == 0, lint.output);
  }
  const worker::CommandResult result =
      worker::run_command({"sh", tests.string(), (workspace.book.root / "workbook").string()});
  take_lines(result, findings);
}

void check_site(Inspection& inspection, Findings& findings) {
  for (const char* needed : {"node", "npm"}) {
    if (!worker::find_program(needed).empty()) continue;
    findings.skip_reason = fmt::format("{} is not here", needed);
    return;
  }
  const Workspace& workspace = inspection.workspace;
  std::vector<std::string> argv{"node", (workspace.book.root / "notes" / "site" / "site.mjs").string(), "test"};
  if (const fs::path page = trace_page_of(workspace); !page.empty())
    argv.insert(argv.end(), {"--trace", page.string()});
  const worker::CommandResult result = worker::run_command(argv);
  constexpr int npm_failed = 3;
  if (result.exit_code == npm_failed) {
    findings.skip_reason = result.output.substr(0, 300);
    return;
  }
  take_lines(result, findings);
  if (result.output.find("skipped: Chromium") != std::string::npos)
    findings.detail += "; no page was opened: Chromium is not here";
}

void check_sanitized_by_gcc(Inspection& inspection, Findings& findings) {
  check_sanitized(inspection, findings, "asan-ubsan-gcc", "");
}

void check_sanitized_by_clang(Inspection& inspection, Findings& findings) {
  const fs::path compiler = worker::find_clang("clang++");
  if (compiler.empty()) {
    findings.skip_reason = "clang++ 16 or newer is not here";
    return;
  }
  check_sanitized(inspection, findings, "asan-ubsan-clang", compiler.string());
}

void check_tidy(Inspection& inspection, Findings& findings) {
  const Workspace& workspace = inspection.workspace;
  const fs::path program = worker::find_clang("clang-tidy");
  if (program.empty()) {
    findings.skip_reason = "clang-tidy 16 or newer is not here";
    return;
  }
  std::vector<std::string> files;
  for (const char* folder : {"common", "solutions"}) {
    for (const fs::path& file : book::files_below(workspace.book.root / folder)) {
      const bool kernels = file.extension() == ".cu" && std::string(folder) == "solutions";
      if (file.extension() == ".cpp" || kernels) files.push_back(file.string());
    }
  }
  std::sort(files.begin(), files.end());
  const fs::path commands = commands_for_clang(workspace);
  std::vector<worker::CommandResult> results(files.size());
  workspace.progress(fmt::format("clang-tidy {} files", files.size()));
  worker::share_cores(files.size(), [&](std::size_t i) {
    const std::string& file = files[i];
    std::vector<std::string> command{program.string(), "--quiet", "--warnings-as-errors=*"};
    // The simulator and the kernels are compiled with flags of g++ that clang-tidy does not know: here without them.
    const bool kernels = file.ends_with(".cu"), simulator = file.find("/common/simt/") != std::string::npos;
    if (kernels) {
      // Sizes that a template chooses between may be equal; offsets within a tile are int on purpose; an element's row
      // is i / 16, rounded down, also where it is stored as a float; vectors go by value, as in CUDA; a fragment's
      // num_elements is static.
      command.emplace_back(
          "--checks=-bugprone-branch-clone,-bugprone-implicit-widening-of-multiplication-result,"
          "-bugprone-integer-division,-performance-unnecessary-value-param,"
          "-readability-static-accessed-through-instance");
    }
    if (kernels || simulator) {
      command.insert(command.end(),
                     {file, "--", "-x", "c++", "-std=c++20", "-I" + workspace.book.root.string(),
                      "-I" + (workspace.book.root / "solutions").string(), "-Wall", "-Wextra", "-Wno-unknown-pragmas"});
    } else {
      command.insert(command.end(), {"-p", commands.string(), file});
    }
    results[i] = worker::run_command(command);
  });
  for (std::size_t i = 0; i < files.size(); ++i)
    findings.expect(results[i].exit_code == 0, workspace.shown(files[i]) + ":\n" + results[i].output);
  findings.detail = fmt::format("{} files", files.size());
}

}  // namespace workbook::gates
