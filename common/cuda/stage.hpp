// A chapter describes its stage of kernels in stage.cu:
//
//   const Stage stage = ForwardStage<half>{
//       .head_dims = {32, 64, 128},
//       .tiles = ch04::built,  // the first that fits the device's shared memory is the default
//       .shared_bytes = ch04::shared_bytes,
//       .launch = [](const ForwardCall<half>& call, const Tiles& tiles, const ExtraMemory&) {
//         ch04::q_split(call, tiles);
//       },
//   };
//
// The following is derived from the description: the operations "forward" or "backward", "bench", "describe" and, on
// the simulator, "blocks"; the counting of reads by tiles; the checks of a call's numbers. A chapter may have a second
// stage of the same pass for another element, after the first in the same file. Its operations are "forward_bfloat16"
// and so on.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <vector>

#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/backend.hpp"
#include "common/cuda/bench.hpp"
#include "common/cuda/description.hpp"
#include "common/cuda/extra_memory.hpp"
#include "common/cuda/kernel.hpp"
#include "common/cuda/skipped_batches.hpp"
#include "common/cuda/unobserved.hpp"

#if !defined(__CUDACC__)
#include "common/cuda/block_record.hpp"
#endif

namespace workbook::cuda {

/// A stage with other kernels, for calls whose number `number` equals `value`: an intermediate step towards the
/// chapter's kernel, or a variant to compare it with.
template <class Stage>
struct Variant {
  const char* number = "";
  int value = 1;
  Stage stage;
};

namespace detail {
template <class T>
constexpr Element element_of = float16;
template <>
inline constexpr Element element_of<__nv_bfloat16> = bfloat16;
}  // namespace detail

template <class Element>
struct ForwardStage {
  workbook::Element element =
      detail::element_of<Element>;  ///< float8: the stage rounds Q, K and V itself (element.hpp)
  std::vector<int> head_dims = {};
  std::span<const Tiles> tiles = {};  ///< the sizes built; the first that fits the device is the default
  /// Shared memory of a thread block in bytes; 0: no kernel has these tiles for this d.
  std::size_t (*shared_bytes)(int d, const Tiles& tiles) = nullptr;
  int compute = 0;                ///< the lowest compute capability that has the kernels' instructions; 80 means 8.0
  bool compute_only = false;      ///< only this one has them, as with sm_90a
  int rows_per_warp = 0;          ///< rows of Q per warp; 0: the warps share all rows
  bool warps_split_keys = false;  ///< each warp processes its own keys of a tile
  Served serves = {};
  std::vector<ScratchArray> extra = {};
  std::vector<Variant<ForwardStage>> variants = {};
  void (*launch)(const ForwardCall<Element>& call, const Tiles& tiles, const ExtraMemory& extra) = nullptr;
};

template <class Element>
struct BackwardStage {
  std::vector<int> head_dims = {};
  std::span<const GradientTiles> tiles = {};
  std::size_t (*shared_bytes)(int d, const GradientTiles& tiles) = nullptr;
  int compute = 0;
  bool compute_only = false;
  Served serves = {};
  std::vector<ScratchArray> extra = {};
  std::vector<Variant<BackwardStage>> variants = {};
  void (*launch)(const BackwardCall<Element>& call, const GradientTiles& tiles, const ExtraMemory& extra) = nullptr;
  /// The same with fp32 gradients, for calls with the number float_gradients = 1; nullptr: not supported.
  void (*launch_to_float)(const BackwardCall<Element, float>& call, const GradientTiles& tiles,
                          const ExtraMemory& extra) = nullptr;
};

namespace detail {

inline Sizes sizes_of(const Tiles& tiles) {
  return {tiles.Br, tiles.Bc, tiles.warps};
}
inline Sizes sizes_of(const GradientTiles& tiles) {
  return {tiles.Bc, tiles.Br, tiles.warps};
}

template <class Element>
Description description_of(const ForwardStage<Element>& stage);
template <class Element>
Description description_of(const BackwardStage<Element>& stage);

/// The part of the description that both passes share.
template <class Tiles, class Stage>
Description common_description(const Stage& stage) {
  Description description;
  description.serves = stage.serves;
  description.head_dims = stage.head_dims;
  for (const Tiles& tiles : stage.tiles) description.sizes.push_back(sizes_of(tiles));
  if (stage.shared_bytes != nullptr) {
    description.shared_bytes = [get = stage.shared_bytes](int d, const Sizes& s) {
      return get(d, Tiles{s[0], s[1], s[2]});
    };
  }
  description.shared_limit = shared_limit;
  description.compute = stage.compute;
  description.compute_only = stage.compute_only;
  description.device_compute = compute_capability;
  description.extra = stage.extra;
  for (const auto& variant : stage.variants)
    description.add_variant(variant.number, variant.value, description_of(variant.stage));
  return description;
}
template <class Element>
Description description_of(const ForwardStage<Element>& stage) {
  Description description = common_description<Tiles>(stage);
  description.pass = description.operation = "forward";
  description.element = stage.element;
  description.rows_per_warp = stage.rows_per_warp;
  description.warps_split_keys = stage.warps_split_keys;
  return description;
}
template <class Element>
Description description_of(const BackwardStage<Element>& stage) {
  Description description = common_description<GradientTiles>(stage);
  description.pass = description.operation = "backward";
  description.element = element_of<Element>;
  description.size_names = {"Bc", "Br", "warps"};
  description.float_gradients = stage.launch_to_float != nullptr;
  return description;
}

/// A stage and its description, which live as long as its operations.
template <class Stage>
struct Described {
  Stage stage;
  Description description;
};

/// The stage or variant that a call selects, and its tiles.
template <class Stage, class Tiles>
struct Chosen {
  const Stage& stage;
  Tiles tiles;
};
template <class Tiles, class Stage>
Chosen<Stage, Tiles> chosen(const Described<Stage>& of, const Arguments& call) {
  const int variant = chosen_variant(of.description, call);
  const Sizes sizes =
      chosen_sizes(variant < 0 ? of.description : of.description.variants[std::size_t(variant)].description, call);
  return {variant < 0 ? of.stage : of.stage.variants[std::size_t(variant)].stage, {sizes[0], sizes[1], sizes[2]}};
}

template <class Element, class Tensors>
ForwardCall<Element> forward_call(const Arguments& call, Tensors& t) {
  return {call.setting(),
          t.Q.data(),
          t.K.data(),
          t.V.data(),
          t.O.data(),
          t.lse.data(),
          data_or_none(t.of_mask.sink),
          data_or_none(t.of_mask.starts),
          data_or_none(t.of_mask.cache_lengths),
          data_or_none(t.of_mask.pages),
          t.of_mask.cache};
}
template <class Element, class Gradient, class Tensors>
BackwardCall<Element, Gradient> backward_call(const Arguments& call, Tensors& t) {
  return {call.setting(),
          t.Q.data(),
          t.K.data(),
          t.V.data(),
          t.O.data(),
          t.dO.data(),
          t.lse.data(),
          t.dQ.data(),
          t.dK.data(),
          t.dV.data(),
          data_or_none(t.of_mask.sink),
          data_or_none(t.of_mask.starts),
          data_or_none(t.dsink),
          data_or_none(t.dlse)};
}

/// The numbers of Arguments::setting(); Br, Bc and warps; a variant's number; unobserved; skipped_batches;
/// shared_limit. Q, K, V as 16-bit codes, which may extend past the last row -> O as codes, lse.
template <class Element>
Tiles run_forward(const Described<ForwardStage<Element>>& stage, const Arguments& call) {
  const Unobserved unobserved(call.integer("unobserved", 0));
  const auto [kernels, tiles] = chosen<Tiles>(stage, call);
  AttentionTensors<Element> tensors(call);
  if (call.integer("page_size", 0) == 0 && !has_own_cache(call)) tensors.count_tiles(call.shape(), tiles.Br, tiles.Bc);
  const SkippedBatches skipped(call.integer("skipped_batches", 0), call.setting());
  const ExtraMemory extra(kernels.extra, call.setting(), skipped.setting());
  call_host([&, &kernels = kernels, &tiles = tiles] {
    kernels.launch(skipped.extend(forward_call<Element>(call, tensors)), tiles, extra);
  });
  tensors.download(call);
  return tiles;
}

/// The numbers of run_forward, with Bc, Br and warps as sizes; float_gradients. Q, K, V, O, dO as 16-bit codes, lse ->
/// dQ, dK, dV as codes, or floats. With the number lse_gradient also dlse.
template <class Element, class Gradient, class Launch>
void run_backward(const Described<BackwardStage<Element>>& stage, const Arguments& call,
                  Launch BackwardStage<Element>::*launch) {
  const Unobserved unobserved(call.integer("unobserved", 0));
  const auto [kernels, tiles] = chosen<GradientTiles>(stage, call);
  if (kernels.*launch == nullptr)
    throw std::invalid_argument(
        "float_gradients = 1: these kernels write gradients in the type of their inputs; allowed: 0");
  GradientTensors<Element, Gradient> tensors(call);
  tensors.count_tiles(call.shape(), tiles.Br, tiles.Br);
  const SkippedBatches skipped(call.integer("skipped_batches", 0), call.setting());
  const ExtraMemory extra(kernels.extra, call.setting(), skipped.setting());
  call_host([&, &kernels = kernels, &tiles = tiles] {
    (kernels.*launch)(skipped.extend(backward_call<Element, Gradient>(call, tensors)), tiles, extra);
  });
  tensors.download(call);
}

#if defined(__CUDACC__)
/// A call's arrays of 16-bit codes, viewed as elements.
template <class Element>
struct GivenTensors {
  const Arguments& call;
  Element* operator()(const char* name) const {
    return reinterpret_cast<Element*>(call.array<std::uint16_t>(name).data());
  }
  /// An array that only calls with certain masks have; nullptr for others.
  template <class T>
  T* optional_value(const char* name) const {
    const std::span<T> given = call.array<T>(name);
    return given.empty() ? nullptr : given.data();
  }
};

/// On the GPU: the operation "forward" on a stream, with arrays that are already in device memory.
template <class Element>
void start_forward(const Described<ForwardStage<Element>>& stage, const Arguments& call, void* workspace,
                   void* stream) {
  const OnStream on(stream);
  const auto [kernels, tiles] = chosen<Tiles>(stage, call);
  GivenTensors<Element> t{call};
  kernels.launch(
      {call.setting(), t("Q"), t("K"), t("V"), t("O"), call.array<float>("lse").data(),
       t.template optional_value<float>("given sink"), t.template optional_value<std::int32_t>("given starts"),
       t.template optional_value<std::int32_t>("given cache_lengths"),
       t.template optional_value<std::int32_t>("given pages"), cache_strides_of(call)},
      tiles, ExtraMemory(kernels.extra, call.setting(), workspace));
}
template <class Element>
void start_backward(const Described<BackwardStage<Element>>& stage, const Arguments& call, void* workspace,
                    void* stream) {
  const OnStream on(stream);
  const auto [kernels, tiles] = chosen<GradientTiles>(stage, call);
  GivenTensors<Element> t{call};
  kernels.launch(
      {call.setting(), t("Q"), t("K"), t("V"), t("O"), t("dO"), call.array<float>("lse").data(), t("dQ"), t("dK"),
       t("dV"), t.template optional_value<float>("given sink"), t.template optional_value<std::int32_t>("given starts"),
       t.template optional_value<float>("dsink"), t.template optional_value<float>("dlse")},
      tiles, ExtraMemory(kernels.extra, call.setting(), workspace));
}
#endif

/// Runs a stage on sets of Tensors. launch(tensors, extra) runs it on one of them.
template <class Element, class Tensors, class Launch>
class TimedOn final : public TimedStage {
 public:
  TimedOn(const std::vector<ScratchArray>& extra, Launch launch) : arrays_(extra), launch_(launch) {}

  std::size_t set_bytes(const Shape& shape) const override { return bytes_of_set<Element>(kBackward, shape); }
  void add_set(const Setting& setting, std::uint64_t seed) override {
    make_at_random(sets_.emplace_back(), setting, seed);
  }
  void prepare(const Setting& setting) override { extra_ = std::make_unique<ExtraMemory>(arrays_, setting); }
  void launch(std::size_t set) override { launch_(sets_[set], *extra_); }
  void give_back(const Arguments& call, std::int64_t rows) override {
    cuda::give_back(call, sets_.front(), kBackward, rows);
  }

 private:
  static constexpr bool kBackward = std::is_same_v<Tensors, GradientTensors<Element>>;
  const std::vector<ScratchArray>& arrays_;
  Launch launch_;
  std::vector<Tensors> sets_;
  std::unique_ptr<ExtraMemory> extra_;
};
template <class Element, class Tensors, class Launch>
void time_on(const Arguments& call, const std::vector<ScratchArray>& extra, const Launch& launch) {
  TimedOn<Element, Tensors, Launch> timed(extra, launch);
  time_stage(call, timed);
}

}  // namespace detail

/// Registers a description with this worker. file: the file of the description, in the chapter's folder.
class Stage {
 public:
  template <class Element>
  Stage(const ForwardStage<Element>& stage, const char* file = __builtin_FILE());
  template <class Element>
  Stage(const BackwardStage<Element>& stage, const char* file = __builtin_FILE());
};

template <class Element>
Stage::Stage(const ForwardStage<Element>& stage, const char* file) {
  using namespace detail;
  const std::shared_ptr<const Described<ForwardStage<Element>>> kept(
      new Described<ForwardStage<Element>>{stage, description_of(stage)});
  StageOperations operations{kept->description, {}, {}, {}, {}, folder_of(file)};
  operations.run = [kept](const Arguments& call) { run_forward(*kept, call); };
  operations.bench = [kept](const Arguments& call) {
    const auto chosen_kernels = chosen<Tiles>(*kept, call);
    time_on<Element, AttentionTensors<Element>>(
        call, chosen_kernels.stage.extra, [&](AttentionTensors<Element>& tensors, const ExtraMemory& extra) {
          chosen_kernels.stage.launch(forward_call<Element>(call, tensors), chosen_kernels.tiles, extra);
        });
  };
#if defined(__CUDACC__)
  operations.start = [kept](const Arguments& call, void* workspace, void* stream) {
    start_forward(*kept, call, workspace, stream);
  };
#else
  operations.blocks = [kept](const Arguments& call) { record_blocks(call, run_forward(*kept, call)); };
#endif
  add_stage(std::move(operations));
}

template <class Element>
Stage::Stage(const BackwardStage<Element>& stage, const char* file) {
  using namespace detail;
  const std::shared_ptr<const Described<BackwardStage<Element>>> kept(
      new Described<BackwardStage<Element>>{stage, description_of(stage)});
  StageOperations operations{kept->description, {}, {}, {}, {}, folder_of(file)};
#if defined(__CUDACC__)
  operations.start = [kept](const Arguments& call, void* workspace, void* stream) {
    start_backward(*kept, call, workspace, stream);
  };
#endif
  operations.run = [kept](const Arguments& call) {
    if (call.integer("float_gradients", 0) != 0)
      return run_backward<Element, float>(*kept, call, &BackwardStage<Element>::launch_to_float);
    run_backward<Element, Element>(*kept, call, &BackwardStage<Element>::launch);
  };
  operations.bench = [kept](const Arguments& call) {
    const auto chosen_kernels = chosen<GradientTiles>(*kept, call);
    time_on<Element, GradientTensors<Element>>(
        call, chosen_kernels.stage.extra, [&](GradientTensors<Element>& tensors, const ExtraMemory& extra) {
          chosen_kernels.stage.launch(backward_call<Element, Element>(call, tensors), chosen_kernels.tiles, extra);
        });
  };
  add_stage(std::move(operations));
}

// Compiled once for all chapters, in stages.cu.
extern template Stage::Stage(const ForwardStage<half>&, const char*);
extern template Stage::Stage(const ForwardStage<__nv_bfloat16>&, const char*);
extern template Stage::Stage(const BackwardStage<half>&, const char*);
extern template Stage::Stage(const BackwardStage<__nv_bfloat16>&, const char*);

}  // namespace workbook::cuda
