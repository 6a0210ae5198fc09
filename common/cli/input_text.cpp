// What is printed of a problem (input.hpp).
#include "common/cli/input.hpp"

namespace workbook::cli {

nlohmann::json input_json(const Problem& problem, const ProblemOptions& options) {
  const Shape& s = problem.shape;
  nlohmann::json input{{"source", !options.q.empty()     ? "npy"
                                  : options.text.empty() ? "book"
                                                         : "text"},
                       {"B", s.B},
                       {"H", s.H},
                       {"Hkv", s.Hkv},
                       {"Nq", s.Nq},
                       {"Nk", s.Nk},
                       {"d", s.d},
                       {"mask", problem.mask.name()},
                       {"causal", problem.causal()},
                       {"scale", number_json(problem.scale)}};
  input["seed"] = options.q.empty() ? nlohmann::json(options.seed) : nlohmann::json(nullptr);
  return input;
}

std::string input_text(const Problem& problem, const ProblemOptions& options) {
  const Shape& s = problem.shape;
  return fmt::format("Attention over {}: B={}, H={}{}, Nq={}, Nk={}, d={}, {}, scale {:.6g}",
                     !options.q.empty()     ? options.q
                     : options.text.empty() ? "the book's own text"
                                            : options.text,
                     s.B, s.H, s.H == s.Hkv ? "" : fmt::format(", Hkv={}", s.Hkv), s.Nq, s.Nk, s.d, problem.mask.text(),
                     problem.scale);
}

}  // namespace workbook::cli
