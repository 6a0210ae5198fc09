// The verbs of who reads the book and does its exercises.
#include "common/attention/error.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

Runner declare_status(Options& /*options*/) {
  return runner(status, std::make_shared<StatusOptions>());
}

Runner declare_run(Options& options) {
  const auto given = std::make_shared<RunOptions>();
  const std::function<void()> finish_input = declare_problem(options, *given);
  const Allowed a_file = not_empty("a file name");
  options.option("--out", given->out, "Write O of the last stage as .npy").allow(a_file);
  options.option("--lse", given->lse, "Write the LSE of the last stage as .npy").allow(a_file);
  options.option("--stage", given->stage, "Only this chapter's stage").allow(not_empty("a chapter"));
  options.option("--backend", given->backend, "Only on this backend")
      .allow(one_of({"cpu", "sim", "cuda"}, "cpu, sim or cuda"));
  declare_element(options, given->element);
  options.option("--pass", given->pass, "Only the forward or the backward pass")
      .allow(one_of({"forward", "backward"}, "forward or backward"));
  declare_gpu(options, given->gpu);
  options.option("--memory", given->memory, "The most memory that a stage may use, e.g. 512M or 2G")
      .allow(not_empty("a size"));
  options.flag("--chapters", given->chapters, "Your own stages instead of the book's");
  options.flag("--all", given->all, "One row per stage: all errors, memory, traffic and times");
  return runner(run, given, [=] {
    finish_input();
    simulate(given->gpu, given->backend);
  });
}

Runner declare_test(Options& options) {
  const auto given = std::make_shared<TestOptions>();
  options.option("chapters", given->chapters, "Chapters (2) or exercises (2.1); default: all chapters");
  options.flag("--solutions", given->solutions, "The book's solutions in place of your code");
  options.option("--previous", given->previous, "Where the chapter before comes from")
      .allow(one_of({"solutions", "chapters"}, "solutions or chapters"))
      .show_default();
  options.option("--only", given->only, "One test, by its name").allow(not_empty("a test's name"));
  options.flag("--debug", given->debug, "Run your code under a debugger, stopped in the exercise");
  options.flag("--verbose", given->verbose, "Every failing test in full");
  options.option("--backend", given->backend, "Only on this backend")
      .allow(one_of({"cpu", "sim", "cuda"}, "cpu, sim or cuda"));
  declare_gpu(options, given->gpu);
  options.option("--sanitizer", given->sanitizer, "A tool of compute-sanitizer to watch the GPU's kernels")
      .allow(
          one_of({"memcheck", "racecheck", "synccheck", "initcheck"}, "memcheck, racecheck, synccheck or initcheck"));
  options.option("--time-limit", given->time_limit, "Seconds that one call may take")
      .allow(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      .show_default();
  options.option("--junit", given->junit, "Also write the results as JUnit XML").allow(not_empty("a file name"));
  options.option("--summary", given->summary, "Also add the results to this file, as Markdown")
      .allow(not_empty("a file name"));
  return runner(test, given, [=] { simulate(given->gpu, given->backend); });
}

Runner declare_hint(Options& options) {
  const auto given = std::make_shared<HintOptions>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--all", given->all, "All its hints");
  return runner(hint, given);
}

Runner declare_reset(Options& options) {
  const auto given = std::make_shared<ResetOptions>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--file", given->file, "The whole file that holds the exercise");
  return runner(reset, given);
}

Runner declare_watch(Options& options) {
  const auto given = std::make_shared<WatchOptions>();
  options.option("chapter", given->chapter, "A chapter, or an exercise").required();
  options.option("--poll", given->poll, "Seconds between looks")
      .allow(number(0.05, 60, "seconds, from 0.05 to 60"))
      .show_default();
  return runner(watch, given);
}

Runner declare_trace(Options& options) {
  const auto given = std::make_shared<TraceOptions>();
  options.option("chapter", given->chapter, "A chapter with kernels").required();
  options.flag("--solutions", given->solutions, "The book's solution in place of your code");
  const std::function<void()> finish_input = declare_problem(options, *given);
  options.option("--br", given->Br, "Queries in a tile (default: the chapter's)").allow(whole_number<std::int64_t>(1));
  options.option("--bc", given->Bc, "Keys in a tile (default: the chapter's)").allow(whole_number<std::int64_t>(1));
  options.option("--set", given->set, "A number for the chapter's kernels, e.g. warps=2")
      .allow(not_empty("NAME=NUMBER"));
  options.flag("--metrics", given->metrics, "Every counter, with Nsight Compute's name for it");
  options.flag("--lines", given->lines, "What each line asks for, beside the book's and the chapter before");
  options.option("--operation", given->operation, "Another of the chapter's kernels, e.g. lab")
      .allow(not_empty("a name"));
  declare_element(options, given->element);
  options.option("--pass", given->pass, "The forward or the backward pass (default: the chapter's first)")
      .allow(one_of({"forward", "backward"}, "forward or backward"));
  declare_gpu(options, given->gpu);
  options.option("--html", given->html, "Also write a page that shows it").allow(not_empty("a file name"));
  options.option("--beside", given->beside, "On that page too: a chapter, \"causal\" (or not), or \"book\"")
      .allow(not_empty("a chapter, causal or book"));
  return runner(trace, given, [=] {
    finish_input();
    simulate(given->gpu);
  });
}

Runner declare_doctor(Options& options) {
  const auto given = std::make_shared<DoctorOptions>();
  options.flag("--kernels", given->kernels, "Also how many blocks of each chapter's kernel fit a multiprocessor");
  declare_gpu(options, given->gpu);
  return runner(doctor, given, [=] { simulate(given->gpu); });
}

Runner declare_solution(Options& options) {
  const auto given = std::make_shared<SolutionOptions>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--anyway", given->anyway, "Also before yours has passed");
  return runner(solution, given);
}

Runner declare_library(Options& options) {
  const auto given = std::make_shared<LibraryOptions>();
  options.option("--chapters", given->chapters, "Whose stages, as 8,9: of several that can do a call the first does it")
      .allow(number(1, 99, "numbers of chapters"))
      .separated_by(',')
      .required();
  options.flag("--solutions", given->solutions, "The book's code, not yours");
  options.option("--out", given->out, "Folder for the library and its header (.workbook/library)")
      .allow(not_empty("a folder"));
  options
      .option(
          "--backend", given->backend,
          "What it runs on: a GPU, or the simulator that it then brings along (default: the GPU where there is one)")
      .allow(one_of({"sim", "cuda"}, "sim or cuda"));
  return runner(library, given);
}

}  // namespace

std::vector<Verb> readers_verbs() {
  return {
      {"status", kReader, "The book at a glance: chapters, exercises, what to do next", "./workbook", declare_status},
      {"run", kReader, "Attend over a real text, or your own Q, K, V, with every stage, and check each one",
       "./workbook run --seq 2048 --causal\n         ./workbook run --q q.npy --k k.npy --v v.npy --out o.npy",
       declare_run},
      {"test", kTest, "Test your code: chapters or single exercises", "./workbook test 2\n         ./workbook test 2.1",
       declare_test},
      {"hint", kReader, "The next hint of an exercise", "./workbook hint 2.2", declare_hint},
      {"reset", kReader, "Put an exercise back to its TODO; a copy of your work is kept", "./workbook reset 2.2",
       declare_reset},
      {"watch", kTest, "Test a chapter again whenever you save", "./workbook watch 2", declare_watch},
      {"trace", kTest,
       "What a chapter's kernels do, counted on the simulator: traffic, conflicts, which tiles are read",
       "./workbook trace 3\n         ./workbook trace 3 --br 32 --metrics --html trace.html", declare_trace},
      {"doctor", kTest, "What was found here, what is missing, and what therefore cannot run", "./workbook doctor",
       declare_doctor},
      {"solution", kTest, "The book's answer beside yours, once yours has passed, and why it is as it is",
       "./workbook solution 3.8", declare_solution},
      {"library", kTest, "Your kernels as a library with a C interface, for PyTorch and numpy",
       "./workbook library --chapters 8,9\n         ./workbook library --chapters 11,13 --solutions --backend sim",
       declare_library},
  };
}

}  // namespace workbook::cli
