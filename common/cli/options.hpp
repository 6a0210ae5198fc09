// The options of a verb. Verbs declare their options through this header without including CLI11, which adds seconds to
// every file that includes it. Only options.cpp includes it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace workbook::cli {

struct Session;
/// Runs a verb with the options that were read; returns nothing if another program implements the verb.
using Runner = std::function<std::optional<int>(const Session&)>;

/// Returns what is wrong with an option's value; empty if the value is allowed.
using Allowed = std::function<std::string(const std::string&)>;
/// A whole number from `least` to `most`. T: std::int64_t or std::uint64_t.
template <class T>
Allowed whole_number(T least, T most = std::numeric_limits<T>::max());
/// A number from `least` to `most`; `allowed` describes the range in words.
Allowed number(double least, double most, const std::string& allowed);
Allowed one_of(const std::vector<std::string>& values, const std::string& allowed);
/// Refuses the empty string, which usually comes from an unset shell variable.
Allowed not_empty(const std::string& allowed);

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& allow(const Allowed& allowed);
  Option& show_default();  ///< in --help
  Option& required();
  Option& separated_by(char separator);  ///< of a list's values within one word
  Option& excludes(const std::vector<std::string>& names);
  bool given() const;  ///< valid once the verb runs

 private:
  CLI::Option* option_;
};

/// The options of one verb. The variables they are read into must outlive the verb's run.
class Options {
 public:
  Options(CLI::App& verb, std::vector<std::string> words) : verb_(verb), words_(std::move(words)) {}
  /// "--name" or, without dashes, a positional argument. T: std::string, std::int64_t, std::uint64_t, double, or a
  /// vector of the first two. A vector's "--name" takes one word each time it is given, since the next word may be a
  /// positional argument.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& description);
  Option flag(const std::string& name, bool& value, const std::string& description);
  /// The words of the command line, the verb included.
  const std::vector<std::string>& words() const { return words_; }

 private:
  CLI::App& verb_;
  std::vector<std::string> words_;
};

/// Declares a verb's options and returns the function that runs the verb.
using Declare = Runner (*)(Options&);

struct Verb {
  const char* name;
  const char* program;  ///< that implements it
  const char* description;
  const char* example;
  Declare declare;
};

/// The parsed command line.
struct CommandLine {
  const Verb* verb = nullptr;  ///< nullptr: everything has been printed, and the command ends with
  int exit_code = 0;           ///< this
  Runner run;                  ///< the verb
  bool json = false;
  std::shared_ptr<CLI::App> app;  ///< keeps the options alive
};
/// Parses the command line. Prints help, or what is wrong and what is allowed. Without a verb: the first one.
CommandLine read_command_line(std::span<const Verb> verbs, const std::vector<std::string>& words);

/// Creates the folder that `flag` names if it does not exist. InputError if it cannot be created.
void require_folder(const char* flag, const std::filesystem::path& folder);

}  // namespace workbook::cli
