#include "common/judge/stages.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace workbook::judge {

std::string disagreement(const book::Chapter& chapter, Backend backend, const worker::WorkerDescription& description) {
  const char* file = backend == Backend::cpu ? "stage.cpp" : "stage.cu";
  if (std::find(chapter.files.begin(), chapter.files.end(), file) == chapter.files.end())
    return fmt::format("chapter.toml has the backend \"{}\", but no {} among its files", name(backend), file);
  const worker::StageDescription* stage = description.find(chapter.pass);
  if (stage == nullptr)
    return fmt::format("chapter.toml has pass = \"{}\", but {} has no such stage", chapter.pass, file);
  if (stage->element != chapter.element_on(backend))
    return fmt::format("on \"{}\" chapter.toml has the element \"{}\", {} has \"{}\"", name(backend),
                       chapter.element_on(backend), file, stage->element);
  if (stage->causal != chapter.causal)
    return fmt::format("chapter.toml has causal = {}, {} has {}", chapter.causal, file, stage->causal);
  return "";
}

}  // namespace workbook::judge
