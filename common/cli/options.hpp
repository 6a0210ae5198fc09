// What a verb tells the command line that it takes. A verb's file declares its options here and never sees CLI11, which
// costs seconds in every file that includes it: options.cpp alone does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
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
/// A verb whose options are read, and what they are read into: runs it, or gives nothing where another program has it.
using Runner = std::function<std::optional<int>(const Session&)>;

/// What is wrong with an option's value; empty if it is allowed.
using Allowed = std::function<std::string(const std::string&)>;
/// A whole number from `least` on that fits T, std::int64_t or std::uint64_t.
template <class T>
Allowed whole_number(T least);
/// A number from `least` to `most`, which `allowed` says in words.
Allowed number(double least, double most, const std::string& allowed);
Allowed one_of(const std::vector<std::string>& values, const std::string& allowed);
/// An empty word is what an unset shell variable leaves: never what was meant.
Allowed not_empty(const std::string& allowed);

class Option {
 public:
  explicit Option(CLI::Option* option) : option_(option) {}
  Option& allow(const Allowed& allowed);
  Option& show_default();  ///< in --help
  Option& required();
  Option& separated_by(char separator);  ///< a list's values within one word
  Option& excludes(const std::vector<std::string>& names);
  bool given() const;  ///< to be asked by the verb that runs

 private:
  CLI::Option* option_;
};

/// The options of one verb. What they are read into has to live until the verb has run.
class Options {
 public:
  Options(CLI::App& verb, std::vector<std::string> words) : verb_(verb), words_(std::move(words)) {}
  /// "--name" or, without dashes, a word by its place. T: std::string, std::int64_t, std::uint64_t, double, or a vector
  /// of the first two, of which "--name" takes one word each time it is given: the next may be a word by its place.
  template <class T>
  Option option(const std::string& name, T& value, const std::string& description);
  Option flag(const std::string& name, bool& value, const std::string& description);
  /// The words of the command line, the verb included.
  const std::vector<std::string>& words() const { return words_; }

 private:
  CLI::App& verb_;
  std::vector<std::string> words_;
};

/// Declares a verb's options; what it returns runs the verb.
using Declare = Runner (*)(Options&);

struct Verb {
  const char* name;
  const char* program;  ///< that has it
  const char* description;
  const char* example;
  Declare declare;
};

/// What the command line asks for.
struct CommandLine {
  const Verb* verb = nullptr;  ///< nullptr: none, everything is said already and the command ends with
  int exit_code = 0;           ///< this
  Runner run;                  ///< the verb
  bool json = false;
  std::shared_ptr<CLI::App> app;  ///< keeps what options ask
};
/// Reads it; prints help, or what is wrong with it and what is allowed. Without a verb: the first one.
CommandLine read_command_line(std::span<const Verb> verbs, const std::vector<std::string>& words);

/// Makes the folder that `flag` names, if it is not there. InputError if it cannot be made.
void require_folder(const char* flag, const std::filesystem::path& folder);

}  // namespace workbook::cli
