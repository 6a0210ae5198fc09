// Times the steps within a chapter on a GPU.
#include <fmt/format.h>

#include "common/bench/measurement.hpp"

namespace workbook::bench {
namespace {

constexpr std::int64_t kStepLength = 4096;  // N at which the steps are compared

}  // namespace

void time_steps(Measurement& m) {
  for (const Variant& variant : m.variants) {
    const book::Chapter& chapter = m.workspace.book.chapter(variant.chapter);
    const worker::WorkerBuilt& built = m.built_step(variant);
    std::optional<worker::Worker> worker;
    for (const std::int64_t d : m.request.head_dims) {
      if (variant.head_dim != 0 && variant.head_dim != d) continue;
      Point p = m.point_of(chapter, Backend::cuda, usual_shape(chapter.pass, variant.mask, kStepLength, d),
                           m.versions_of(chapter, Backend::cuda).front());
      p.name = fmt::format("{}: {}", variant.chapter, variant.title);
      p.kind = "step";
      m.workspace.progress(p.name);
      if (!built.ok) {
        take_compile_error(p, built);
      } else {
        if (!worker) worker.emplace(built.executable, gpu_limits());
        if (!time_point(m, *worker, chapter, p, variant.numbers)) worker.reset();
      }
      m.results.points.push_back(std::move(p));
    }
  }
}

}  // namespace workbook::bench
