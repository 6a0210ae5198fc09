// Known mistakes, which chapters declare in tests/NN_name/mistakes.cpp. A mistake is an id, a sentence, and a change to
// a correct model. Any struct can be the model of a part that a chapter tests alone. Chapters share attention_model.hpp
// and gradient_model.hpp.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/judge/attention_model.hpp"
#include "common/judge/diagnosis.hpp"
#include "common/judge/gradient_model.hpp"

namespace workbook::judge {

/// The known mistakes in the output of a Model. Their order matters: if several agree, the first provides the sentence.
template <class Model>
class MistakeTable {
 public:
  using Change = std::function<void(Model&)>;
  using Condition = std::function<bool(const Model&)>;
  struct Entry {
    std::string id;        ///< "no-scale"; mutants refer to it. Entries may share it: several variants of one mistake
    std::string sentence;  ///< "the scores are not multiplied by the scale 1/√d"; see AttentionModel::words
    Change change;
    Condition when;         ///< the condition on the model under which this is a mistake
    bool constant = false;  ///< the output costs no time
  };

  MistakeTable() = default;
  /// `when`: the condition for all entries.
  explicit MistakeTable(Condition when) : when_(std::move(when)) {}

  void add(std::string id, std::string sentence, Change change, Condition when = {}) {
    if (when_ && when) when = [all = when_, one = when](const Model& model) { return all(model) && one(model); };
    entries.push_back({std::move(id), std::move(sentence), std::move(change), when ? std::move(when) : when_});
  }
  void add_constant(std::string id, std::string sentence, Change change) {
    add(std::move(id), std::move(sentence), std::move(change));
    entries.back().constant = true;
  }
  void add(const MistakeTable& other) {
    for (const Entry& entry : other.entries) {
      add(entry.id, entry.sentence, entry.change, entry.when);
      entries.back().constant = entry.constant;
    }
  }

  std::vector<Entry> entries;

 private:
  Condition when_;
};

/// Appends the mistakes for diagnose(): each changes a copy of the model.
template <class Model>
void make(std::vector<Mistake>& mistakes, const MistakeTable<Model>& table, const Model& right,
          const std::function<Tensor<double>(const Model&)>& output, double cost = 0) {
  const auto shared = std::make_shared<const Model>(right);
  for (const auto& entry : table.entries) {
    if (entry.when && !entry.when(right)) continue;
    std::string sentence = entry.sentence;
    if constexpr (requires { right.words; }) {
      for (const auto& [placeholder, word] : right.words)
        for (std::size_t at = 0; (at = sentence.find(placeholder, at)) != std::string::npos; at += word.size())
          sentence.replace(at, placeholder.size(), word);
    }
    mistakes.push_back({entry.id, sentence,
                        [shared, output, change = entry.change] {
                          Model wrong = *shared;
                          change(wrong);
                          return output(wrong);
                        },
                        entry.constant ? 0 : cost});
  }
}
template <class Model>
std::vector<Mistake> made(const MistakeTable<Model>& table, const Model& right,
                          const std::function<Tensor<double>(const Model&)>& output, double cost = 0) {
  std::vector<Mistake> mistakes;
  make(mistakes, table, right, output, cost);
  return mistakes;
}

/// The priority of a table's mistakes: in the order of the algorithm, then special ones, then the least specific ones.
enum class Turn {
  lse,
  scores,
  mask,
  softmax,
  keys,
  range,
  tiles,
  warps,
  rounding,
  output,
  lanes,
  unwritten_tiles,
  unwritten,
  nothing
};

/// Mistakes in the forward pass.
struct AttentionMistakes {
  Turn turn;
  enum Shows { in_both, in_O, in_LSE } shows;
  MistakeTable<AttentionModel> table;
};

/// Splits a text into words: a list of ids.
std::vector<std::string> words(const std::string& text);

/// Reasons for a mistake without a mutant.
inline constexpr const char* one_of_a_kind =
    "one slip among several of a kind that has mutants; tests/judge makes each of them in the model";
inline constexpr const char* given_code =
    "which head, row or tile a block has is given code, where one such mutant stands for all; tests/judge makes them";
inline constexpr const char* one_claim_of_several = "a line of its own in a test whose other claims have mutants";

/// The declarations of a chapter.
struct ChapterMistakes {
  std::string chapter;                 ///< "04_q_split", the folder's name
  std::vector<std::string> uses = {};  ///< chapters whose mistakes in attention and gradients apply here too
  std::vector<AttentionMistakes> attention = {};
  MistakeTable<GradientModel> gradients = {};
  /// Ids of the mistakes in parts that its tests call alone, and of those that its tests detect without comparing
  /// outputs.
  std::vector<std::string> parts = {}, claimed = {};
  /// Mistakes without a mutant in the book, and the reason.
  struct Unmade {
    std::string why;
    std::vector<std::string> ids;
  };
  std::vector<Unmade> without_mutant = {};

  /// All ids above, without those of `uses`.
  std::vector<std::string> ids() const;
};

/// Declares a chapter's mistakes: an object of this type in its mistakes.cpp.
struct Declared {
  explicit Declared(ChapterMistakes mistakes);
};
const std::vector<ChapterMistakes>& declared();

/// The ids of a table, for ChapterMistakes::parts.
template <class... Models>
std::vector<std::string> ids_of(const MistakeTable<Models>&... tables) {
  std::vector<std::string> ids;
  (
      [&] {
        for (const auto& entry : tables.entries) ids.push_back(entry.id);
      }(),
      ...);
  return ids;
}

/// The known mistakes of chapter `number` in a stage's O, in its LSE, and in one of its gradients.
std::vector<Mistake> output_mistakes(int number, const Problem& problem, const Tiling& tiling,
                                     const Precision& precision);
std::vector<Mistake> lse_mistakes(int number, const Problem& problem, const Tiling& tiling, const Precision& precision);
std::vector<Mistake> gradient_mistakes(int number, const GradientModel& right);

}  // namespace workbook::judge
