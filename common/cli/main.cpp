// The command line of ./workbook: the only file that includes CLI11 (it costs seconds a file to compile).
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <exception>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "common/attention/error.hpp"
#include "common/book/markers.hpp"
#include "common/cli/session.hpp"
#include "common/cli/verbs.hpp"

namespace {

using namespace workbook;
using namespace workbook::cli;

void say(const std::string& text) {
  fmt::print(stderr, "workbook: {}\n", text);
}

/// Whatever is thrown, as an exit code and a message.
int guarded(const std::function<int()>& verb) {
  try {
    return verb();
  } catch (const InputError& error) {
    say(error.what());
    return kUsage;
  } catch (const book::ManifestError& error) {
    say(error.what());
    return kUsage;
  } catch (const book::MarkerError& error) {
    say(error.what());
    return kUsage;
  } catch (const EnvironmentError& error) {
    say(error.what());
    return kEnvironment;
  } catch (const std::bad_alloc&) {
    say("there is not enough memory for this");
    return kEnvironment;
  } catch (const std::exception& error) {
    say(error.what());
    return kEnvironment;
  }
}

// What an option's value may be. CLI11 puts the option's name in front of the message.

std::string refusal(const std::string& value, const std::string& allowed) {
  return fmt::format("\"{}\" is not allowed; allowed: {}", value, allowed);
}

/// A whole number from `least` on that fits T.
template <class T>
CLI::Validator whole_number(T least) {
  return {[least](const std::string& text) {
            T value{};
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good = error == std::errc() && end == text.data() + text.size() && value >= least;
            return good ? ""
                        : refusal(text,
                                  fmt::format("a whole number from {} to {}", least, std::numeric_limits<T>::max()));
          },
          "", ""};
}

/// A number from `least` to `most`.
CLI::Validator number(double least, double most, const std::string& allowed) {
  return {[=](const std::string& text) {
            double value{};
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good =
                error == std::errc() && end == text.data() + text.size() && value >= least && value <= most;
            return good ? "" : refusal(text, allowed);
          },
          "", ""};
}

CLI::Validator one_of(const std::vector<std::string>& values, const std::string& allowed) {
  return {[=](const std::string& text) {
            return std::find(values.begin(), values.end(), text) != values.end() ? "" : refusal(text, allowed);
          },
          "", ""};
}

/// An empty word is what an unset shell variable leaves: never what was meant.
CLI::Validator not_empty(const std::string& allowed) {
  return {[=](const std::string& text) { return text.empty() ? refusal(text, allowed) : ""; }, "", ""};
}

/// What is wrong with the command line, and what is allowed.
int explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& arguments) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  const std::string verb = verbs.empty() ? "" : " " + verbs[0]->get_name();
  const std::string text = error.what();
  const std::size_t colon = text.rfind(": ");
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || colon == std::string::npos) {
    say(fmt::format("{}; ./workbook{} --help says what is allowed", text, verb));
    return kUsage;
  }
  // Without a verb, the first word is what was meant to be one; CLI11 lists what is left over from the end.
  const auto first =
      std::find_if(arguments.begin(), arguments.end(), [](const auto& word) { return word != "--json"; });
  const std::string extra = verbs.empty() && first != arguments.end() ? *first : text.substr(colon + 2);
  if (verbs.empty() && !extra.starts_with("-")) {
    std::vector<std::string> names;
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(known->get_name());
    }
    say(fmt::format("{}: there is no such verb; allowed: {}", extra, fmt::join(names, ", ")));
  } else {
    say(fmt::format("{}: not expected here; ./workbook{} --help says what is allowed", extra, verb));
  }
  return kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app{
      "The FlashAttention Workbook: build FlashAttention chapter by chapter. Without a verb: the book at a glance.",
      "workbook"};
  app.require_subcommand(0, 1);
  app.footer(
      "Examples: ./workbook run          ./workbook test 1          ./workbook hint 1.1\n"
      "Exit codes: 0 done, 1 a test failed or is open, 2 usage, 3 environment");
  bool json = false;
  app.add_flag("--json", json, "Print one JSON document");
  std::function<int(Session&)> verb = [](Session& session) { return status(session); };

  const auto add = [&](const char* name, const char* description, const char* example) {
    CLI::App* sub = app.add_subcommand(name, description);
    sub->footer(std::string("Example: ") + example);
    sub->add_flag("--json", json, "Print one JSON document");
    return sub;
  };

  CLI::App* status_verb = add("status", "The book at a glance: chapters, exercises, what to do next", "./workbook");
  status_verb->callback([&] { verb = [](Session& session) { return status(session); }; });

  const CLI::Validator a_file = not_empty("a file name");
  // Q, K, V, as run and trace take them. The function returned is to be called when the line has been read.
  const auto add_input = [&](CLI::App* sub, ProblemOptions& input) {
    sub->add_option("--text", input.text, "A file whose bytes are attended over (default: the book's own text)")
        ->check(a_file);
    const CLI::Option* seq = sub->add_option("--seq", input.seq, "Sequence length N")
                                 ->check(whole_number<std::int64_t>(1))
                                 ->capture_default_str();
    const CLI::Option* heads =
        sub->add_option("--heads", input.heads, "Heads H")->check(whole_number<std::int64_t>(1))->capture_default_str();
    const CLI::Option* head_dim = sub->add_option("--head-dim", input.head_dim, "Head dimension d: 32, 64 or 128")
                                      ->check(one_of({"32", "64", "128"}, "32, 64 or 128"))
                                      ->capture_default_str();
    sub->add_flag("--causal", input.causal, "Causal mask, bottom-right aligned");
    const CLI::Option* scale = sub->add_option("--scale", input.scale, "Scale of QKᵀ (default 1/√d)")
                                   ->check(number(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                                                  "a positive number that a float can hold"));
    sub->add_option("--seed", input.seed, "Seed of the embedding")
        ->check(whole_number<std::uint64_t>(0))
        ->capture_default_str();
    sub->add_option("--q", input.q, "Q as .npy, (B, H, Nq, d) or (H, Nq, d)")->check(a_file);
    sub->add_option("--k", input.k, "K as .npy")->check(a_file);
    sub->add_option("--v", input.v, "V as .npy")->check(a_file);
    return [&input, seq, heads, head_dim, scale] {
      input.shape_given = seq->count() + heads->count() + head_dim->count() > 0;
      input.scale_given = scale->count() > 0;
    };
  };

  RunOptions run_options;
  CLI::App* run_verb =
      add("run", "Attend over a real text, or your own Q, K, V, with every stage, and check each one",
          "./workbook run --seq 2048 --causal\n         ./workbook run --q q.npy --k k.npy --v v.npy --out o.npy");
  const std::function<void()> finish_run_input = add_input(run_verb, run_options);
  run_verb->add_option("--out", run_options.out, "Write O of the last stage as .npy")->check(a_file);
  run_verb->add_option("--lse", run_options.lse, "Write the LSE of the last stage as .npy")->check(a_file);
  run_verb->add_option("--stage", run_options.stage, "Only this chapter's stage")->check(not_empty("a chapter"));
  run_verb->add_option("--backend", run_options.backend, "Only on this backend")
      ->check(one_of({"cpu", "sim", "cuda"}, "cpu, sim or cuda"));
  run_verb->add_option("--memory", run_options.memory, "The most memory that a stage may use, e.g. 512M or 2G")
      ->check(not_empty("a size"));
  run_verb->add_flag("--chapters", run_options.chapters, "Your own stages in place of the book's");
  run_verb->callback([&] {
    finish_run_input();
    verb = [&](Session& session) { return run(session, run_options); };
  });

  TestOptions test_options;
  CLI::App* test_verb =
      add("test", "Test your code: chapters or single exercises", "./workbook test 2\n         ./workbook test 2.1");
  test_verb->add_option("chapters", test_options.chapters, "Chapters (2) or exercises (2.1); default: all chapters");
  test_verb->add_flag("--solutions", test_options.solutions, "The book's solutions in place of your code");
  test_verb->add_option("--previous", test_options.previous, "Where the chapter before comes from")
      ->check(one_of({"solutions", "chapters"}, "solutions or chapters"))
      ->capture_default_str();
  test_verb->add_option("--only", test_options.only, "One test, by its name")->check(not_empty("a test's name"));
  test_verb->add_flag("--debug", test_options.debug, "Run your code under a debugger (with --only)");
  test_verb->add_option("--backend", test_options.backend, "Only on this backend")
      ->check(one_of({"cpu", "sim", "cuda"}, "cpu, sim or cuda"));
  test_verb->add_option("--sanitizer", test_options.sanitizer, "A tool of compute-sanitizer to watch the GPU's kernels")
      ->check(
          one_of({"memcheck", "racecheck", "synccheck", "initcheck"}, "memcheck, racecheck, synccheck or initcheck"));
  test_verb->add_option("--time-limit", test_options.time_limit, "Seconds that one call may take")
      ->check(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      ->capture_default_str();
  test_verb->add_option("--junit", test_options.junit, "Also write the results as JUnit XML")->check(a_file);
  test_verb->add_option("--summary", test_options.summary, "Also add the results to this file, as Markdown")
      ->check(a_file);
  test_verb->callback([&] { verb = [&](Session& session) { return test(session, test_options); }; });

  std::string exercise;
  bool all = false;
  CLI::App* hint_verb = add("hint", "The next hint of an exercise", "./workbook hint 2.2");
  hint_verb->add_option("exercise", exercise, "An exercise, e.g. 2.2")->required();
  hint_verb->add_flag("--all", all, "All its hints");
  hint_verb->callback([&] { verb = [&](Session& session) { return hint(session, exercise, all); }; });

  bool file = false;
  CLI::App* reset_verb =
      add("reset", "Put an exercise back to its TODO; a copy of your work is kept", "./workbook reset 2.2");
  reset_verb->add_option("exercise", exercise, "An exercise, e.g. 2.2")->required();
  reset_verb->add_flag("--file", file, "The whole file that holds the exercise");
  reset_verb->callback([&] { verb = [&](Session& session) { return reset(session, exercise, file); }; });

  std::string chapter;
  double poll = 0.5;
  CLI::App* watch_verb = add("watch", "Test a chapter again whenever you save", "./workbook watch 2");
  watch_verb->add_option("chapter", chapter, "A chapter")->required();
  watch_verb->add_option("--poll", poll, "Seconds between looks")
      ->check(number(0.05, 60, "seconds, from 0.05 to 60"))
      ->capture_default_str();
  watch_verb->callback([&] { verb = [&](Session& session) { return watch(session, chapter, poll); }; });

  TraceOptions trace_options;
  CLI::App* trace_verb =
      add("trace", "What a chapter's kernels do, counted on the simulator: traffic, conflicts, which tiles are read",
          "./workbook trace 3\n         ./workbook trace 3 --br 32 --metrics --html trace.html");
  trace_verb->add_option("chapter", trace_options.chapter, "A chapter with kernels")->required();
  trace_verb->add_flag("--solutions", trace_options.solutions, "The book's solution in place of your code");
  const std::function<void()> finish_trace_input = add_input(trace_verb, trace_options);
  trace_verb->add_option("--br", trace_options.Br, "Queries in a tile (default: the chapter's)")
      ->check(whole_number<std::int64_t>(1));
  trace_verb->add_option("--bc", trace_options.Bc, "Keys in a tile (default: the chapter's)")
      ->check(whole_number<std::int64_t>(1));
  trace_verb->add_option("--set", trace_options.set, "A number for the chapter's kernels, e.g. warps=2")
      ->check(not_empty("NAME=NUMBER"));
  trace_verb->add_flag("--metrics", trace_options.metrics, "Every counter, with Nsight Compute's name for it");
  trace_verb->add_option("--html", trace_options.html, "Also write a page that shows it")->check(a_file);
  trace_verb->callback([&] {
    finish_trace_input();
    verb = [&](Session& session) { return trace(session, trace_options); };
  });

  CLI::App* doctor_verb =
      add("doctor", "What was found here, what is missing, and what therefore cannot run", "./workbook doctor");
  doctor_verb->callback([&] { verb = [](Session& session) { return doctor(session); }; });

  bool force = false;
  CLI::App* stubs_verb = add("stubs", "Instructors: write the stubs in chapters/ from solutions/", "./workbook stubs");
  stubs_verb->add_flag("--force", force, "Also over files that hold work, after a copy");
  stubs_verb->callback([&] { verb = [&](Session& session) { return stubs(session, force); }; });

  ReleaseOptions release_options;
  bool unverified = false;
  CLI::App* release_verb = add("release", "Instructors: make an assignment's folder for students",
                               "./workbook release --exercises 2.1,2.3\n"
                               "         ./workbook release --assignment assignment.toml --gradescope --hidden DIR");
  release_verb->add_option("--exercises", release_options.exercises, "Exercises that stay open: 2.1,2.3");
  release_verb->add_option("--chapters", release_options.chapters, "Chapters that stay open: 2,3");
  release_verb->add_option("--assignment", release_options.assignment, "An assignment.toml that says what is open")
      ->check(a_file);
  release_verb->add_option("--title", release_options.title, "The assignment's title")->check(not_empty("a title"));
  release_verb->add_option("--due", release_options.due, "When it is due, as the students read it")
      ->check(not_empty("a date"));
  release_verb->add_option("--out", release_options.out, "The folder to write (default: named after the title)")
      ->check(not_empty("a folder"));
  release_verb->add_flag("--no-hints", release_options.no_hints, "Leave the hints out");
  release_verb->add_flag("--github", release_options.github, "With a workflow for GitHub Actions");
  release_verb->add_flag("--gradescope", release_options.gradescope, "Also the autograder for Gradescope, as a zip");
  release_verb->add_option("--hidden", release_options.hidden, "Hidden tests, for the autograder only")
      ->check(not_empty("a folder"));
  release_verb->add_flag("--force", release_options.force, "Replace what is there");
  release_verb->add_flag("--no-verify", unverified, "Do not build and test it first");
  release_verb->callback([&] {
    release_options.verify = !unverified;
    verb = [&](Session& session) { return release(session, release_options); };
  });

  TrainOptions train_options;
  CLI::App* train_verb = add("train", "Train a small language model in fp32, fp16, fp16 with a scaled loss, and bf16",
                             "./workbook train --steps 400\n         ./workbook train --chapters\n"
                             "         ./workbook train --resume .workbook/train/train.checkpoint");
  std::vector<const CLI::Option*> train_settings;
  const auto setting = [&](const char* flag, auto& value, const char* description, const CLI::Validator& allowed) {
    CLI::Option* option = train_verb->add_option(flag, value, description)->check(allowed);
    train_settings.push_back(option);
    return option;
  };
  setting("--precision", train_options.precision, "What is stored in 16 bits",
          one_of({"fp32", "fp16", "fp16-scaled", "bf16", "all"}, "fp32, fp16, fp16-scaled, bf16 or all"))
      ->capture_default_str();
  train_verb
      ->add_option("--steps", train_options.steps,
                   "Steps in all, those of a resumed run included (400; with attention on the simulator 200)")
      ->check(whole_number<std::int64_t>(1));
  train_verb->add_option("--resume", train_options.resume, "Go on from this checkpoint")->check(a_file);
  train_verb->add_option("--out", train_options.out, "Folder for the curves and the checkpoint (.workbook/train)")
      ->check(not_empty("a folder"));
  setting("--text", train_options.text, "A file to train on (default: the book's own text)", a_file);
  setting("--seed", train_options.seed, "Seed of the weights and the batches", whole_number<std::uint64_t>(0))
      ->capture_default_str();
  const CLI::Validator counted = whole_number<std::int64_t>(1);
  setting("--context", train_options.context, "Tokens of a sequence", counted)->capture_default_str();
  setting("--sequences", train_options.sequences, "Sequences of a batch", counted)->capture_default_str();
  setting("--micro-batches", train_options.micro_batches, "Batches that make one step", counted)->capture_default_str();
  setting("--shares", train_options.shares, "Machines over whose tokens the loss is averaged; this is one of them",
          counted)
      ->capture_default_str();
  setting("--learning-rate", train_options.learning_rate, "AdamW's learning rate",
          number(1e-12, 1e3, "a number from 1e-12 to 1000"))
      ->capture_default_str();
  setting("--initial-scale", train_options.initial_scale, "Loss scale that fp16-scaled starts with",
          number(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                 "a positive number that a float can hold"))
      ->capture_default_str();
  setting("--growth-interval", train_options.growth_interval, "Good steps in a row after which the scale grows",
          counted)
      ->capture_default_str();
  setting("--overflow-at", train_options.overflow_at, "A step of fp16-scaled whose gradients are made to overflow",
          counted);
  CLI::Option* train_chapters =
      train_verb->add_flag("--chapters", train_options.chapters, "Attention and the loss scale by your chapters");
  train_settings.push_back(train_chapters);
  train_settings.push_back(
      train_verb->add_flag("--solutions", train_options.solutions, "The same by the book's")->excludes(train_chapters));
  setting("--backend", train_options.backend, "With --chapters or --solutions: where kernels run",
          one_of({"sim", "cuda"}, "sim or cuda"));
  train_verb->callback([&] {
    train_options.settings_given = std::any_of(train_settings.begin(), train_settings.end(),
                                               [](const CLI::Option* option) { return option->count() > 0; });
    verb = [&](Session& session) { return train(session, train_options); };
  });

  BenchOptions bench_options;
  CLI::App* bench_verb =
      add("bench", "Time the stages on the GPU: speed, memory, against the device's limits and PyTorch",
          "./workbook bench\n         ./workbook bench 4 --n 4096,8192 --peers");
  bench_verb->add_option("stages", bench_options.chapters, "These chapters and those before them (default: all)");
  bench_verb->add_flag("--only", bench_options.only, "Not those before them");
  bench_verb->add_option("--n", bench_options.lengths, "Sequence lengths (default: 256 to 16384 on a GPU)")
      ->delimiter(',')
      ->check(number(1, 1 << 20, "whole numbers from 1 to 1048576"));
  bench_verb->add_option("--head-dim", bench_options.head_dims, "Head dimensions: 32, 64, 128")
      ->delimiter(',')
      ->check(one_of({"32", "64", "128"}, "32, 64 or 128"))
      ->capture_default_str();
  bench_verb->add_option("--pass", bench_options.pass, "forward, backward or both")
      ->check(one_of({"forward", "backward", "both"}, "forward, backward or both"))
      ->capture_default_str();
  bench_verb->add_option("--causal", bench_options.causal, "With the causal mask: yes, no or both")
      ->check(one_of({"yes", "no", "both"}, "yes, no or both"))
      ->capture_default_str();
  bench_verb->add_option("--budget", bench_options.budget, "Seconds for the timed calls of one shape")
      ->check(number(0.001, 60, "seconds, from 0.001 to 60"))
      ->capture_default_str();
  bench_verb->add_flag("--peers", bench_options.peers, "Also PyTorch's attention, on the same shapes");
  bench_verb->add_flag("--profile", bench_options.profile, "Also Nsight Compute's counters of each stage");
  bench_verb->add_flag("--steps", bench_options.steps, "Also the steps within each chapter");
  bench_verb->add_flag("--chapters", bench_options.own, "Your own stages in place of the book's");
  bench_verb->add_option("--out", bench_options.out, "The folder for results.json, results.csv and the plots")
      ->check(not_empty("a folder"));
  bench_verb->add_option("--from", bench_options.from, "Measure nothing: show the results of an earlier run")
      ->check(a_file)
      ->excludes("--peers", "--profile", "--steps");
  bench_verb->add_flag("--publish", bench_options.publish, "Maintainers: put tables and plots into notes/results.md");
  bench_verb->callback([&] {
    bench_options.command = "./workbook";
    for (int i = 1; i < argc; ++i) {
      // Where the results go is nobody else's affair.
      const std::string word = argv[i];
      if (word == "--out") ++i;
      if (!word.starts_with("--out")) bench_options.command += " " + word;
    }
    verb = [&](Session& session) { return cli::bench(session, bench_options); };
  });

  GradeOptions grade_options;
  CLI::App* grade_verb =
      add("grade", "Instructors: grade submissions, isolated from the machine",
          "./workbook grade --assignment assignment.toml submissions/*\n"
          "         ./workbook grade --assignment assignment.toml --hidden hidden --jobs 4 --out graded submissions/*");
  grade_verb->add_option("submissions", grade_options.submissions, "Folders, archives or single files");
  grade_verb->add_option("--assignment", grade_options.assignment, "The assignment.toml of the release")->check(a_file);
  grade_verb->add_option("--hidden", grade_options.hidden, "A folder with hidden tests: NN_name/test_*.cpp")
      ->check(not_empty("a folder"));
  grade_verb->add_option("--out", grade_options.out, "Where the results go")
      ->check(not_empty("a folder"))
      ->capture_default_str();
  grade_verb->add_option("--results", grade_options.results, "Write just Gradescope's results.json, for one submission")
      ->check(a_file);
  grade_verb->add_option("--backend", grade_options.backend, "cuda: grade on a GPU too")
      ->check(one_of({"cuda"}, "cuda"));
  grade_verb->add_option("--jobs", grade_options.jobs, "Submissions at a time")
      ->check(whole_number<std::size_t>(1))
      ->capture_default_str();
  grade_verb->add_option("--shard", grade_options.shard, "Grade only a part of the submissions: 2/8")
      ->check(not_empty("a part, such as 2/8"));
  grade_verb->add_option("--time-limit", grade_options.time_limit, "Seconds that one call may take")
      ->check(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      ->capture_default_str();
  grade_verb->add_option("--total-time", grade_options.total_time, "Seconds that a chapter's tests may take together")
      ->check(number(1, 86400, "seconds, from 1 to 86400"))
      ->capture_default_str();
  grade_verb->add_option("--build-time", grade_options.build_time, "Seconds that compiling one worker may take")
      ->check(number(1, 86400, "seconds, from 1 to 86400"))
      ->capture_default_str();
  grade_verb->add_flag("--again", grade_options.again, "Also grade what an earlier run has graded");
  grade_verb->add_flag("--unsafe", grade_options.unsafe, "Run submissions without any protection");
  grade_verb->add_flag("--prepare", grade_options.prepare, "Only build what grading needs");
  grade_verb->callback([&] { verb = [&](Session& session) { return grade(session, grade_options); }; });

  CheckOptions check_options;
  CLI::App* check_verb =
      add("check", "Maintainers: the whole gate of the book", "./workbook check\n         ./workbook check --full");
  check_verb->add_flag("--full", check_options.full, "Also both compilers, the sanitizer builds and clang-tidy");
  check_verb->add_option("--gate", check_options.gates, "Only these gates, by name");
  check_verb->add_option("--chapter", check_options.chapter, "Only this chapter's solutions, stubs and mutants")
      ->check(not_empty("a chapter"));
  check_verb->callback([&] { verb = [&](Session& session) { return check(session, check_options); }; });

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return error.get_exit_code() == 0 ? app.exit(error) : explain(app, error, {argv + 1, argv + argc});
  }
  return guarded([&] {
    Session session = open_session();
    session.json = json;
    return verb(session);
  });
}
