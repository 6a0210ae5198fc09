// Chapter 21's sums of units, requests of units, and K and V in pages, as operations that the tests call by name.
#include <cstdint>

#include "append.hpp"
#include "cascade.hpp"
#include "common/cuda/attention_tensors.hpp"
#include "common/cuda/memory.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/worker_device.hpp"
#include "pages.hpp"
#include "requests.hpp"

namespace {

using workbook::cuda::Arguments, workbook::cuda::DeviceArray, workbook::cuda::Operations, workbook::cuda::Role;

/// A call's array in device memory.
template <class T>
DeviceArray<T> uploaded(const Arguments& call, const char* name) {
  return DeviceArray<T>(name, std::span<const T>(call.array<T>(name)));
}

/// The cache that a call describes, without lengths. Nk is not pages_per_request.
ch21::Cache cache_of(const Arguments& call, const std::int32_t* pages) {
  return {nullptr,
          pages,
          call.integer("per_request"),
          call.integer("page_stride"),
          call.integer("head_stride"),
          call.integer("key_stride"),
          int(call.integer("page_size")),
          2};
}

// lengths (B), int32 -> first_unit (B + 1), int64
void first_units(const Arguments& call) {
  auto lengths = uploaded<std::int32_t>(call, "lengths");
  DeviceArray<std::int64_t> first_unit("first_unit", lengths.size() + 1, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(ch21::sum_units, dim3(1), dim3(32), 0, ch21::Cache{lengths.data(), nullptr, 0, 0, 0, 0, 1, 0},
                         std::int64_t(lengths.size()), first_unit.data());
  first_unit.download(call.array<std::int64_t>("first_unit"));
}

__global__ void find_requests(ch21::RequestCut cut, const std::int64_t* units, std::int64_t* requests,
                              std::int64_t count) {
  if (threadIdx.x < count) requests[threadIdx.x] = cut.request_with(units[threadIdx.x]);
}

// heads; first_unit (B + 1), units (up to 256), int64 -> requests, int64
void requests(const Arguments& call) {
  auto first_unit = uploaded<std::int64_t>(call, "first_unit"), units = uploaded<std::int64_t>(call, "units");
  DeviceArray<std::int64_t> requests("requests", units.size(), Role::output);
  const ch21::RequestCut cut{first_unit.data(), std::int64_t(first_unit.size()) - 1, call.integer("heads"), 1, 0};
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(find_requests, dim3(1), dim3(256), 0, cut, units.data(), requests.data(),
                         std::int64_t(units.size()));
  requests.download(call.array<std::int64_t>("requests"));
}

__global__ void list_offsets(ch21::Cache cache, std::int64_t request, int first_key, int end, std::int64_t* offsets) {
  const std::int64_t offset = ch21::offset_of_key(cache, request, first_key, end);
  __syncwarp();  // of all lanes: a lane that has not executed the shuffle is reported here
  offsets[threadIdx.x] = offset;
}

// request, first_key, end, page_size, per_request, page_stride, head_stride, key_stride; pages, int32 -> offsets (32),
// int64: of each lane
void offsets(const Arguments& call) {
  auto pages = uploaded<std::int32_t>(call, "pages");
  DeviceArray<std::int64_t> offsets("offsets", 32, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_offsets, dim3(1), dim3(32), 0, cache_of(call, pages.data()), call.integer("request"),
                         int(call.integer("first_key")), int(call.integer("end")), offsets.data());
  offsets.download(call.array<std::int64_t>("offsets"));
}

template <int d>
__global__ void list_loaded(const half* tensor, const std::int64_t* offsets, int keys, bool values,
                            std::uint32_t* words) {
  ch20::Registers<half, d, 1> registers;
  std::uint32_t* const lane = words + threadIdx.x * (d / 4);
  const std::int64_t offset = offsets[threadIdx.x];
  if (values) {
    ch21::load_V(registers, tensor, offset, keys);
    for (int r = 0; r < 4; ++r)
      for (int c = 0; c < d / 64; ++c)
        for (int i = 0; i < 4; ++i) lane[(r * (d / 64) + c) * 4 + i] = registers.V[r][c][i];
  } else {
    ch21::load_K(registers, tensor, offset, keys);
    for (int r = 0; r < 2; ++r)
      for (int c = 0; c < d / 32; ++c)
        for (int i = 0; i < 4; ++i) lane[(r * (d / 32) + c) * 4 + i] = registers.K[r][c][i];
  }
}

// keys, d, values, offsets_exceed_32_bits; tensor (rows, d), 16-bit codes; offsets (32), int64 -> words (32, d/4),
// uint32: the registers of each lane after load_K or, if `values` is 1, load_V. If offsets_exceed_32_bits is 1, 2^33
// elements without memory precede the tensor's.
void loaded(const Arguments& call) {
  const auto given = call.array<std::uint16_t>("tensor");
  DeviceArray<half> tensor("tensor", given.size(), Role::input);
  tensor.upload(std::span<const std::uint16_t>(given));
  auto offsets = uploaded<std::int64_t>(call, "offsets");
  const auto d = int(call.integer("d"));
  const std::int64_t skipped = call.integer("offsets_exceed_32_bits") << 33;
  DeviceArray<std::uint32_t> words("words", std::size_t(32 * d / 4), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(d == 64 ? list_loaded<64> : list_loaded<128>, dim3(1), dim3(32), 0, tensor.data() - skipped,
                         offsets.data(), int(call.integer("keys")), call.integer("values") != 0, words.data());
  words.download(call.array<std::uint32_t>("words"));
}
__global__ void list_slots(ch21::Cache cache, const std::int32_t* positions, std::int64_t request, std::int64_t head,
                           std::int64_t* offsets, int count) {
  const auto t = int(threadIdx.x);
  if (t < count) offsets[t] = ch21::offset_of_token(cache, request, head, positions[t]);
}

// request, head, page_size, per_request, page_stride, head_stride, key_stride; pages, positions (up to 256), int32 ->
// offsets, int64
void slots(const Arguments& call) {
  auto pages = uploaded<std::int32_t>(call, "pages"), positions = uploaded<std::int32_t>(call, "positions");
  DeviceArray<std::int64_t> offsets("offsets", positions.size(), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_slots, dim3(1), dim3(256), 0, cache_of(call, pages.data()), positions.data(),
                         call.integer("request"), call.integer("head"), offsets.data(), int(positions.size()));
  offsets.download(call.array<std::int64_t>("offsets"));
}

// B, Hkv, count, d, page_size, per_request, page_stride, head_stride, key_stride; new_K, new_V (B, Hkv, count, d),
// given_K, given_V, the pages, as 16-bit codes; pages, lengths (B), int32 -> K, V, codes; new_lengths (B), int32
void append(const Arguments& call) {
  auto pages = uploaded<std::int32_t>(call, "pages"), lengths = uploaded<std::int32_t>(call, "lengths");
  const auto of_codes = [&](const char* name) {
    return DeviceArray<half>(name, std::span<const std::uint16_t>(call.array<std::uint16_t>(name)));
  };
  auto new_K = of_codes("new_K"), new_V = of_codes("new_V"), K = of_codes("given_K"), V = of_codes("given_V");
  const ch21::NewTokens<half> tokens{new_K.data(), new_V.data(), call.integer("B"), call.integer("Hkv"),
                                     call.integer("count")};
  ch21::Cache cache = cache_of(call, pages.data());
  cache.lengths = lengths.data();
  workbook::cuda::begin_chapter();
  call.integer("d") == 64 ? ch21::append_tokens<half, 64>(tokens, K.data(), V.data(), cache, lengths.data())
                          : ch21::append_tokens<half, 128>(tokens, K.data(), V.data(), cache, lengths.data());
  K.download(call.array<std::uint16_t>("K"));
  V.download(call.array<std::uint16_t>("V"));
  lengths.download(call.array<std::int32_t>("new_lengths"));
}
__global__ void list_halves(std::uint32_t* words) {
  words[threadIdx.x] = ch21::halves_of(threadIdx.x | (255 - threadIdx.x) << 8);
}

// -> words (256), uint32: of codes i and 255 - i
void halves(const Arguments& call) {
  DeviceArray<std::uint32_t> words("words", 256, Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_halves, dim3(1), dim3(256), 0, words.data());
  words.download(call.array<std::uint32_t>("words"));
}

constexpr ch21::Tiles small = ch21::built[1];

/// The scratch memory of a call with these sizes.
struct Memory {
  DeviceArray<float> partial_O, partial_lse;
  DeviceArray<unsigned> finished;
  DeviceArray<std::int64_t> first_unit;

  Memory(const workbook::Shape& shape, int splits)
      : Memory(shape, ch20::cut_of(shape, small, splits, workbook::cuda::multiprocessors(), false)) {}
  Memory(const workbook::Shape& shape, const ch20::Cut& cut)
      : partial_O("partial_O", std::size_t(2 * cut.blocks * small.Br * shape.d), Role::scratch),
        partial_lse("partial_lse", std::size_t(2 * cut.blocks * small.Br), Role::scratch),
        finished("finished", std::size_t(cut.heads), Role::scratch),
        first_unit("first_unit", std::size_t(shape.B + 1), Role::scratch) {
    workbook::cuda::clear(finished.data(), finished.size() * sizeof(unsigned));
  }
  ch21::Scratch scratch() { return {{partial_O.data(), partial_lse.data(), finished.data()}, first_unit.data()}; }
};

// The numbers of Arguments::setting(), splits; Q, 16-bit codes; K8, V8, the pages, codes of e4m3; scales (2, Hkv) -> O,
// codes, lse
void forward_8(const Arguments& call) {
  const workbook::Setting setting = call.setting();
  const workbook::Shape& shape = setting.shape;
  DeviceArray<half> Q("Q", std::span<const std::uint16_t>(call.array<std::uint16_t>("Q")));
  auto K8 = uploaded<std::uint8_t>(call, "K8"), V8 = uploaded<std::uint8_t>(call, "V8");
  auto scales = uploaded<float>(call, "scales");
  DeviceArray<half> O("O", std::size_t(shape.q_size()), Role::output);
  DeviceArray<float> lse("lse", std::size_t(shape.lse_size()), Role::output);
  workbook::cuda::detail::MaskArrays of_mask(call);
  const auto splits = int(call.integer("splits"));
  Memory memory(shape, splits);
  workbook::cuda::begin_chapter();
  ch21::ForwardCall<half> forward{setting, Q.data(), nullptr, nullptr, O.data(), lse.data()};
  forward.cache_lengths = of_mask.cache_lengths.data();
  forward.pages = setting.mask.page_size > 0 ? of_mask.pages.data() : nullptr;
  forward.cache = of_mask.cache;
  ch21::paged_cache(forward, memory.scratch().partial, memory.scratch().first_unit,
                    {K8.data(), V8.data(), scales.data()}, small, splits, workbook::cuda::multiprocessors());
  O.download(call.array<std::uint16_t>("O"));
  lse.download(call.array<float>("lse"));
}
__global__ void list_rows(ch21::Batch batch, std::int64_t* rows) {
  rows[threadIdx.x] = ch21::row_in_prefix(batch, threadIdx.x);
}

// B, Hkv, rows -> in_prefix (B·Hkv·rows, up to 256), int64
void rows_in_prefix(const Arguments& call) {
  const ch21::Batch batch{call.integer("B"), call.integer("Hkv"), call.integer("rows")};
  const std::int64_t count = batch.B * batch.Hkv * batch.rows;
  DeviceArray<std::int64_t> rows("rows", std::size_t(count), Role::output);
  workbook::cuda::begin_chapter();
  workbook::cuda::launch(list_rows, dim3(1), dim3(unsigned(count)), 0, batch, rows.data());
  rows.download(call.array<std::int64_t>("in_prefix"));
}

// The numbers of Arguments::setting(), splits, prefix; Q, K and V, the pages, as 16-bit codes; pages, int32 -> O,
// codes, lse
void cascade(const Arguments& call) {
  const workbook::Setting setting = call.setting();
  const workbook::Shape& shape = setting.shape;
  const auto of_codes = [&](const char* name) {
    return DeviceArray<half>(name, std::span<const std::uint16_t>(call.array<std::uint16_t>(name)));
  };
  auto Q = of_codes("Q"), K = of_codes("K"), V = of_codes("V");
  auto pages = uploaded<std::int32_t>(call, "pages");
  const auto splits = int(call.integer("splits")), prefix = int(call.integer("prefix"));
  workbook::cuda::detail::MaskArrays of_mask(call);
  const std::int64_t rows = shape.lse_size();
  DeviceArray<half> O("O", std::size_t(rows * shape.d), Role::output);
  DeviceArray<float> lse("lse", std::size_t(rows), Role::output);
  DeviceArray<half> prefix_Q("prefix_Q", O.size(), Role::scratch), prefix_O("prefix_O", O.size(), Role::scratch);
  DeviceArray<half> O_after("O_after", O.size(), Role::scratch);
  DeviceArray<float> prefix_lse("prefix_lse", lse.size(), Role::scratch);
  DeviceArray<float> lse_after("lse_after", lse.size(), Role::scratch);
  DeviceArray<std::int32_t> after("after", std::size_t(shape.B), Role::scratch);
  Memory of_prefix({1, rows, shape.Hkv, 1, prefix, shape.d}, splits), of_requests(shape, splits);
  workbook::cuda::begin_chapter();
  ch21::ForwardCall<half> forward{setting, Q.data(), K.data(), V.data(), O.data(), lse.data()};
  forward.cache_lengths = of_mask.cache_lengths.data();
  forward.pages = pages.data();
  forward.cache = of_mask.cache;
  const ch21::CascadeMemory<half> memory{of_prefix.scratch(), of_requests.scratch(), prefix_Q.data(),  prefix_O.data(),
                                         O_after.data(),      prefix_lse.data(),     lse_after.data(), after.data()};
  const auto run = shape.d == 64 ? ch21::cascade<half, 64> : ch21::cascade<half, 128>;
  run(forward, memory, prefix, small, splits, workbook::cuda::multiprocessors());
  O.download(call.array<std::uint16_t>("O"));
  lse.download(call.array<float>("lse"));
}

const Operations operations{{"append", append},
                            {"cascade", cascade},
                            {"rows_in_prefix", rows_in_prefix},
                            {"first_units", first_units},
                            {"forward_8", forward_8},
                            {"halves", halves},
                            {"loaded", loaded},
                            {"offsets", offsets},
                            {"requests", requests},
                            {"slots", slots}};

}  // namespace
