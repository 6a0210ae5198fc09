#include "common/judge/default_kernels.hpp"

#include "common/judge/jobs.hpp"
#include "common/worker/description.hpp"
#include "common/worker/worker.hpp"

namespace workbook::judge {
namespace {

constexpr int kLanes = 32;  // per warp

void add_kernels(const book::Chapter& chapter, const worker::StageDescription& stage,
                 std::vector<DefaultKernel>& kernels) {
  if (!stage.head_dims) return;
  for (const int d : *stage.head_dims) {
    DefaultKernel kernel{&chapter, stage.pass, stage.element, stage.compute, stage.compute_only, d, {}, 0, 0};
    if (const worker::StageTiles* tiles = stage.default_tiles(d)) {
      const auto warps = tiles->sizes.find("warps");
      if (warps == tiles->sizes.end() || tiles->shared_bytes == 0) continue;  // on the CPU
      kernel.sizes = tiles->sizes;
      kernel.threads = kLanes * warps->second;
      kernel.shared_bytes = tiles->shared_bytes;
    }
    kernels.push_back(std::move(kernel));
  }
}

}  // namespace

std::vector<DefaultKernel> default_kernels(const Workspace& workspace,
                                           const std::vector<const book::Chapter*>& chapters) {
  if (const std::string why = why_unavailable(workspace, Backend::sim); !why.empty()) throw EnvironmentError(why);
  std::vector<worker::WorkerJob> jobs;
  std::vector<const book::Chapter*> with_kernels;
  for (const book::Chapter* chapter : chapters) {
    if (!chapter->runs_on(Backend::sim)) continue;
    const bool own = !workspace.book.has_solutions(*chapter);
    with_kernels.push_back(chapter);
    jobs.push_back(whole_job(workspace, *chapter,
                             own ? readers_tree(workspace, *chapter) : solutions_tree(workspace, *chapter),
                             Backend::sim));
  }
  worker::build_targets(workspace.toolchain, workspace.toolchain.backends.at(Backend::sim).targets);
  const auto built = worker::build_workers(workspace.toolchain, jobs);
  std::vector<DefaultKernel> kernels;
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const worker::WorkerBuilt& program = built.at(jobs[i].name);
    if (!program.ok) throw EnvironmentError(with_kernels[i]->name() + " does not compile:\n" + program.log);
    worker::Worker worker(program.executable, {});
    const auto description = worker::describe([&](const worker::Call& call) { return worker.call(call); });
    for (const worker::StageDescription& stage : description.stages) add_kernels(*with_kernels[i], stage, kernels);
  }
  return kernels;
}

}  // namespace workbook::judge
