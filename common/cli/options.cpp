#include "common/cli/options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include "common/attention/error.hpp"
#include "common/cli/session.hpp"

namespace workbook::cli {
namespace fs = std::filesystem;
namespace {

std::string refusal(const std::string& value, const std::string& allowed) {
  return fmt::format("\"{}\" is not allowed; allowed: {}", value, allowed);
}

/// Parses all of `text` as a number; false if it is not a number.
template <class T>
bool read(const std::string& text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

/// Prints what is wrong with the command line and what is allowed.
int explain(const CLI::App& app, const CLI::ParseError& error, const std::vector<std::string>& words) {
  const std::vector<CLI::App*> verbs = app.get_subcommands();
  const std::string verb = verbs.empty() ? "" : " " + verbs[0]->get_name();
  const std::string text = error.what();
  const std::size_t colon = text.rfind(": ");
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr || colon == std::string::npos) {
    print_error("workbook: {}; see ./workbook{} --help\n", text, verb);
    return kUsage;
  }
  // Without a verb, the first word was meant as the verb. CLI11 lists the remaining words from the end.
  const auto first = std::find_if(words.begin(), words.end(), [](const auto& word) { return word != "--json"; });
  const std::string extra = verbs.empty() && first != words.end() ? *first : text.substr(colon + 2);
  if (verbs.empty() && !extra.starts_with("-")) {
    std::vector<std::string> names;
    for (const CLI::App* known : app.get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(known->get_name());
    }
    print_error("workbook: {}: unknown verb; allowed: {}\n", extra, fmt::join(names, ", "));
  } else {
    std::string hint;
    for (const CLI::App* of : verbs)
      for (const CLI::Option* option : of->get_options())
        if (option->get_delimiter() != '\0' && option->count() > 0 && !extra.starts_with("-"))
          hint += fmt::format("; allowed: values of {} separated by commas", option->get_name());
    print_error("workbook: {}: unexpected argument{}; see ./workbook{} --help\n", extra, hint, verb);
  }
  return kUsage;
}

}  // namespace

template <class T>
Allowed whole_number(T least, T most) {
  return [=](const std::string& text) {
    T value{};
    const bool decimal = read(text, value) && text == std::to_string(value);  // CLI11 reads 010 as an octal number
    if (decimal && value >= least && value <= most) return std::string();
    return refusal(text, fmt::format("a whole number from {} to {}", least, most));
  };
}
template Allowed whole_number(std::int64_t, std::int64_t);
template Allowed whole_number(std::uint64_t, std::uint64_t);

Allowed number(double least, double most, const std::string& allowed) {
  return [=](const std::string& text) {
    double value{};
    return read(text, value) && value >= least && value <= most ? "" : refusal(text, allowed);
  };
}

Allowed one_of(const std::vector<std::string>& values, const std::string& allowed) {
  return [=](const std::string& text) {
    return std::find(values.begin(), values.end(), text) != values.end() ? "" : refusal(text, allowed);
  };
}

Allowed not_empty(const std::string& allowed) {
  return [=](const std::string& text) { return text.empty() ? refusal(text, allowed) : ""; };
}

Option& Option::allow(const Allowed& allowed) {
  option_->check(CLI::Validator([allowed](const std::string& text) { return allowed(text); }, "", ""));
  return *this;
}
Option& Option::show_default() {
  option_->capture_default_str();
  return *this;
}
Option& Option::required() {
  option_->required();
  return *this;
}
Option& Option::separated_by(char separator) {
  option_->delimiter(separator);
  return *this;
}
Option& Option::excludes(const std::vector<std::string>& names) {
  for (const std::string& name : names) option_->excludes(name);
  return *this;
}
bool Option::given() const {
  return option_->count() > 0;
}

template <class T>
Option Options::option(const std::string& name, T& value, const std::string& description) {
  CLI::Option* option = verb_.add_option(name, value, description);
  // Otherwise CLI11 would read `bench --n 4096 8` as two lengths and no chapter.
  if (name.starts_with("--") && option->get_expected_max() > 1) option->allow_extra_args(false);
  return Option(option);
}
template Option Options::option(const std::string&, std::string&, const std::string&);
template Option Options::option(const std::string&, std::int64_t&, const std::string&);
template Option Options::option(const std::string&, std::uint64_t&, const std::string&);
template Option Options::option(const std::string&, double&, const std::string&);
template Option Options::option(const std::string&, std::vector<std::string>&, const std::string&);
template Option Options::option(const std::string&, std::vector<std::int64_t>&, const std::string&);

Option Options::flag(const std::string& name, bool& value, const std::string& description) {
  return Option(verb_.add_flag(name, value, description));
}

CommandLine read_command_line(std::span<const Verb> verbs, const std::vector<std::string>& words) {
  CommandLine line;
  line.app = std::make_shared<CLI::App>(
      "The FlashAttention Workbook: build FlashAttention chapter by chapter. Without a verb: ./workbook status.",
      "workbook");
  CLI::App& app = *line.app;
  app.require_subcommand(0, 1);
  app.footer(
      "Examples: ./workbook run          ./workbook test 1          ./workbook hint 1.1\n"
      "Exit codes: 0 success, 1 a test failed or is open, 2 wrong usage, 3 environment");
  app.add_flag("--json", line.json, "Print the result as one JSON document");
  std::map<std::string, Runner> runners;
  for (const Verb& verb : verbs) {
    CLI::App* sub = app.add_subcommand(verb.name, verb.description);
    sub->footer(std::string("Example: ") + verb.example);
    sub->add_flag("--json", line.json, "Print the result as one JSON document");
    Options options(*sub, words);
    runners[verb.name] = verb.declare(options);
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 expects them in reverse order
  } catch (const CLI::ParseError& error) {
    line.exit_code = error.get_exit_code() == 0 ? app.exit(error) : explain(app, error, words);
    return line;
  }
  line.verb = &verbs.front();
  for (const Verb& verb : verbs)
    if (app.got_subcommand(verb.name)) line.verb = &verb;
  line.run = runners[line.verb->name];
  return line;
}

void require_folder(const char* flag, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error || !fs::is_directory(folder))
    fail_input("{} {}: cannot create the folder ({}); allowed: a writable folder", flag, folder.string(),
               error ? error.message() : "a file with that name exists");
}

}  // namespace workbook::cli
