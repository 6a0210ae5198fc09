// The description of a worker's stages, parsed from the operation "describe" (common/cuda/description.cpp).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/attention/element_type.hpp"
#include "common/attention/setting.hpp"
#include "common/worker/worker.hpp"

namespace workbook::worker {

/// Sizes that a stage can run with on its device.
struct StageTiles {
  std::optional<int> d;  ///< the head dimension of these sizes; nothing: any
  bool is_default = false;
  std::map<std::string, int> sizes;  ///< Br, Bc, warps; in a backward pass Bc, Br, warps
  std::int64_t shared_bytes = 0;
};

struct ExtraArray {
  std::string name;
  std::int64_t bytes = 0;  ///< for the requested shape
};

struct StageDescription {
  std::string pass, operation;
  Element element = float32;
  bool float_gradients = false;
  std::vector<Mask> masks;                    ///< supported masks
  bool shared_heads = false;                  ///< whether several query heads may share a K/V head
  std::optional<std::vector<int>> head_dims;  ///< nothing: any
  std::vector<StageTiles> tiles;              ///< none: the stage is untiled
  bool any_tiles = false;
  int rows_per_warp = 0;
  bool warps_split_keys = false;
  int compute = 0;            ///< the lowest compute capability that has its kernels' instructions; 80 means 8.0
  bool compute_only = false;  ///< only this one has them
  bool runs_here = true;      ///< the device has them
  std::vector<ExtraArray> extra;
  std::string number;  ///< of a variant: the number that selects it,
  int value = 0;       ///< and its value
  std::vector<StageDescription> variants;

  bool does(std::int64_t d) const;
  bool has(const Mask& mask) const;
  /// The default sizes for a head dimension; nullptr if the stage is untiled or does not support d.
  const StageTiles* default_tiles(std::int64_t d) const;
};

struct WorkerDescription {
  std::vector<StageDescription> stages;
  std::vector<std::string> operations;

  bool has(const std::string& operation) const;
  /// The stage with that operation; nullptr if there is none.
  const StageDescription* find(const std::string& operation) const;
  /// The first stage of that pass and element; nullptr if there is none.
  const StageDescription* find(const std::string& pass, Element element) const;
};

/// Requests a worker's description; `send` calls it. With a shape: extra memory for it. only_d, unless 0: tiles for
/// this head dimension only, because the worker may be built for no other. Throws Failure.
WorkerDescription describe(const std::function<Reply(const Call&)>& send, const Shape& shape = {},
                           std::int64_t only_d = 0);

/// The text of a reply to a call with the output "text": the bytes before the padding.
std::string text_of(const Reply& reply);

}  // namespace workbook::worker
