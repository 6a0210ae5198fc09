// Times PyTorch's and other libraries' attention on the same shapes. peers.py receives the shapes and replies with one
// line per shape and peer.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "common/attention/mask_text.hpp"
#include "common/bench/measurement.hpp"
#include "common/book/files.hpp"
#include "common/worker/command.hpp"

namespace workbook::bench {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;

constexpr double kPeersSeconds = 1800;
constexpr std::size_t kMostOfOutput = 2000;  // characters kept of Python's last output

std::string option_of(const Measurement& m) {
  return m.request.peers ? "--peers" : "--flash-attention-3";
}

void take_peer(Measurement& m, const json& line) {
  if (line.contains("missing")) {
    m.skip(fmt::format("{}: {}; WORKBOOK_PYTHON names another Python with PyTorch", option_of(m),
                       line.at("missing").get<std::string>()));
    return;
  }
  if (line.contains("environment")) {
    for (const auto& [key, value] : line.at("environment").items()) m.results.environment[key] = value;
    return;
  }
  Point p;
  p.name = line.at("name");
  p.kind = "peer";
  p.source = line.value("library", "PyTorch");
  p.backend = Backend::cuda;
  p.element = line.value("element", float16);
  const json& s = line.at("shape");
  p.shape = shape_of(s.at("pass"), mask_of(s.at("mask").get<std::string>()).value(), s.at("B"), s.at("H"), s.at("N"),
                     s.at("d"));
  p.shape.shape.Hkv = s.at("Hkv"), p.shape.shape.Nq = s.at("Nq");
  p.result = line.at("result");
  p.message = line.at("message");
  if (p.ok()) {
    p.times = summary(line.at("seconds").get<std::vector<double>>());
    p.extra_bytes = line.at("extra_bytes").get<double>();
  }
  m.workspace.progress(fmt::format("{}, {}, d = {}, N = {}", p.name, p.shape.pass, p.shape.d(), p.shape.N()));
  m.results.points.push_back(std::move(p));
}

}  // namespace

void time_peers(Measurement& m) {
  json libraries = json::array();
  for (const std::string& file : m.request.libraries)
    libraries.push_back({{"name", fs::path(file).stem().string()}, {"path", file}});
  if (!m.request.flash_attention_3.empty()) {
    if (const auto library = build_flash_attention_3(m))
      libraries.push_back({{"name", kFlashAttention3}, {"path", library->string()}});
  }
  if (!m.request.peers && libraries.empty()) return;
  const char* named = std::getenv("WORKBOOK_PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (worker::find_program(python).empty()) {
    m.skip(
        fmt::format("{}: {} was not found; WORKBOOK_PYTHON names another Python with PyTorch", option_of(m), python));
    return;
  }
  json shapes = json::array();
  std::vector<Mask> any;
  for (const NamedMask& part : mask_parts())  // the parts that peers.py supports
    if (!part.mask.rope && part.mask.dropped == 0) any.push_back(part.mask);
  if (m.request.decoding) any = {Mask::none};  // PyTorch's functions take no pages
  for (const char* pass : {"forward", "backward"}) {
    if (!m.wants_pass(pass)) continue;
    for (const Shape& s : m.gpu_shapes(pass, any)) {
      shapes.push_back({{"pass", s.pass},
                        {"mask", s.mask.name()},
                        {"B", s.B()},
                        {"H", s.H()},
                        {"Hkv", s.Hkv()},
                        {"Nq", s.Nq()},
                        {"N", s.N()},
                        {"d", s.d()}});
    }
  }
  const fs::path request = m.workspace.toolchain.build_folder / fmt::format("bench_peers.{}.json", ::getpid());
  json document{{"budget", m.request.budget}, {"shapes", shapes}, {"libraries", libraries}};
  if (!m.request.peers) document["peers"] = json::array();
  if (m.request.peers && m.request.decoding) document["peers"] = json::array({"SDPA FlashAttention-2", "SDPA cuDNN"});
  book::write_file(request, document.dump());
  worker::CommandOptions command;
  command.time = kPeersSeconds;
  command.on_line = [&](const std::string& line) { take_peer(m, json::parse(line)); };
  const worker::CommandResult ended = worker::run_command(
      {python, (m.workspace.book.root / "common" / "bench" / "peers.py").string(), request.string()}, command);
  fs::remove(request);
  if (ended.exit_code != 0) {
    const std::size_t length = ended.output.size();
    m.skip(fmt::format("{}: {} ended early (exit code {}):\n{}", option_of(m), python, ended.exit_code,
                       ended.output.substr(length > kMostOfOutput ? length - kMostOfOutput : 0)));
  }
}

}  // namespace workbook::bench
