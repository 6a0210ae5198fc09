#include "common/judge/mistakes.hpp"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <stdexcept>

namespace workbook::judge {
namespace {

std::vector<ChapterMistakes>& all_chapters() {
  static std::vector<ChapterMistakes> chapters;
  return chapters;
}

void collect(const ChapterMistakes& chapter, std::vector<const ChapterMistakes*>& found) {
  for (const std::string& used : chapter.uses) {
    const auto other = std::ranges::find(declared(), used, &ChapterMistakes::chapter);
    if (other == declared().end())
      throw std::logic_error("the mistakes of " + chapter.chapter + " use those of " + used + ", which declares none");
    collect(*other, found);
  }
  if (std::ranges::count(found, &chapter) == 0) found.push_back(&chapter);
}

/// The used chapters, then chapter `number` itself; empty if it declares nothing.
std::vector<const ChapterMistakes*> chapters_for(int number) {
  std::vector<const ChapterMistakes*> found;
  for (const ChapterMistakes& chapter : declared())
    if (std::stoi(chapter.chapter) == number) collect(chapter, found);
  return found;
}

std::vector<Mistake> attention_mistakes(int number, AttentionMistakes::Shows shown, const AttentionModel& right,
                                        const std::function<Tensor<double>(const AttentionModel&)>& output) {
  std::vector<const AttentionMistakes*> tables;
  for (const ChapterMistakes* chapter : chapters_for(number))
    for (const AttentionMistakes& mistakes : chapter->attention)
      if (mistakes.shows == AttentionMistakes::in_both || mistakes.shows == shown) tables.push_back(&mistakes);
  std::ranges::stable_sort(tables, {}, [](const AttentionMistakes* mistakes) { return mistakes->turn; });
  std::vector<Mistake> result;
  for (const AttentionMistakes* mistakes : tables) {
    const std::size_t known = result.size();
    make(result, mistakes->table, right, output, right.cost());
    for (std::size_t i = known; i < result.size(); ++i)
      result[i].may_spare = mistakes->turn >= Turn::unwritten_tiles;  // mistakes that leave out one output, or both
  }
  return result;
}

}  // namespace

std::vector<std::string> ChapterMistakes::ids() const {
  std::vector<std::string> all;
  for (const AttentionMistakes& mistakes : attention)
    for (const auto& entry : mistakes.table.entries) all.push_back(entry.id);
  for (const auto& entry : gradients.entries) all.push_back(entry.id);
  for (const std::vector<std::string>* ids : {&parts, &claimed}) all.insert(all.end(), ids->begin(), ids->end());
  return all;
}

std::vector<std::string> words(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

Declared::Declared(ChapterMistakes mistakes) {
  all_chapters().push_back(std::move(mistakes));
}
const std::vector<ChapterMistakes>& declared() {
  return all_chapters();
}

std::vector<Mistake> output_mistakes(int number, const Problem& problem, const Tiling& tiling,
                                     const Precision& precision) {
  return attention_mistakes(number, AttentionMistakes::in_O, AttentionModel(problem, tiling, precision),
                            [](const AttentionModel& model) { return model.O(); });
}
std::vector<Mistake> lse_mistakes(int number, const Problem& problem, const Tiling& tiling,
                                  const Precision& precision) {
  return attention_mistakes(number, AttentionMistakes::in_LSE, AttentionModel(problem, tiling, precision),
                            [](const AttentionModel& model) { return model.LSE(); });
}
std::vector<Mistake> gradient_mistakes(int number, const GradientModel& right) {
  std::vector<Mistake> result;
  for (const ChapterMistakes* chapter : chapters_for(number))
    make<GradientModel>(
        result, chapter->gradients, right, [](const GradientModel& model) { return model.compute(); }, right.cost());
  for (Mistake& mistake : result) mistake.may_spare = true;
  return result;
}

}  // namespace workbook::judge
