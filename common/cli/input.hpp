// What several verbs ask for: Q, K, V, a text through the embedding, or files; the GPU to simulate.
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

/// What the command line says of the input.
struct ProblemOptions {
  std::string text;     ///< a file whose bytes are attended over; empty: the book's own text
  std::string q, k, v;  ///< .npy files
  std::int64_t seq = 1024, heads = 4, head_dim = 64;
  std::int64_t queries = 0;   ///< the last ones of the sequence; 0: all
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  bool shape_given = false;   ///< one of these was given
  Mask mask;
  std::string sink;  ///< a .npy file of H logits
  double scale = 0;  ///< 0: 1/√d
  bool scale_given = false;
  std::uint64_t seed = 1;
};

/// Declares them, as run and trace take them. What it returns is to be called when the command line has been read.
std::function<void()> declare_problem(Options& options, ProblemOptions& given);

/// What --mask may be given.
Allowed a_mask();
/// Declares --element: only stages for this type of Q, K, V and O.
void declare_element(Options& options, std::string& element);
/// What --set gives: numbers that a chapter's operation knows, beside those that other options give it. InputError for
/// what is no NAME=NUMBER, or for one of those.
std::map<std::string, double> numbers_set(const std::vector<std::string>& set);
/// Declares --gpu, the GPU whose limits hold: on the simulator, or beside the device's own on a GPU.
void declare_gpu(Options& options, std::string& gpu);
/// Takes them on for what is started from here on, and keeps to the simulator unless another backend is asked for.
/// InputError if that is the CPU. Nothing if `gpu` is empty.
void simulate(const std::string& gpu, std::string& backend);
/// The same for a verb that knows the simulator alone.
void simulate(const std::string& gpu);

/// The bytes of the file that --text names; for an empty name those of common/attention/text.txt: README and the first
/// three lessons as they once were. They stay as they are when the book is edited, so that the counts that lessons
/// quote stay right. InputError if the file cannot be read.
std::string text_bytes(const Session& session, const std::string& file);

/// The problem. A text's is rounded to fp16, so that every stage is given the same numbers. InputError naming the
/// option for what cannot be used.
Problem make_problem(const Session& session, const ProblemOptions& options);

/// {"source", "B", "H", …}, as notes/json.md documents it.
nlohmann::json input_json(const Problem& problem, const ProblemOptions& options);
/// "Attention over the book's own text: B=1, H=4, …"
std::string input_text(const Problem& problem, const ProblemOptions& options);

/// Before anything is computed: InputError if the file that `flag` names cannot be written. Empty path: nothing to
/// write.
void require_writable(const char* flag, const std::string& path);

}  // namespace workbook::cli
