// Builds FlashAttention-3 from a checkout of Dao-AILab/flash-attention, as a library with the interface of peers.py.
#include <fmt/format.h>

#include "common/attention/error.hpp"
#include "common/bench/measurement.hpp"
#include "common/judge/workspace.hpp"
#include "common/worker/command.hpp"

namespace workbook::bench {
namespace fs = std::filesystem;

void check_flash_attention_3(const judge::Workspace& workspace, const fs::path& checkout) {
  const auto check = [&](const char* file, const std::string& allowed) {
    if (!fs::is_regular_file(checkout / file))
      fail_input("--flash-attention-3 {}: the file {} does not exist; allowed: {}", checkout.string(), file, allowed);
  };
  check("hopper/flash.h", "a checkout of github.com/Dao-AILab/flash-attention");
  check("csrc/cutlass/include/cutlass/cutlass.h",
        fmt::format("a checkout with its submodule csrc/cutlass: git -C {} submodule update --init csrc/cutlass",
                    worker::shell_quoted(checkout.string())));
  if (!workspace.toolchain.can_build(Backend::cuda))
    judge::fail_environment("--flash-attention-3 {}: it is compiled by nvcc: {}", checkout.string(),
                            workspace.toolchain.why_not(Backend::cuda));
}

std::optional<fs::path> build_flash_attention_3(Measurement& m) {
  const fs::path checkout = fs::absolute(m.request.flash_attention_3).lexically_normal(), hopper = checkout / "hopper";
  // A folder without .git may be inside another repository, whose commit this is not.
  const std::string commit = fs::exists(checkout / ".git")
                                 ? output_of({"git", "-C", checkout.string(), "rev-parse", "--short=12", "HEAD"})
                                 : "";
  m.results.environment[kFlashAttention3] = commit.empty() ? "commit not known" : "commit " + commit;
  if (m.results.environment["compute capability"] != "9.0") {
    m.skip("--flash-attention-3: its kernels need a GPU of compute capability 9.0, e.g. H100 or H200");
    return std::nullopt;
  }
  worker::WorkerJob job;
  job.name = m.request.decoding ? "flash_attention_3_decoding" : "flash_attention_3";
  job.backend = Backend::cuda;
  job.makes = worker::WorkerJob::part;
  job.architecture = "sm_90a";
  job.include = hopper;
  job.sources = {m.workspace.book.root / "common" / "bench" / "flash_attention_3.cu"};
  std::vector<std::string> kernels{"fwd_hdim128_fp16", "fwd_hdim64_fp16"},
      without{"SOFTCAP", "PAGEDKV", "APPENDKV", "VARLEN", "SM8x"};
  const auto add = [](auto& to, std::initializer_list<const char*> more) {
    to.insert(to.end(), more.begin(), more.end());
  };
  if (m.request.decoding) {
    add(kernels,
        {"fwd_hdim128_fp16_packgqa", "fwd_hdim64_fp16_packgqa", "fwd_hdim128_fp16_split", "fwd_hdim64_fp16_split"});
    add(without, {"LOCAL", "CLUSTER"});  // clusters are for two tiles of rows, and decoding has one
  } else {
    add(kernels, {"bwd_hdim128_fp16", "bwd_hdim64_fp16", "fwd_hdim128_e4m3", "fwd_hdim64_e4m3"});
    add(without, {"SPLIT", "PACKGQA"});
  }
  for (const std::string& name : kernels)
    job.sources.push_back(hopper / "instantiations" / fmt::format("flash_{}_sm90.cu", name));
  // The flags of its hopper/setup.py.
  job.flags = {fmt::format("-I{}", (checkout / "csrc" / "cutlass" / "include").string()),
               "--use_fast_math",
               "--expt-relaxed-constexpr",
               "--expt-extended-lambda",
               "-DNDEBUG",
               "-DCUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED",
               "-DCUTLASS_ENABLE_GDC_FOR_SM90"};
  for (const std::string& part : without) job.flags.push_back(fmt::format("-DFLASHATTENTION_DISABLE_{}", part));
  m.workspace.progress("building FlashAttention-3, once (two minutes on 16 cores)");
  // A build folder of its own: then no other build discards what ninja has recorded.
  worker::Toolchain toolchain = m.workspace.toolchain;
  toolchain.build_folder /= job.name;
  fs::create_directories(toolchain.build_folder);
  const worker::WorkerBuilt built = worker::build_workers(toolchain, {job}).at(job.name);
  std::string log = built.log;
  const fs::path library = toolchain.build_folder / (job.name + ".so");
  if (built.ok) {
    std::vector<std::string> link = toolchain.backends.at(Backend::cuda).link;
    link.insert(link.end(), {"-shared", "-o", library.string()});
    for (const auto& [source, object] : built.objects) link.push_back(object.string());
    const worker::CommandResult linked = worker::run_command(link);
    if (linked.exit_code == 0) return library;
    log = linked.output;
  }
  m.skip("--flash-attention-3: not compiled: " + log.substr(0, 2000));
  return std::nullopt;
}

}  // namespace workbook::bench
