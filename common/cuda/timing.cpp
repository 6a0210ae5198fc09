#include "common/cuda/timing.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/cuda/backend.hpp"
#include "common/cuda/device_memory.hpp"
#include "common/cuda/error.hpp"
#include "common/cuda/worker_device.hpp"

namespace workbook::cuda {
namespace {

/// give_back_rows to the bytes `to`, for elements of the size of Code.
template <class Code>
void give_back(std::span<std::byte> to, const char* name, const TensorOnDevice& tensor) {
  const auto all = std::make_unique_for_overwrite<Code[]>(tensor.elements);
  download(all.get(), tensor.data, tensor.elements * sizeof(Code));
  const Code *const begin = all.get(), *const end = begin + tensor.elements;
  const Code* const unwritten = std::find(begin, end, static_cast<Code>(~Code{0}));
  if (unwritten != end)
    throw Error("element " + std::to_string(unwritten - begin) + " of " + name + " was never written");
  std::memcpy(to.data(), end - to.size() / sizeof(Code), to.size());
}

}  // namespace

void give_back_rows(const Arguments& call, const char* name, const TensorOnDevice& tensor, std::size_t elements) {
  if (tensor.element_bytes == sizeof(float))
    give_back<std::uint32_t>(std::as_writable_bytes(call.array<float>(name).first(elements)), name, tensor);
  else
    give_back<std::uint16_t>(std::as_writable_bytes(call.array<std::uint16_t>(name).first(elements)), name, tensor);
}

void time_calls(const Arguments& call, const std::function<void(int)>& work) {
  const std::span<double> seconds = call.array<double>("seconds");
  device_seconds(3, work);
  std::ranges::copy(device_seconds(int(seconds.size()), work), seconds.begin());
}

void time_stage(const Arguments& call, TimedStage& stage) {
  const Setting setting = call.setting();
  const Shape& shape = setting.shape;
  const std::size_t together = 2 * l2_bytes(), each = stage.set_bytes(shape);
  const std::size_t sets = together == 0 ? 1 : std::max<std::size_t>(2, (together + each - 1) / each);
  for (std::size_t i = 0; i < sets; ++i) stage.add_set(setting, 16 * i + 1);
  synchronize();
  begin_chapter();
  stage.prepare(setting);

  const auto next = [&](int i) { stage.launch(std::size_t(i) % sets); };
  if (call.integer("profile", 0) != 0) {
    profiled([&] { next(0); });
  } else {
    // Runs each set once and times the last, so that loading, compilation and selection at a first call are excluded.
    for (int i = 0; i + 1 < std::max(int(sets), 3); ++i) {
      if (l2_bytes() != 0) next(i);
    }
    const std::vector<double> first = device_seconds(1, next);
    if (!first.empty()) {
      const std::span<double> seconds = call.array<double>("seconds");
      const double budget = call.has("budget") ? call.number("budget") : 0.2;
      const double count = std::clamp(budget / std::max(first[0], 1e-7), 3.0, double(seconds.size()));
      std::ranges::copy(device_seconds(int(count), next), seconds.begin());
    }
  }
  synchronize();
  if (const std::int64_t rows = call.integer("rows", 0); rows > 0) stage.give_back(call, rows);
}

}  // namespace workbook::cuda
