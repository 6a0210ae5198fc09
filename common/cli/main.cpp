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

  RunOptions run_options;
  CLI::App* run_verb =
      add("run", "Attend over a real text, or your own Q, K, V, with every stage, and check each one",
          "./workbook run --seq 2048 --causal\n         ./workbook run --q q.npy --k k.npy --v v.npy --out o.npy");
  const CLI::Validator a_file = not_empty("a file name");
  run_verb
      ->add_option("--text", run_options.text, "A file whose bytes are attended over (default: the book's own text)")
      ->check(a_file);
  const CLI::Option* seq = run_verb->add_option("--seq", run_options.seq, "Sequence length N")
                               ->check(whole_number<std::int64_t>(1))
                               ->capture_default_str();
  const CLI::Option* heads = run_verb->add_option("--heads", run_options.heads, "Heads H")
                                 ->check(whole_number<std::int64_t>(1))
                                 ->capture_default_str();
  const CLI::Option* head_dim =
      run_verb->add_option("--head-dim", run_options.head_dim, "Head dimension d: 32, 64 or 128")
          ->check(one_of({"32", "64", "128"}, "32, 64 or 128"))
          ->capture_default_str();
  run_verb->add_flag("--causal", run_options.causal, "Causal mask, bottom-right aligned");
  const CLI::Option* scale = run_verb->add_option("--scale", run_options.scale, "Scale of QKᵀ (default 1/√d)")
                                 ->check(number(std::numeric_limits<float>::min(), std::numeric_limits<float>::max(),
                                                "a positive number that a float can hold"));
  run_verb->add_option("--seed", run_options.seed, "Seed of the embedding")
      ->check(whole_number<std::uint64_t>(0))
      ->capture_default_str();
  run_verb->add_option("--q", run_options.q, "Q as .npy, (B, H, Nq, d) or (H, Nq, d)")->check(a_file);
  run_verb->add_option("--k", run_options.k, "K as .npy")->check(a_file);
  run_verb->add_option("--v", run_options.v, "V as .npy")->check(a_file);
  run_verb->add_option("--out", run_options.out, "Write O of the last stage as .npy")->check(a_file);
  run_verb->add_option("--lse", run_options.lse, "Write the LSE of the last stage as .npy")->check(a_file);
  run_verb->add_option("--stage", run_options.stage, "Only this chapter's stage")->check(not_empty("a chapter"));
  run_verb->add_option("--backend", run_options.backend, "Only on this backend")
      ->check(one_of({"cpu", "sim", "cuda"}, "cpu, sim or cuda"));
  run_verb->add_option("--memory", run_options.memory, "The most memory that a stage may use, e.g. 512M or 2G")
      ->check(not_empty("a size"));
  run_verb->add_flag("--chapters", run_options.chapters, "Your own stages in place of the book's");
  run_verb->callback([&] {
    run_options.shape_given = seq->count() + heads->count() + head_dim->count() > 0;
    run_options.scale_given = scale->count() > 0;
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
  test_verb->add_option("--time-limit", test_options.time_limit, "Seconds that one call may take")
      ->check(number(0.1, 86400, "seconds, from 0.1 to 86400"))
      ->capture_default_str();
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

  CLI::App* doctor_verb =
      add("doctor", "What was found here, what is missing, and what therefore cannot run", "./workbook doctor");
  doctor_verb->callback([&] { verb = [](Session& session) { return doctor(session); }; });

  bool force = false;
  CLI::App* stubs_verb = add("stubs", "Instructors: write the stubs in chapters/ from solutions/", "./workbook stubs");
  stubs_verb->add_flag("--force", force, "Also over files that hold work, after a copy");
  stubs_verb->callback([&] { verb = [&](Session& session) { return stubs(session, force); }; });

  CheckOptions check_options;
  CLI::App* check_verb =
      add("check", "Maintainers: the whole gate of the book", "./workbook check\n         ./workbook check --full");
  check_verb->add_flag("--full", check_options.full, "Also both compilers, the sanitizer builds and clang-tidy");
  check_verb->add_option("--gate", check_options.gates, "Only these gates, by name");
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
