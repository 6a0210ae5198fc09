// Options that several verbs share: the input (Q, K, V from an embedded text or from files) and the simulated GPU.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/attention/problem.hpp"
#include "common/cli/options.hpp"
#include "common/cli/session.hpp"

namespace workbook::cli {

/// The input, as given on the command line.
struct ProblemOptions {
  std::string text;     ///< a file whose bytes are the tokens; empty: the book's own text
  std::string q, k, v;  ///< .npy files
  std::int64_t seq = 1024, heads = 4, head_dim = 64;
  std::int64_t queries = 0;   ///< number of queries, the last rows of the sequence; 0: all
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  bool shape_given = false;   ///< one of these was given
  Mask mask;
  std::string sink;  ///< a .npy file of H logits
  double scale = 0;  ///< 0: 1/√d
  bool scale_given = false;
  std::uint64_t seed = 1;
};

/// Declares the input options of run and trace. The caller must call the returned function after parsing.
std::function<void()> declare_problem(Options& options, ProblemOptions& given);

/// The values that --mask accepts.
Allowed a_mask();
/// Declares --element: only stages for this type of Q, K, V and O.
void declare_element(Options& options, std::string& element);
/// The parameters that --set passes to a chapter's operation. InputError for a word that is not NAME=NUMBER, or for a
/// parameter that another option sets.
std::map<std::string, double> numbers_set(const std::vector<std::string>& set);
/// Declares --gpu, the GPU whose limits apply: on the simulator, or in addition to the device's own on a GPU.
void declare_gpu(Options& options, std::string& gpu);
/// Applies the limits of `gpu` to every worker started from now on, and selects the simulator unless `backend` is
/// given. InputError if `backend` is the CPU. Does nothing if `gpu` is empty.
void simulate(const std::string& gpu, std::string& backend);
/// The same for a verb that uses only the simulator.
void simulate(const std::string& gpu);

/// The bytes of the file that --text names; for an empty name those of common/attention/text.txt: README and the first
/// three lessons of an earlier edition. The file never changes, so that the counts quoted in the lessons stay right.
/// At most the first `most` bytes are read, since the file may be endless. InputError if the file cannot be read.
std::string text_bytes(const Session& session, const std::string& file, std::size_t most);

/// The problem. An embedded text is rounded to fp16, so that every stage gets the same values. InputError names the
/// option at fault.
Problem make_problem(const Session& session, const ProblemOptions& options);

/// {"source", "B", "H", …}, as notes/json.md documents it.
nlohmann::json input_json(const Problem& problem, const ProblemOptions& options);
/// "Attention over the book's own text: B=1, H=4, …"
std::string input_text(const Problem& problem, const ProblemOptions& options);

/// InputError if the file that `flag` names cannot be written; called before anything is computed. An empty path is
/// allowed.
void require_writable(const char* flag, const std::string& path);

}  // namespace workbook::cli
