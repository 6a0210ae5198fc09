// The verbs of who trains and measures with the book, teaches with it, or works on it.
#include <algorithm>
#include <limits>

#include "common/attention/mask_text.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

Runner declare_stubs(Options& options) {
  const auto given = std::make_shared<StubsOptions>();
  options.flag("--force", given->force, "Also over files that hold work, after a copy");
  return runner(stubs, given);
}

Runner declare_release(Options& options) {
  const auto given = std::make_shared<ReleaseOptions>();
  options.option("--exercises", given->exercises, "Exercises that stay open: 2.1,2.3");
  options.option("--chapters", given->chapters, "Chapters that stay open: 2,3");
  options.option("--assignment", given->assignment, "An assignment.toml that says what is open")
      .allow(not_empty("a file name"));
  options.option("--title", given->title, "The assignment's title").allow(not_empty("a title"));
  options.option("--due", given->due, "When it is due, as the students read it").allow(not_empty("a date"));
  options.option("--out", given->out, "The folder to write (default: named after the title)")
      .allow(not_empty("a folder"));
  options.flag("--no-hints", given->no_hints, "Leave the hints out");
  options.flag("--github", given->github, "With a workflow for GitHub Actions");
  options.flag("--gradescope", given->gradescope, "Also the autograder for Gradescope, as a zip");
  options.option("--hidden", given->hidden, "Hidden tests, for the autograder only").allow(not_empty("a folder"));
  options.flag("--force", given->force, "Replace what is there");
  options.flag("--no-verify", given->unverified, "Do not build and test it first");
  return runner(release, given);
}

Runner declare_train(Options& options) {
  const auto given = std::make_shared<TrainOptions>();
  std::vector<Option> settings;  // a checkpoint has them of its own
  const auto setting = [&](const char* flag, auto& value, const char* description, const Allowed& allowed) -> Option& {
    return settings.emplace_back(options.option(flag, value, description).allow(allowed));
  };
  const Allowed counted = whole_number<std::int64_t>(1);
  setting("--precision", given->precision, "What is stored in 16 bits",
          one_of({"fp32", "fp16", "fp16-scaled", "bf16", "all"}, "fp32, fp16, fp16-scaled, bf16 or all"))
      .show_default();
  options
      .option("--steps", given->steps,
              "Steps in all, those of a resumed run included (400; with attention on the simulator 200)")
      .allow(counted);
  options.option("--resume", given->resume, "Go on from this checkpoint").allow(not_empty("a file name"));
  options.option("--out", given->out, "Folder for the curves and the checkpoint (.workbook/train)")
      .allow(not_empty("a folder"));
  setting("--text", given->text, "A file to train on (default: the book's own text)", not_empty("a file name"));
  setting("--seed", given->seed, "Seed of the weights and the batches", whole_number<std::uint64_t>(0)).show_default();
  setting("--head-dim", given->head_dim, "Head dimension of the model, which has two heads: 32, 64 or 128",
          one_of({"32", "64", "128"}, "32, 64 or 128"))
      .show_default();
  setting("--context", given->context, "Tokens of a sequence", counted).show_default();
  setting("--sequences", given->sequences, "Sequences of a batch", counted).show_default();
  setting("--micro-batches", given->micro_batches, "Batches that make one step", counted).show_default();
  setting("--shares", given->shares, "Machines over whose tokens the loss is averaged; this is one of them", counted)
      .show_default();
  setting("--learning-rate", given->learning_rate, "AdamW's learning rate",
          number(1e-12, 1e3, "a number from 1e-12 to 1000"))
      .show_default();
  setting("--initial-scale", given->initial_scale, "Loss scale that fp16-scaled starts with",
          number(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                 "a positive number that a float can hold"))
      .show_default();
  setting("--growth-interval", given->growth_interval, "Good steps in a row after which the scale grows", counted)
      .show_default();
  setting("--overflow-at", given->overflow_at, "A step of fp16-scaled whose gradients are made to overflow", counted);
  settings.push_back(options.flag("--chapters", given->chapters, "Attention and the loss scale by your chapters"));
  settings.push_back(options.flag("--solutions", given->solutions, "The same by the book's").excludes({"--chapters"}));
  setting("--attention", given->attention, "With --chapters or --solutions: by kernels of these chapters alone, as 8,9",
          number(1, 99, "numbers of chapters"))
      .separated_by(',');
  setting("--backend", given->backend, "With --chapters or --solutions: where kernels run",
          one_of({"sim", "cuda"}, "sim or cuda"));
  return runner(train, given, [=] { given->settings_given = std::ranges::any_of(settings, &Option::given); });
}

Runner declare_bench(Options& options) {
  const auto given = std::make_shared<BenchOptions>();
  options.option("stages", given->chapters, "These chapters and those before them (default: all)");
  options.flag("--only", given->only, "Not those before them");
  options.option("--n", given->lengths, "Sequence lengths, e.g. 1024,4096 (default: 256 to 16384 on a GPU)")
      .separated_by(',')
      .allow(number(1, 1 << 20, "whole numbers from 1 to 1048576"));
  options.option("--head-dim", given->head_dims, "Head dimensions: 32, 64, 128")
      .separated_by(',')
      .allow(one_of({"32", "64", "128"}, "32, 64 or 128"))
      .show_default();
  options.option("--group", given->group, "Heads of Q that share one of K and V: 1, 2, 4, 8 or 16")
      .allow(one_of({"1", "2", "4", "8", "16"}, "1, 2, 4, 8 or 16"))
      .show_default();
  options.option("--queries", given->queries, "Queries, where there are not as many as keys")
      .allow(number(1, 1 << 20, "whole numbers from 1 to 1048576"));
  options.option("--pass", given->pass, "forward, backward or both")
      .allow(one_of({"forward", "backward", "both"}, "forward, backward or both"))
      .show_default();
  options.option("--causal", given->causal, "With the causal mask: yes, no or both")
      .allow(one_of({"yes", "no", "both"}, "yes, no or both"))
      .show_default();
  options
      .option("--element", given->element_words, "Only stages for this type; of several, each in turn at every shape")
      .separated_by(',')
      .allow(one_of({"float32", "float16", "bfloat16"}, "float32, float16 or bfloat16"));
  options.option("--set", given->set, "Also the variant that this number asks for, in turn: deterministic=1")
      .allow(not_empty("NAME=NUMBER"));
  options.option("--budget", given->budget, "Seconds for the timed calls of one shape")
      .allow(number(0.001, 60, "seconds, from 0.001 to 60"))
      .show_default();
  options.flag("--peers", given->peers, "Also PyTorch's attention, on the same shapes");
  options.option("--mask", given->mask, "Only stages with this mask: window=512,0 or causal+alibi")
      .allow(a_mask())
      .excludes({"--causal"});
  options
      .option("--library", given->libraries,
              "With --peers: also this shared library's forward() (common/bench/peers.py)")
      .allow(not_empty("a file name"));
  options.flag("--profile", given->profile, "Also Nsight Compute's counters of each stage");
  options.flag("--steps", given->steps, "Also the steps within each chapter");
  options.flag("--chapters", given->own, "Your own stages in place of the book's");
  options.option("--out", given->out, "The folder for results.json, results.csv and the plots")
      .allow(not_empty("a folder"));
  options.option("--from", given->from, "Measure nothing: show the results of an earlier run")
      .allow(not_empty("a file name"))
      .excludes({"--peers", "--profile", "--steps"});
  options.flag("--publish", given->publish, "Maintainers: put tables and plots into notes/results.md");
  given->command = "./workbook";
  for (std::size_t i = 0; i < options.words().size(); ++i) {
    // Where the results go is nobody else's affair.
    const std::string& word = options.words()[i];
    if (word == "--out") ++i;
    if (!word.starts_with("--out")) given->command += " " + word;
  }
  return runner(bench, given);
}

Runner declare_grade(Options& options) {
  const auto given = std::make_shared<GradeOptions>();
  options.option("submissions", given->submissions, "Folders, archives or single files");
  options.option("--assignment", given->assignment_file, "The assignment.toml of the release")
      .allow(not_empty("a file name"));
  options.option("--hidden", given->hidden_folder, "A folder with hidden tests: NN_name/test_*.cpp")
      .allow(not_empty("a folder"));
  options.option("--out", given->out_folder, "Where the results go").allow(not_empty("a folder")).show_default();
  options.option("--results", given->results_file, "Write just Gradescope's results.json, for one submission")
      .allow(not_empty("a file name"));
  options.option("--backend", given->backend, "cuda: grade on a GPU too").allow(one_of({"cuda"}, "cuda"));
  options.option("--jobs", given->jobs, "Submissions at a time").allow(whole_number<std::size_t>(1)).show_default();
  options.option("--shard", given->shard, "Grade only a part of the submissions: 2/8")
      .allow(not_empty("a part, such as 2/8"));
  options.option("--time-limit", given->time_limit, "Seconds that one call may take")
      .allow(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      .show_default();
  options
      .option("--total-time", given->total_time,
              "Seconds that a chapter's tests may take together, in place of 20 times what the book's solution takes, "
              "at least 60")
      .allow(number(1, 86400, "seconds, from 1 to 86400"));
  options
      .option(
          "--build-time", given->build_time,
          "Seconds of processor time that compiling one file may take, in place of 3 times what the book's solution "
          "takes, at least 8")
      .allow(number(1, 86400, "seconds, from 1 to 86400"));
  options.flag("--again", given->again, "Also grade what an earlier run has graded");
  options.flag("--unsafe", given->unsafe, "Run submissions without any protection");
  options.flag("--prepare", given->prepare, "Only build what grading needs");
  return runner(grade, given);
}

Runner declare_pictures(Options& options) {
  const auto given = std::make_shared<PicturesOptions>();
  options.option("chapters", given->folders, "Of these chapters (default: all)");
  options.flag("--check", given->check, "Write nothing: are the files what would be written?");
  return runner(pictures, given);
}

Runner declare_site(Options& options) {
  const auto given = std::make_shared<SiteOptions>();
  options.option("--out", given->out, "The folder to write (default: build/site/pages)").allow(not_empty("a folder"));
  options.flag("--with-solutions", given->with_solutions, "Also the solutions' files");
  return runner(site, given);
}

Runner declare_check(Options& options) {
  const auto given = std::make_shared<CheckOptions>();
  options.flag("--full", given->full, "Also both compilers, the sanitizer builds and clang-tidy");
  options.flag("--fresh", given->fresh, "Run everything again: no result that an earlier check has kept is taken");
  options.option("--gate", given->gates, "Only the gate of this name; may be given again");
  options.option("--also", given->also, "This gate too, one of those that take long; may be given again");
  options.option("--chapter", given->chapter, "Only this chapter's solutions, stubs and mutants")
      .allow(not_empty("a chapter"));
  return runner(check, given);
}

}  // namespace

std::vector<Verb> other_verbs() {
  return {
      {"stubs", kCourse, "Instructors: write the stubs in chapters/ from solutions/", "./workbook stubs",
       declare_stubs},
      {"release", kCourse, "Instructors: make an assignment's folder for students",
       "./workbook release --exercises 2.1,2.3\n"
       "         ./workbook release --assignment assignment.toml --gradescope --hidden DIR",
       declare_release},
      {"train", kLab, "Train a small language model in fp32, fp16, fp16 with a scaled loss, and bf16",
       "./workbook train --steps 400\n         ./workbook train --chapters\n"
       "         ./workbook train --resume .workbook/train/train.checkpoint",
       declare_train},
      {"bench", kLab, "Time the stages on the GPU: speed, memory, against the device's limits and PyTorch",
       "./workbook bench\n         ./workbook bench 4 --n 4096,8192 --peers", declare_bench},
      {"grade", kCourse, "Instructors: grade submissions, isolated from the machine",
       "./workbook grade --assignment assignment.toml submissions/*\n"
       "         ./workbook grade --assignment assignment.toml --hidden hidden --jobs 4 --out graded submissions/*",
       declare_grade},
      {"pictures", kLab, "Maintainers: draw the lessons' pictures from what the code says and counts",
       "./workbook pictures\n         ./workbook pictures 5 --check", declare_pictures},
      {"site", kCourse, "The book as web pages: lessons, notes, interactive figures, search; needs Node and npm",
       "./workbook site\n         ./workbook site --out pages --with-solutions", declare_site},
      {"check", kCourse, "Maintainers: the whole gate of the book",
       "./workbook check\n         ./workbook check --full", declare_check},
  };
}

}  // namespace workbook::cli
