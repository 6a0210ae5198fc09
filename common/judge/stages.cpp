#include "common/judge/stages.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

namespace workbook::judge {

namespace {

std::string names_of(const std::vector<Mask>& masks) {
  std::vector<std::string_view> names;
  for (const Mask& mask : masks) names.emplace_back(part_name(mask));
  return fmt::format("{}", fmt::join(names, ", "));
}

/// As disagreement() below, for the stages of one pass.
std::string disagreement(const book::Chapter& chapter, const std::string& pass, Backend backend, const char* file,
                         const worker::WorkerDescription& description) {
  const worker::StageDescription* stage = description.find(pass);
  if (stage == nullptr)
    return fmt::format("chapter.toml has {} = \"{}\", but {} has no such stage",
                       pass == chapter.pass ? "pass" : "more_passes", pass, file);
  if (stage->element != chapter.element_on(backend))
    return fmt::format("on \"{}\" chapter.toml has the element \"{}\", but {} has \"{}\"", name(backend),
                       name(chapter.element_on(backend)), file, name(stage->element));
  for (const Element element : chapter.more_elements) {
    if (backend != Backend::cpu && description.find(pass, element) == nullptr)
      return fmt::format("chapter.toml has more_elements = [\"{}\"], but {} has no such stage", name(element), file);
  }
  for (const worker::StageDescription& more : description.stages) {
    const bool named = more.element == float32 || chapter.takes(more.element, backend);
    if (more.pass == pass && !named)
      return fmt::format("{} has a stage for \"{}\", which is missing in chapter.toml's more_elements", file,
                         name(more.element));
  }
  if (stage->masks != chapter.masks)
    return fmt::format("chapter.toml has the masks {}, but {} has {}", names_of(chapter.masks), file,
                       names_of(stage->masks));
  if (const bool shared = std::ranges::count(chapter.shared_heads, backend) > 0; stage->shared_heads != shared)
    return fmt::format("chapter.toml says that heads {} share K and V on \"{}\", but {} does not",
                       shared ? "may" : "may not", name(backend), file);
  return "";
}

}  // namespace

std::string disagreement(const book::Chapter& chapter, Backend backend, const worker::WorkerDescription& description) {
  const char* file = backend == Backend::cpu ? "stage.cpp" : "stage.cu";
  if (std::find(chapter.files.begin(), chapter.files.end(), file) == chapter.files.end())
    return fmt::format("chapter.toml has the backend \"{}\", but no {} among its files", name(backend), file);
  for (const std::string& pass : chapter.passes())
    if (std::string wrong = disagreement(chapter, pass, backend, file, description); !wrong.empty()) return wrong;
  return "";
}

}  // namespace workbook::judge
