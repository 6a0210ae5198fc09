// A chapter describes its CPU stage in stage.cpp, or in stage.cu next to its kernels:
//
//   const CpuStage stage = CpuForwardStage{.tiles = {64, 64}, .compute = …};
//
// The stage's operation and "describe" are derived from this description.
#pragma once

#include "common/attention/setting.hpp"
#include "common/cuda/description.hpp"

namespace workbook::cuda {

/// A forward pass in float. tiles: the default sizes; a call may give any others. None: the stage has no tiles.
struct CpuForwardStage {
  Tiles tiles = {};
  Served serves = {};
  void (*compute)(const AttentionCall& call, const Tiles& tiles) = nullptr;
};

/// A backward pass in float.
struct CpuBackwardStage {
  const char* operation = "backward";
  Served serves = {};
  void (*compute)(const GradientCall& call) = nullptr;
};

/// Registers a description with this worker.
class CpuStage {
 public:
  CpuStage(const CpuForwardStage& stage, const char* file = __builtin_FILE()) {
    Description description;
    description.pass = description.operation = "forward";
    description.element = float32;
    description.serves = stage.serves;
    description.any_sizes = true;
    if (stage.tiles != Tiles{}) description.sizes = {{stage.tiles.Br, stage.tiles.Bc, stage.tiles.warps}};
    // The numbers and arrays of Arguments::attention_call(), and Br, Bc.
    const auto run = [=](const Arguments& call) {
      chosen_variant(description, call);
      const Sizes sizes = chosen_sizes(description, call);
      stage.compute(call.attention_call(), {sizes[0], sizes[1], sizes[2]});
    };
    add_stage({description, run, {}, {}, {}, folder_of(file)});
  }

  CpuStage(const CpuBackwardStage& stage, const char* file = __builtin_FILE()) {
    Description description;
    description.pass = "backward";
    description.operation = stage.operation;
    description.element = float32;
    description.serves = stage.serves;
    // The numbers and arrays of Arguments::gradient_call().
    const auto run = [=](const Arguments& call) {
      chosen_variant(description, call);
      chosen_sizes(description, call);
      stage.compute(call.gradient_call());
    };
    add_stage({description, run, {}, {}, {}, folder_of(file)});
  }
};

}  // namespace workbook::cuda
