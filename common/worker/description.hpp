// What a worker's stages say of themselves: the operation "describe" (common/cuda/description.cpp), read back.
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
  std::optional<int> d;  ///< the head dimension that they are for; nothing: any
  bool is_default = false;
  std::map<std::string, int> sizes;  ///< Br, Bc, warps; owned, passing, warps in a backward pass
  std::int64_t shared_bytes = 0;
  int keys_per_step = 0;  ///< how many keys of a tile enter m, l and O at once, where a lane owns a row; 0: none does
};

struct ExtraArray {
  std::string name;
  std::int64_t bytes = 0;  ///< for the shape that was asked about
};

struct StageDescription {
  std::string pass, operation;
  Element element = float32;
  bool float_gradients = false;
  std::vector<Mask> masks;                    ///< that it serves
  bool shared_heads = false;                  ///< whether several heads of Q may share one of K and V
  std::optional<std::vector<int>> head_dims;  ///< nothing: any
  std::vector<StageTiles> tiles;              ///< none: the stage is untiled
  bool any_tiles = false;
  int rows_per_warp = 0;
  float slack = 0;               ///< m moves only if a score exceeds it by more (natural units)
  bool last_keys_first = false;  ///< the last tile of keys comes first
  bool warps_split_keys = false;
  int compute = 0;            ///< the least compute capability that has its kernels' instructions, 80 for 8.0
  bool compute_only = false;  ///< no other has them
  bool runs_here = true;      ///< the device has them
  std::vector<ExtraArray> extra;
  std::string number;  ///< of a variant: the number that asks for it,
  int value = 0;       ///< and its value
  std::vector<StageDescription> variants;

  bool does(std::int64_t d) const;
  bool has(const Mask& mask) const;
  /// What it takes for a head dimension by itself; nullptr if it is untiled or does not do d.
  const StageTiles* default_tiles(std::int64_t d) const;
};

struct WorkerDescription {
  std::vector<StageDescription> stages;
  std::vector<std::string> operations;

  bool has(const std::string& operation) const;
  /// The stage of that operation; nullptr if there is none.
  const StageDescription* find(const std::string& operation) const;
  /// The first of that pass and element; nullptr if there is none.
  const StageDescription* find(const std::string& pass, Element element) const;
};

/// Asks a worker; `send` calls it. With a shape: extra memory for it. only_d, unless 0: tiles for this head dimension
/// alone; a worker may have been built for no other. Throws Failure.
WorkerDescription describe(const std::function<Reply(const Call&)>& send, const Shape& shape = {},
                           std::int64_t only_d = 0);

/// The text of a reply to a call with the output "text": bytes up to the filling behind it.
std::string text_of(const Reply& reply);

}  // namespace workbook::worker
