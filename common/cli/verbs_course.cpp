// The verbs for training and benchmarks, for instructors and for maintainers.
#include <algorithm>
#include <limits>

#include "common/attention/mask_text.hpp"
#include "common/cli/verbs.hpp"

namespace workbook::cli {
namespace {

Runner declare_stubs(Options& options) {
  const auto given = std::make_shared<StubsOptions>();
  options.flag("--force", given->force, "Also overwrite files that hold work, after copying them");
  return runner(stubs, given);
}

Runner declare_release(Options& options) {
  const auto given = std::make_shared<ReleaseOptions>();
  options.option("--exercises", given->exercises, "Exercises left open for the students, e.g. 2.1,2.3")
      .separated_by(',')
      .allow(not_empty("numbers of exercises"));
  options.option("--chapters", given->chapters, "Chapters left open for the students, e.g. 2,3")
      .separated_by(',')
      .allow(not_empty("numbers of chapters"));
  options.option("--assignment", given->assignment, "An assignment.toml that lists the open exercises")
      .allow(not_empty("a file name"));
  options.option("--title", given->title, "The assignment's title").allow(not_empty("a title"));
  options.option("--due", given->due, "The due date, as shown to the students").allow(not_empty("a date"));
  options.option("--out", given->out, "Output folder (default: named after the title)").allow(not_empty("a folder"));
  options.flag("--no-hints", given->no_hints, "Omit the hints");
  options.flag("--github", given->github, "Add a workflow for GitHub Actions");
  options.flag("--gradescope", given->gradescope, "Also write the Gradescope autograder, as a zip file");
  options.option("--hidden", given->hidden, "Folder of hidden tests, for the autograder only")
      .allow(not_empty("a folder"));
  options.flag("--force", given->force, "Replace an existing folder");
  options.flag("--no-verify", given->unverified, "Skip building and testing the release");
  return runner(release, given);
}

Runner declare_train(Options& options) {
  const auto given = std::make_shared<TrainOptions>();
  std::vector<Option> settings;  // those that a checkpoint fixes
  const auto setting = [&](const char* flag, auto& value, const char* description, const Allowed& allowed) -> Option& {
    return settings.emplace_back(options.option(flag, value, description).allow(allowed));
  };
  const Allowed counted = whole_number<std::int64_t>(1);
  setting("--precision", given->precision, "Precision of the run; fp16 and bf16 store 16-bit values",
          one_of({"fp32", "fp16", "fp16-scaled", "bf16", "all"}, "fp32, fp16, fp16-scaled, bf16 or all"))
      .show_default();
  options
      .option("--steps", given->steps,
              "Total steps, including those of a resumed run (default: 400; 200 with attention on the simulator)")
      .allow(counted);
  options.option("--resume", given->resume, "Continue from this checkpoint").allow(not_empty("a file name"));
  options.option("--out", given->out, "Folder for the curves and the checkpoint (default: .workbook/train)")
      .allow(not_empty("a folder"));
  setting("--text", given->text, "A file to train on (default: the book's own text)", not_empty("a file name"));
  setting("--seed", given->seed, "Seed for the weights and the batches", whole_number<std::uint64_t>(0)).show_default();
  setting("--head-dim", given->head_dim, "Head dimension of the model, which has two heads: 32, 64 or 128",
          one_of({"32", "64", "128"}, "32, 64 or 128"))
      .show_default();
  setting("--context", given->context, "Tokens per sequence", counted).show_default();
  setting("--sequences", given->sequences, "Sequences per batch", counted).show_default();
  setting("--micro-batches", given->micro_batches, "Batches accumulated into one step", counted).show_default();
  setting("--shares", given->shares, "Number of machines whose tokens the loss is averaged over, this one included",
          counted)
      .show_default();
  setting("--learning-rate", given->learning_rate, "AdamW's learning rate",
          number(1e-12, 1e3, "a number from 1e-12 to 1000"))
      .show_default();
  setting("--initial-scale", given->initial_scale, "Initial loss scale of fp16-scaled",
          number(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                 "a positive number that a float can hold"))
      .show_default();
  setting("--growth-interval", given->growth_interval,
          "Consecutive steps without overflow after which the loss scale grows", counted)
      .show_default();
  setting("--overflow-at", given->overflow_at, "Make the gradients of this fp16-scaled step overflow", counted);
  settings.push_back(
      options.flag("--chapters", given->chapters, "Use your chapters' code for attention and the loss scale"));
  settings.push_back(
      options.flag("--solutions", given->solutions, "Use the book's solutions for attention and the loss scale")
          .excludes({"--chapters"}));
  setting("--attention", given->attention,
          "With --chapters or --solutions: use only the kernels of these chapters, e.g. 8,9",
          whole_number<std::int64_t>(1, 99))
      .separated_by(',');
  setting("--backend", given->backend, "With --chapters or --solutions: backend for the kernels",
          one_of({"sim", "cuda"}, "sim or cuda"));
  return runner(train, given, [=] { given->settings_given = std::ranges::any_of(settings, &Option::given); });
}

Runner declare_generate(Options& options) {
  const auto given = std::make_shared<GenerateOptions>();
  options.option("--from", given->from, "A checkpoint of ./workbook train (default: the last one)")
      .allow(not_empty("a file name"));
  options.option("--precision", given->precision, "The run whose weights are used (default: the last one with a step)")
      .allow(one_of({"fp32", "fp16", "fp16-scaled", "bf16"}, "fp32, fp16, fp16-scaled or bf16"));
  options.option("--prompt", given->prompt, "The text to continue").allow(not_empty("a text")).show_default();
  options.option("--bytes", given->bytes, "Bytes to generate (default: up to the model's context)")
      .allow(whole_number<std::int64_t>(1));
  options.option("--temperature", given->temperature, "0: always the likeliest byte; 1: drawn as the model predicts")
      .allow(number(0, 100, "a number from 0 to 100"))
      .show_default();
  options.option("--seed", given->seed, "Seed of the draws").allow(whole_number<std::uint64_t>(0)).show_default();
  options.flag("--no-cache", given->no_cache, "Compute K and V of all bytes again for each new one");
  options.flag("--chapters", given->chapters, "Use your chapters' kernels, chapter 20's or 21's for decoding");
  options.flag("--solutions", given->solutions, "Use the book's solutions").excludes({"--chapters"});
  options.option("--backend", given->backend, "With --chapters or --solutions: backend for the kernels")
      .allow(one_of({"sim", "cuda"}, "sim or cuda"));
  return runner(generate, given);
}

Runner declare_bench(Options& options) {
  const auto given = std::make_shared<BenchOptions>();
  const Allowed sized = whole_number<std::int64_t>(1, 1 << 20);
  options.option("stages", given->chapters, "Time these chapters and all earlier ones (default: all)");
  options.flag("--only", given->only, "Omit the earlier chapters");
  options.option("--n", given->lengths, "Sequence lengths, e.g. 1024,4096 (default on a GPU: 256 to 16384)")
      .separated_by(',')
      .allow(sized);
  options.option("--head-dim", given->head_dims, "Head dimensions: 32, 64, 128")
      .separated_by(',')
      .allow(one_of({"32", "64", "128"}, "32, 64 or 128"))
      .show_default();
  options.option("--batch", given->batch, "Batch size B on a GPU (default: 16384/N)").allow(sized);
  options.option("--heads", given->heads, "Query heads H on a GPU, a multiple of --group (default: 2048/d)")
      .allow(sized);
  options.option("--group", given->group, "Query heads per K/V head: 1, 2, 4, 8 or 16")
      .allow(one_of({"1", "2", "4", "8", "16"}, "1, 2, 4, 8 or 16"))
      .show_default();
  options.option("--queries", given->queries, "Number of queries (default: the number of keys)").allow(sized);
  options.flag("--decoding", given->decoding,
               "Time one query per head on caches of 4 to 512 MiB, by default with the chapters for decoding");
  options.option("--pass", given->pass, "forward, backward or both")
      .allow(one_of({"forward", "backward", "both"}, "forward, backward or both"))
      .show_default();
  options.option("--causal", given->causal, "Apply the causal mask: yes, no or both")
      .allow(one_of({"yes", "no", "both"}, "yes, no or both"))
      .show_default();
  options
      .option("--element", given->element_words,
              "Time only stages for these element types, one after the other at every shape")
      .separated_by(',')
      .allow(one_of({"float32", "float16", "bfloat16"}, "float32, float16 or bfloat16"));
  options.option("--set", given->set, "Also time the kernel variant that this parameter selects, e.g. deterministic=1")
      .allow(not_empty("NAME=NUMBER"));
  options.option("--budget", given->budget, "Seconds spent on the timed calls of one shape")
      .allow(number(0.001, 60, "seconds, from 0.001 to 60"))
      .show_default();
  options.flag("--peers", given->peers, "Also time PyTorch's attention on the same shapes");
  options.option("--mask", given->mask, "Time only stages that support this mask, e.g. window=512,0 or causal+alibi")
      .allow(a_mask())
      .excludes({"--causal"});
  options
      .option("--library", given->libraries,
              "With --peers: also time this shared library's forward() (common/bench/peers.py)")
      .allow(not_empty("a file name"));
  options
      .option("--flash-attention-3", given->flash_attention_3,
              "Also build and time FlashAttention-3 from this checkout of Dao-AILab/flash-attention")
      .allow(not_empty("a folder"));
  options.flag("--profile", given->profile, "Also collect Nsight Compute's counters for each stage");
  options.flag("--steps", given->steps, "Also time the steps within each chapter");
  options.flag("--chapters", given->own, "Time your own stages instead of the book's");
  options.option("--out", given->out, "Folder for results.json, results.csv and the plots")
      .allow(not_empty("a folder"));
  options.option("--from", given->from, "Show the results in this file instead of measuring")
      .allow(not_empty("a file name"))
      .excludes({"--peers", "--flash-attention-3", "--profile", "--steps"});
  options.flag("--publish", given->publish, "Maintainers: write the tables and plots to notes/results.md");
  given->command = "./workbook";
  for (std::size_t i = 0; i < options.words().size(); ++i) {
    // The published command omits the output folder.
    const std::string& word = options.words()[i];
    if (word == "--out") ++i;
    if (!word.starts_with("--out")) given->command += " " + word;
  }
  return runner(bench, given);
}

Runner declare_grade(Options& options) {
  const auto given = std::make_shared<GradeOptions>();
  options.option("submissions", given->submissions, "Submissions: folders, archives or single files");
  options.option("--assignment", given->assignment_file, "The assignment.toml of the release")
      .allow(not_empty("a file name"));
  options.option("--hidden", given->hidden_folder, "Folder of hidden tests: NN_name/test_*.cpp")
      .allow(not_empty("a folder"));
  options.option("--out", given->out_folder, "Folder for the results").allow(not_empty("a folder")).show_default();
  options.option("--results", given->results_file, "Write only Gradescope's results.json, for a single submission")
      .allow(not_empty("a file name"));
  options.option("--backend", given->backend, "cuda: also grade on a GPU").allow(one_of({"cuda"}, "cuda"));
  options.option("--jobs", given->jobs, "Submissions graded in parallel")
      .allow(whole_number<std::size_t>(1))
      .show_default();
  options.option("--shard", given->shard, "Grade only this part of the submissions, e.g. 2/8")
      .allow(not_empty("a part, e.g. 2/8"));
  options.option("--time-limit", given->time_limit, "Time limit of one call, in seconds")
      .allow(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      .show_default();
  options
      .option(
          "--total-time", given->total_time,
          "Time limit of all tests of a chapter, in seconds, of which each exercise gets a share (default: for each "
          "exercise 10 times the time of the book's solution, at least 15)")
      .allow(number(1, 86400, "seconds, from 1 to 86400"));
  options
      .option("--build-time", given->build_time,
              "Limit of CPU time for compiling one file, in seconds (default: 3 times that of the book's solution, at "
              "least 8)")
      .allow(number(1, 86400, "seconds, from 1 to 86400"));
  options.flag("--again", given->again, "Grade submissions again that an earlier run has graded");
  options.flag("--unsafe", given->unsafe, "Run submissions without isolation");
  options.flag("--prepare", given->prepare, "Build everything that grading needs, and stop");
  return runner(grade, given);
}

Runner declare_pictures(Options& options) {
  const auto given = std::make_shared<PicturesOptions>();
  options.option("chapters", given->folders, "Chapters whose pictures are drawn (default: all)");
  options.flag("--check", given->check, "Write nothing; check that the files are up to date");
  return runner(pictures, given);
}

Runner declare_site(Options& options) {
  const auto given = std::make_shared<SiteOptions>();
  options.option("--out", given->out, "Folder for the pages (default: build/site/pages)").allow(not_empty("a folder"));
  options.flag("--with-solutions", given->with_solutions, "Include the solution files");
  return runner(site, given);
}

Runner declare_check(Options& options) {
  const auto given = std::make_shared<CheckOptions>();
  options.flag("--full", given->full, "Also run both compilers, the sanitizer builds and clang-tidy");
  options.option("--gate", given->gates, "Run only this gate; may be repeated");
  options.option("--also", given->also, "Also run this gate, one of the slow ones; may be repeated");
  options.option("--chapter", given->chapter, "Check the solutions, stubs and mutants of this chapter only")
      .allow(not_empty("a chapter"));
  return runner(check, given);
}

}  // namespace

std::vector<Verb> other_verbs() {
  return {
      {"stubs", kCourse, "Instructors: write the stubs in chapters/ from solutions/", "./workbook stubs",
       declare_stubs},
      {"release", kCourse, "Instructors: write the folder of an assignment for students",
       "./workbook release --exercises 2.1,2.3\n"
       "         ./workbook release --assignment assignment.toml --gradescope --hidden DIR",
       declare_release},
      {"train", kLab, "Train a small language model in fp32, fp16, fp16 with loss scaling, and bf16",
       "./workbook train --steps 400\n         ./workbook train --chapters\n"
       "         ./workbook train --resume .workbook/train/train.checkpoint",
       declare_train},
      {"generate", kLab, "Write text with the model that train has made, with a cache of K and V",
       "./workbook train --head-dim 64 --steps 400 && ./workbook generate --chapters", declare_generate},
      {"bench", kLab, "Time the stages on the GPU and compare them with the device's limits and PyTorch",
       "./workbook bench\n         ./workbook bench 4 --n 4096,8192 --peers", declare_bench},
      {"grade", kCourse, "Instructors: grade submissions, isolated from this machine",
       "./workbook grade --assignment assignment.toml submissions/*\n"
       "         ./workbook grade --assignment assignment.toml --hidden hidden --jobs 4 --out graded submissions/*",
       declare_grade},
      {"pictures", kLab, "Maintainers: draw the lessons' pictures from the code and its counters",
       "./workbook pictures\n         ./workbook pictures 5 --check", declare_pictures},
      {"site", kCourse, "Write the book as web pages with interactive figures and search; needs Node and npm",
       "./workbook site\n         ./workbook site --out pages --with-solutions", declare_site},
      {"check", kCourse, "Maintainers: run the book's checks before a change lands",
       "./workbook check\n         ./workbook check --full", declare_check},
  };
}

}  // namespace workbook::cli
