// The verbs for readers, who do the exercises.
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
  options.option("--out", given->out, "Write the last stage's O to this .npy file").allow(a_file);
  options.option("--lse", given->lse, "Write the last stage's LSE to this .npy file").allow(a_file);
  options.option("--stage", given->stage, "Run only this chapter's stage").allow(not_empty("a chapter"));
  options.option("--backend", given->backend, "Run only on this backend")
      .allow(one_of({"cpu", "sim", "cuda"}, "cpu, sim or cuda"));
  declare_element(options, given->element);
  options.option("--set", given->set, "Set a parameter of the kernels of --stage, e.g. ranks=2")
      .allow(not_empty("NAME=NUMBER"));
  options.option("--pass", given->pass, "Run only the forward or only the backward pass")
      .allow(one_of({"forward", "backward"}, "forward or backward"));
  declare_gpu(options, given->gpu);
  options.option("--memory", given->memory, "Memory limit per stage, e.g. 512M or 2G").allow(not_empty("a size"));
  options.flag("--chapters", given->chapters, "Run your own stages instead of the book's");
  options.flag("--all", given->all, "Print one row per stage, with every error, memory, traffic and time");
  return runner(run, given, [=] {
    finish_input();
    simulate(given->gpu, given->backend);
  });
}

Runner declare_test(Options& options) {
  const auto given = std::make_shared<TestOptions>();
  options.option("chapters", given->chapters, "Chapters (2) or exercises (2.1) to test; default: all chapters");
  options.flag("--solutions", given->solutions, "Test the book's solutions instead of your code");
  options.option("--previous", given->previous, "Where the code of the previous chapter is taken from")
      .allow(one_of({"solutions", "chapters"}, "solutions or chapters"))
      .show_default();
  options.option("--only", given->only, "Run only the test with this name").allow(not_empty("a test's name"));
  options.flag("--debug", given->debug, "Run your code under a debugger that stops in the exercise");
  options.flag("--verbose", given->verbose, "Print every failing test in full");
  options.option("--backend", given->backend, "Test only on this backend")
      .allow(one_of({"cpu", "sim", "cuda"}, "cpu, sim or cuda"));
  declare_gpu(options, given->gpu);
  options.option("--sanitizer", given->sanitizer, "Run the GPU kernels under this compute-sanitizer tool")
      .allow(
          one_of({"memcheck", "racecheck", "synccheck", "initcheck"}, "memcheck, racecheck, synccheck or initcheck"));
  options.option("--time-limit", given->time_limit, "Time limit of one call, in seconds")
      .allow(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      .show_default();
  options.option("--junit", given->junit, "Also write the results to this file as JUnit XML")
      .allow(not_empty("a file name"));
  options.option("--summary", given->summary, "Also append the results to this file as Markdown")
      .allow(not_empty("a file name"));
  return runner(test, given, [=] {
    simulate(given->gpu, given->backend);
    require_writable("--junit", given->junit);
    require_writable("--summary", given->summary);
  });
}

Runner declare_hint(Options& options) {
  const auto given = std::make_shared<HintOptions>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--all", given->all, "Show all hints of the exercise");
  return runner(hint, given);
}

Runner declare_reset(Options& options) {
  const auto given = std::make_shared<ResetOptions>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--file", given->file, "Reset the whole file that contains the exercise");
  return runner(reset, given);
}

Runner declare_watch(Options& options) {
  const auto given = std::make_shared<WatchOptions>();
  options.option("chapter", given->chapter, "A chapter (2) or an exercise (2.1)").required();
  options.option("--poll", given->poll, "Seconds between two checks of the files")
      .allow(number(0.05, 60, "seconds, from 0.05 to 60"))
      .show_default();
  return runner(watch, given);
}

Runner declare_trace(Options& options) {
  const auto given = std::make_shared<TraceOptions>();
  options.option("chapter", given->chapter, "A chapter that launches kernels").required();
  options.flag("--solutions", given->solutions, "Trace the book's solution instead of your code");
  const std::function<void()> finish_input = declare_problem(options, *given);
  const Allowed rows = whole_number<std::int64_t>(1, largest_number);
  options.option("--br", given->Br, "Rows of a Q tile (default: the chapter's)").allow(rows);
  options.option("--bc", given->Bc, "Rows of a K/V tile (default: the chapter's)").allow(rows);
  options.option("--set", given->set, "Set a parameter of the chapter's kernels, e.g. warps=2")
      .allow(not_empty("NAME=NUMBER"));
  options.flag("--metrics", given->metrics, "Print every counter with its Nsight Compute name");
  options.flag("--lines", given->lines,
               "Print the memory requests of each source line, next to the book's and the previous chapter's");
  options.option("--operation", given->operation, "Trace another kernel of the chapter, e.g. lab")
      .allow(not_empty("a name"));
  declare_element(options, given->element);
  options.option("--pass", given->pass, "Forward or backward pass (default: the chapter's first)")
      .allow(one_of({"forward", "backward"}, "forward or backward"));
  declare_gpu(options, given->gpu);
  options.option("--html", given->html, "Also write the trace to this file as a web page")
      .allow(not_empty("a file name"));
  options
      .option("--beside", given->beside,
              "Second trace on that page: a chapter, \"causal\" (the mask switched) or \"book\"")
      .allow(not_empty("a chapter, causal or book"));
  return runner(trace, given, [=] {
    finish_input();
    simulate(given->gpu);
  });
}

Runner declare_doctor(Options& options) {
  const auto given = std::make_shared<DoctorOptions>();
  options.flag("--kernels", given->kernels, "Also show how many thread blocks of each chapter's kernels fit on an SM");
  declare_gpu(options, given->gpu);
  return runner(doctor, given, [=] { simulate(given->gpu); });
}

Runner declare_solution(Options& options) {
  const auto given = std::make_shared<SolutionOptions>();
  options.option("exercise", given->exercise, "An exercise, e.g. 2.2").required();
  options.flag("--anyway", given->anyway, "Show it even if your code has not passed yet");
  return runner(solution, given);
}

Runner declare_library(Options& options) {
  const auto given = std::make_shared<LibraryOptions>();
  options
      .option("--chapters", given->chapters,
              "Chapters whose stages the library contains, e.g. 8,9; the first stage that supports a call runs it")
      .allow(whole_number<std::int64_t>(1, 99))
      .separated_by(',')
      .required();
  options.flag("--solutions", given->solutions, "Use the book's code instead of yours");
  options.option("--out", given->out, "Folder for the library and its header (default: .workbook/library)")
      .allow(not_empty("a folder"));
  options
      .option("--backend", given->backend,
              "Run on the GPU, or on the simulator, which the library then contains (default: the GPU if there is one)")
      .allow(one_of({"sim", "cuda"}, "sim or cuda"));
  return runner(library, given);
}

}  // namespace

std::vector<Verb> readers_verbs() {
  return {
      {"status", kReader, "Show the chapters, your exercises and what to do next", "./workbook", declare_status},
      {"run", kReader,
       "Compute attention over a real text, or your own Q, K, V, with every stage, and check each result",
       "./workbook run --seq 2048 --causal\n         ./workbook run --q q.npy --k k.npy --v v.npy --out o.npy",
       declare_run},
      {"test", kTest, "Test your code: chapters or single exercises", "./workbook test 2\n         ./workbook test 2.1",
       declare_test},
      {"hint", kReader, "Show the next hint of an exercise", "./workbook hint 2.2", declare_hint},
      {"reset", kReader, "Restore an exercise's TODO; a copy of your work is kept", "./workbook reset 2.2",
       declare_reset},
      {"watch", kTest, "Test a chapter again whenever you save", "./workbook watch 2", declare_watch},
      {"trace", kTest,
       "Count what a chapter's kernels do on the simulator: traffic, bank conflicts, which tiles are read",
       "./workbook trace 3\n         ./workbook trace 3 --br 32 --metrics --html trace.html", declare_trace},
      {"doctor", kTest, "List the tools found, the tools missing, and what cannot run without them",
       "./workbook doctor", declare_doctor},
      {"solution", kTest, "Show the book's solution next to yours, once yours has passed, with the reasons for it",
       "./workbook solution 3.8", declare_solution},
      {"library", kTest, "Build your kernels as a library with a C interface, for PyTorch and numpy",
       "./workbook library --chapters 8,9\n         ./workbook library --chapters 11,13 --solutions --backend sim",
       declare_library},
  };
}

}  // namespace workbook::cli
