// Chapter 21: sums of units, the request of a unit, K and V in pages, requests with different numbers of keys, and new
// tokens.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch_test_macros.hpp>
#include <cmath>
#include <limits>
#include <numeric>

#include "common/attention/cache_pages.hpp"
#include "common/attention/element.hpp"
#include "common/simt/e4m3.hpp"
#include "tests/support/forward_properties.hpp"

using namespace workbook;
using namespace workbook::test;

namespace {

using Numbers64 = std::vector<std::int64_t>;

/// "1 key", "2 keys".
std::string counted(std::int64_t count, const std::string& noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

/// The number "splits" of the stage's variants: thread blocks per head of K and V; 0: as many as run at a time.
Numbers splits(int count) {
  return count == 0 ? Numbers{} : Numbers{{"splits", double(count)}};
}
/// Requests with these numbers of keys, each with Nq queries of H = Hkv·G heads of Q.
Shape decoding(const Numbers64& lengths, std::int64_t Hkv, std::int64_t G, std::int64_t d, std::int64_t Nq = 1) {
  return {std::int64_t(lengths.size()), Hkv * G, Hkv, Nq, std::max<std::int64_t>(1, std::ranges::max(lengths)), d};
}
/// The pages of a cache; 0 keys per page: a contiguous cache.
struct Pages {
  std::int64_t size = 0, seed = 0;

  std::string text() const { return size == 0 ? "a contiguous cache" : "pages of " + counted(size, "key"); }
};
Input in_cache(Input given, const Numbers64& lengths, const Pages& pages) {
  Mask& mask = given.problem.mask;
  mask.cache = lengths, mask.page_size = pages.size, mask.page_seed = pages.seed;
  given.name += fmt::format(", {} heads of Q share one of K and V", given.problem.shape.H / given.problem.shape.Hkv);
  return given;
}
AttentionResult expect_cached(const Input& given, const Numbers64& lengths, const Pages& pages, int count,
                              std::optional<Element> element = {}) {
  return expect_right(in_cache(given, lengths, pages), small_tiles(given.problem.shape.d, splits(count)), element);
}
/// Every kind of input with every mask: three rows of Q for a head of K and V, in one thread block or in two.
void expect_every_kind_cached() {
  std::uint64_t seed = 200;
  const Numbers64 lengths{70, 0, 33};
  for (const InputKind& kind : input_kinds())
    for (const bool causal : masks()) {
      ++seed;
      expect_cached(input(kind.name, decoding(lengths, 1, 3, 64, 2), seed, causal), lengths,
                    {std::int64_t(seed % 3) * 8, std::int64_t(seed)}, int(seed % 2) + 1);
    }
  for (const float scale : {-0.2f, 0.0f})
    expect_cached(with_scale(input("normal", decoding(lengths, 1, 3, 64), ++seed), scale), lengths, {8, 1}, 2);
  const Numbers64 few{20, 5, 0};
  expect_cached(input("value mean", decoding(few, 1, 3, 64, 24), ++seed, true), few, {8, 2}, 2);
}

/// O and the LSE of two results are the same bits.
void expect_same(const AttentionResult& got, const AttentionResult& wanted, const std::string& what) {
  for (const auto& [name, a, b] :
       {std::tuple{"O", &got.O.values, &wanted.O.values}, std::tuple{"the LSE", &got.lse.values, &wanted.lse.values}}) {
    const auto differ = std::mismatch(a->begin(), a->end(), b->begin());
    expect(
        differ.first == a->end(),
        fmt::format("{}: element {} of {} is {}, expected the same bits as {}", what, differ.first - a->begin(), name,
                    differ.first == a->end() ? 0 : *differ.first, differ.first == a->end() ? 0 : *differ.second));
  }
}

/// Request b of a call with a cache, as a call of its own.
Problem request_of(Problem all, std::int64_t b) {
  for (Tensor<float>* tensor : all.tensors()) {
    const auto size = std::ptrdiff_t(tensor->values.size()) / tensor->sizes[0];
    const auto first = tensor->values.begin() + b * size;
    tensor->values = std::vector<float>(first, first + size);
    tensor->sizes[0] = 1;
  }
  all.shape.B = 1;
  all.mask.cache = {all.mask.cache[std::size_t(b)]};
  return all;
}

// ---- Operations ----

Numbers64 first_units(const std::vector<std::int32_t>& lengths) {
  worker::Call request("first_units");
  request.input("lengths", lengths).output<std::int64_t>("first_unit", lengths.size() + 1);
  return call(request).output<std::int64_t>("first_unit");
}

void expect_first_units(const std::vector<std::int32_t>& lengths) {
  const Numbers64 got = first_units(lengths);
  std::int64_t wanted = 0;
  for (std::size_t b = 0; b <= lengths.size(); ++b) {
    expect(got[b] == wanted,
           fmt::format("of {}, the first have the lengths {}: your code sets first_unit[{}] to {}, expected "
                       "{}, the number of units of all requests before",
                       counted(std::int64_t(lengths.size()), "request"),
                       fmt::join(std::span(lengths).first(std::min<std::size_t>(4, lengths.size())), ", "), b, got[b],
                       wanted));
    if (b < lengths.size()) wanted += std::max<std::int64_t>(1, (std::int64_t(lengths[b]) + 15) / 16);
  }
}

struct Table {
  std::int64_t page_size, per_request, page_stride, key_stride;
  std::vector<std::int32_t> pages;
};
worker::Call with_table(const char* operation, const Table& table, std::int64_t head_stride = 0) {
  worker::Call with(operation);
  with.number("page_size", double(table.page_size)).number("per_request", double(table.per_request));
  with.number("page_stride", double(table.page_stride)).number("head_stride", double(head_stride));
  with.number("key_stride", double(table.key_stride)).input("pages", table.pages);
  return with;
}
/// The offset in each of 32 lanes.
Numbers64 offsets(const Table& table, std::int64_t request, std::int64_t first_key, std::int64_t end) {
  worker::Call of_unit = with_table("offsets", table);
  of_unit.number("request", double(request)).number("first_key", double(first_key)).number("end", double(end));
  of_unit.output<std::int64_t>("offsets", 32);
  return call(of_unit).output<std::int64_t>("offsets");
}

void expect_offsets(const Table& table, std::int64_t request, std::int64_t first_key, std::int64_t end) {
  const Numbers64 got = offsets(table, request, first_key, end);
  for (std::int64_t lane = 0; lane < 32; ++lane) {
    const std::int64_t key = first_key + lane % 16;
    if (key >= end) continue;
    const std::int64_t page = table.pages[std::size_t(request * table.per_request + key / table.page_size)];
    const std::int64_t wanted = page * table.page_stride + key % table.page_size * table.key_stride;
    expect(
        got[std::size_t(lane)] == wanted,
        fmt::format("pages of {}, {} of the table per request: for request {} and a unit of keys {} to "
                    "{}, of which those before {} exist, lane {} has the offset {}, expected {}: key {} is in page {}",
                    counted(table.page_size, "key"),
                    table.per_request == 1 ? "1 entry" : fmt::format("{} entries", table.per_request), request,
                    first_key, first_key + 15, end, lane, got[std::size_t(lane)], wanted, key, page));
  }
}

/// A table for two requests of 40 keys, with pages in no order.
Table table_of(std::int64_t page_size, std::int64_t page_stride = 1000, std::int64_t key_stride = 3) {
  Table table{page_size, (40 + page_size - 1) / page_size, page_stride, key_stride, {}};
  for (std::int64_t i = 0; i < 2 * table.per_request; ++i) table.pages.push_back(std::int32_t((i * 37 + 11) % 101));
  return table;
}

void expect_slots(const Table& table, std::int64_t request, std::int64_t head, std::int64_t head_stride) {
  std::vector<std::int32_t> positions(40);
  std::iota(positions.begin(), positions.end(), 0);
  worker::Call of_tokens = with_table("slots", table, head_stride);
  of_tokens.number("request", double(request)).number("head", double(head)).input("positions", positions);
  of_tokens.output<std::int64_t>("offsets", positions.size());
  const auto got = call(of_tokens).output<std::int64_t>("offsets");
  for (const std::int32_t position : positions) {
    const std::int64_t page = table.pages[std::size_t(request * table.per_request + position / table.page_size)];
    const std::int64_t wanted =
        page * table.page_stride + head * head_stride + position % table.page_size * table.key_stride;
    expect(got[std::size_t(position)] == wanted,
           fmt::format("pages of {}, strides {}, {} and {}: position {} of request {}, in page {}, head {}, has the "
                       "offset {}, expected {}",
                       counted(table.page_size, "key"), table.page_stride, head_stride, table.key_stride, position,
                       request, page, head, got[std::size_t(position)], wanted));
  }
}

/// A call of the operation "append": `count` new tokens for each of the requests with these lengths.
struct Appended {
  Shape shape;  // of the new tokens: Nk = count
  CacheStrides at;
  CachePages pages;
  Numbers64 lengths;
  std::vector<std::uint16_t> new_K, new_V, given_K, given_V, K, V;
  std::vector<std::int32_t> new_lengths;
  std::vector<bool> is_new;

  static Setting after(const Numbers64& lengths, std::int64_t Hkv, std::int64_t count, std::int64_t d,
                       const Pages& pages) {
    Setting setting;
    for (const std::int64_t length : lengths) setting.mask.cache.push_back(length + count);
    setting.shape = decoding(setting.mask.cache, Hkv, 1, d);
    setting.mask.page_size = pages.size, setting.mask.page_seed = pages.seed;
    return setting;
  }
  Appended(const Numbers64& of_requests, std::int64_t Hkv, std::int64_t count, std::int64_t d, const Pages& in)
      : shape{std::int64_t(of_requests.size()), Hkv, Hkv, count, count, d},
        at(cache_strides(after(of_requests, Hkv, count, d, in))),
        pages(after(of_requests, Hkv, count, d, in)),
        lengths(of_requests) {
    new_K = to_codes(normal_values(std::size_t(shape.kv_size()), 300), float16);
    new_V = to_codes(normal_values(std::size_t(shape.kv_size()), 301), float16);
    given_K.resize(std::size_t(pages.count * at.page_stride));
    for (std::size_t i = 0; i < given_K.size(); ++i) given_K[i] = std::uint16_t(i * 40503 >> 3);
    given_V.assign(given_K.rbegin(), given_K.rend());
    is_new.resize(given_K.size());
    const Table table{at.page_size, pages.per_request, at.page_stride, at.key_stride, pages.table};
    worker::Call request = with_table("append", table, at.head_stride);
    request.number("B", double(shape.B)).number("Hkv", double(Hkv)).number("count", double(count));
    request.number("d", double(d));
    request.input("new_K", new_K).input("new_V", new_V).input("given_K", given_K).input("given_V", given_V);
    const std::vector<std::int32_t> before(lengths.begin(), lengths.end());
    request.input("lengths", before).output<std::int32_t>("new_lengths", before.size());
    request.output<std::uint16_t>("K", given_K.size()).output<std::uint16_t>("V", given_V.size());
    const worker::Reply reply = call(request);
    K = reply.output<std::uint16_t>("K"), V = reply.output<std::uint16_t>("V");
    new_lengths = reply.output<std::int32_t>("new_lengths");
    for (std::int64_t row = 0; row < shape.B * Hkv * count; ++row)
      for (std::int64_t c = 0; c < d; ++c) is_new[element(row, c)] = true;
  }
  /// Where element c of a row of new_K is in the pages, and the position of its token.
  std::int64_t position(std::int64_t row) const {
    return lengths[std::size_t(row / shape.Nk / shape.Hkv)] + row % shape.Nk;
  }
  std::size_t element(std::int64_t row, std::int64_t c) const {
    const std::int64_t head = row / shape.Nk % shape.Hkv, request = row / shape.Nk / shape.Hkv, key = position(row);
    const std::int64_t page = pages.table[std::size_t(request * pages.per_request + key / at.page_size)];
    return std::size_t(page * at.page_stride + head * at.head_stride + key % at.page_size * at.key_stride + c);
  }
};

void expect_appended(const Numbers64& lengths, std::int64_t Hkv, std::int64_t count, std::int64_t d,
                     const Pages& pages) {
  const Appended done(lengths, Hkv, count, d, pages);
  const std::vector<float> given = from_codes(done.new_K, float16), K = from_codes(done.K, float16);
  const std::vector<float> new_V = from_codes(done.new_V, float16), V = from_codes(done.V, float16);
  for (std::int64_t row = 0; row < std::int64_t(lengths.size()) * Hkv * count; ++row) {
    for (std::int64_t c = 0; c < d; ++c) {
      const std::string where = fmt::format(
          "{}, d={}, {} for each request: element {} of the token at position {} of request {}, head {}", pages.text(),
          d, counted(count, "new token"), c, done.position(row), row / count / Hkv, row / count % Hkv);
      const std::size_t at = done.element(row, c);
      const std::uint16_t value = done.new_V[std::size_t(row * d + c)];
      expect(done.V[at] == value,
             fmt::format("{}: V has the bits {:#06x} ({}) in the cache, expected {:#06x} ({}), those of the new token",
                         where, done.V[at], V[at], value, new_V[std::size_t(row * d + c)]));
      const double x = given[std::size_t(row * d + c % (d / 2))], y = given[std::size_t(row * d + c % (d / 2) + d / 2)];
      const double angle = double(done.position(row)) * std::pow(10000.0, -2.0 * double(c % (d / 2)) / double(d));
      const double wanted =
          c < d / 2 ? x * std::cos(angle) - y * std::sin(angle) : y * std::cos(angle) + x * std::sin(angle);
      const double bound = std::abs(wanted) * 0x1p-11 + (std::abs(x) + std::abs(y)) * 0x1p-22 + 0x1p-25;
      expect(
          std::abs(K[at] - wanted) <= bound,
          fmt::format("{}: K is {} in the cache, expected {:.6g}, rotated by its position; allowed difference {:.2g}",
                      where, K[at], wanted, bound));
    }
  }
}

constexpr std::int64_t kRows = 24;

/// The registers of each lane after load_K or load_V, of a tensor with kRows rows whose element (row, column) is
/// row·d + column. rows: the row of each of 16 keys, of which the first `keys` exist. far:
/// 2^33 elements precede the tensor's.
std::vector<std::uint16_t> loaded(const char* tensor, std::int64_t d, const Numbers64& rows, std::int64_t keys,
                                  bool far) {
  std::vector<std::uint16_t> given(std::size_t(kRows * d));
  std::iota(given.begin(), given.end(), std::uint16_t(0));
  Numbers64 of_lane;
  for (std::size_t lane = 0; lane < 32; ++lane) of_lane.push_back((std::int64_t(far) << 33) + rows[lane % 16] * d);
  worker::Call request("loaded");
  request.number("keys", double(keys)).number("d", double(d)).number("offsets_exceed_32_bits", far ? 1 : 0);
  request.number("values", tensor == std::string("V"));
  request.input("tensor", given).input("offsets", of_lane);
  request.output<std::uint32_t>("words", std::size_t(32 * d / 4));
  std::vector<std::uint16_t> elements;
  for (const std::uint32_t word : call(request).output<std::uint32_t>("words"))
    elements.push_back(std::uint16_t(word)), elements.push_back(std::uint16_t(word >> 16));
  return elements;
}

/// The key of the unit, and the column, of element e of a lane's registers of K or V.
struct Place {
  std::int64_t key, column;
};
Place place_in(const char* tensor, std::int64_t d, int lane, std::int64_t e) {
  const int quad = lane / 4, in_quad = lane % 4;
  const bool is_K = tensor == std::string("K");
  const std::int64_t width = is_K ? 32 : 64, chunk = e / 8 % (d / width), r = e / 8 / (d / width);
  if (is_K) return {quad + 8 * r, width * chunk + 8 * in_quad + e % 8};
  return {2 * in_quad + r % 2 + 8 * (r / 2), width * chunk + 8 * quad + e % 8};
}

/// in_memory: the rows of missing keys are rows of the tensor; otherwise they are outside all memory.
void expect_loaded(const char* tensor, std::int64_t keys, bool far = false, bool in_memory = false) {
  // Rows in no order.
  Numbers64 rows;
  for (std::int64_t key = 0; key < 16; ++key)
    rows.push_back(key < keys || in_memory ? (key * 7 + 5) % kRows : std::int64_t(1) << 30);
  for (const std::int64_t d : head_dims()) {
    const std::vector<std::uint16_t> got = loaded(tensor, d, rows, keys, far);
    for (int lane = 0; lane < 32; ++lane) {
      for (std::int64_t e = 0; e < d / 2; ++e) {
        const Place place = place_in(tensor, d, lane, e);
        const bool exists = place.key < keys;
        const std::int64_t is = got[std::size_t(lane * (d / 2) + e)];
        const std::int64_t wanted = exists ? rows[std::size_t(place.key)] * d + place.column : 0;
        const std::int64_t chunks = d / (tensor == std::string("K") ? 32 : 64);
        expect(
            is == wanted,
            fmt::format("key j of a unit is in row (7·j + 5) % {}, and {} of its keys exist; in lane {}, element {} of "
                        "register group {}[{}][{}] is {}, expected {} (d={})",
                        kRows, keys, lane, e % 8, tensor, e / 8 / chunks, e / 8 % chunks,
                        exists || is == 0 ? fmt::format("row {}, column {}", is / d, is % d) : fmt::format("{}", is),
                        exists ? fmt::format("key {}'s row {}, column {}", place.key, wanted / d, place.column)
                               : fmt::format("0, because key {} does not exist", place.key),
                        d));
      }
    }
  }
}

/// K or V is read once, 16 bytes per lane.
void expect_read_once(const char* tensor) {
  require_counters();
  const Numbers64 lengths{192, 64};
  for (const std::int64_t d : head_dims()) {
    for (const Pages& pages : {Pages{0, 0}, Pages{16, 4}, Pages{1, 7}}) {
      const Input given = in_cache(input("normal", decoding(lengths, 2, 4, d), 22), lengths, pages);
      expect_wide(attention(given.problem, small_tiles(d, splits(3)).numbers()).reply, tensor, "load",
                  double(2 * (192 + 64) * d * 2),
                  fmt::format("{} is read once, d={}, {}, 3 thread blocks per head", tensor, d, pages.text()));
    }
  }
}

/// The units of 16 keys with a key of a page, over all pages of a request: entries of the table that are read.
std::int64_t entries_read(std::int64_t keys, std::int64_t page_size) {
  std::int64_t count = 0;
  for (std::int64_t first = 0; first < keys; first += 16)
    count += (std::min(first + 15, keys - 1)) / page_size - first / page_size + 1;
  return count;
}

/// A problem whose K and V have 8 bits: codes of e4m3 in a cache, with one scale per head and tensor.
struct In8Bits {
  Problem problem;  ///< with K and V as the codes and the scales say
  std::vector<std::uint8_t> K, V;
  std::vector<float> scales;  ///< (2, Hkv)

  explicit In8Bits(const Problem& given) : problem(in_element(given)) {
    const Shape& s = problem.shape;
    for (Tensor<float>* tensor : {&problem.K, &problem.V}) {
      std::vector<std::uint8_t> codes(tensor->values.size());
      const std::int64_t of_head = s.Nk * s.d;
      for (std::int64_t h = 0; h < s.Hkv; ++h) {
        float largest = 0;
        const auto for_head = [&](const auto& take) {
          for (std::int64_t b = 0; b < s.B; ++b)
            for (std::int64_t i = 0; i < of_head; ++i) take(std::size_t((b * s.Hkv + h) * of_head + i));
        };
        for_head([&](std::size_t i) { largest = std::max(largest, std::abs(tensor->values[i])); });
        const float scale = largest > 0 ? largest / 448 : 1;
        scales.push_back(scale);
        for_head([&](std::size_t i) {
          codes[i] = simt::float_to_e4m3(tensor->values[i] / scale);
          tensor->values[i] = simt::e4m3_to_float(codes[i]) * scale;
        });
      }
      (tensor == &problem.K ? K : V) = stored_in_cache(problem, std::span<const std::uint8_t>(codes));
    }
  }

  AttentionResult attention(int count) const {
    const Shape& s = problem.shape;
    worker::Call request("forward_8");
    worker::add_numbers(request, problem);
    const std::vector<std::uint16_t> Q = to_codes(problem.Q.values, float16);
    request.number("splits", count).input("Q", Q);
    request.input("K8", K).input("V8", V).input("scales", scales);
    request.output<std::uint16_t>("O", std::size_t(s.q_size())).output<float>("lse", std::size_t(s.lse_size()));
    AttentionResult result;
    result.reply = call(request);
    result.O.sizes = {s.B, s.H, s.Nq, s.d}, result.lse.sizes = {s.B, s.H, s.Nq, 1};
    result.O.values = from_codes(result.reply.output<std::uint16_t>("O"), float16);
    result.lse.values = result.reply.output<float>("lse");
    return result;
  }
};

AttentionResult expect_8_bits(const Input& given, const Numbers64& lengths, const Pages& pages, int count) {
  note_kinds(given.kind, given.problem);
  const Input cached = in_cache(given, lengths, pages);
  const In8Bits in_8_bits(cached.problem);
  const AttentionResult result = in_8_bits.attention(count);
  const Forward oracle = forward_oracle(in_8_bits.problem);
  const std::string input = describe(in_8_bits.problem, cached.name + ", K and V in 8 bits");
  judge::Layout O, lse;
  O.tensor = "O", lse.tensor = "lse", lse.axes[3] = "";
  expect_all_close({{result.O, {oracle.O, output_bounds(oracle, in_8_bits.problem, precision()), O, input}},
                    {result.lse, {oracle.lse, lse_bounds(oracle, in_8_bits.problem, precision()), lse, input}}});
  return result;
}
void expect_every_kind_8() {
  std::uint64_t seed = 400;
  const Numbers64 lengths{70, 0, 33};
  for (const InputKind& kind : input_kinds()) {
    ++seed;
    expect_8_bits(input(kind.name, decoding(lengths, 2, 3, 64, 2), seed, seed % 2 == 0), lengths,
                  {std::int64_t(seed % 3) * 8, std::int64_t(seed)}, int(seed % 2) + 1);
  }
  for (const float scale : {-0.2f, 0.0f})
    expect_8_bits(with_scale(input("normal", decoding(lengths, 1, 3, 64), ++seed), scale), lengths, {8, 1}, 2);
  const Numbers64 few{20, 5, 0};
  expect_8_bits(input("value mean", decoding(few, 1, 3, 64, 24), ++seed, true), few, {8, 2}, 2);
}

/// Requests whose first `prefix` keys are the same, in the same pages. The pages that other requests would have for
/// them are NaN.
AttentionResult expect_cascade(const Input& given, const Numbers64& lengths, std::int64_t prefix, const Pages& pages,
                               int count) {
  note_kinds(given.kind, given.problem);
  const Input cached = in_cache(given, lengths, pages);
  Problem problem = in_element(cached.problem);
  const Shape& s = problem.shape;
  for (Tensor<float>* tensor : {&problem.K, &problem.V})
    for (std::int64_t b = 1; b < s.B; ++b)
      for (std::int64_t h = 0; h < s.Hkv; ++h)
        for (std::int64_t j = 0; j < prefix; ++j)
          for (std::int64_t c = 0; c < s.d; ++c) (*tensor)(b, h, j, c) = (*tensor)(0, h, j, c);
  CachePages layout(problem);
  std::vector<std::vector<std::uint16_t>> stored;
  for (const Tensor<float>* tensor : {&problem.K, &problem.V}) {
    const std::vector<std::uint16_t> codes = to_codes(tensor->values, float16);
    stored.push_back(stored_in_cache(problem, std::span<const std::uint16_t>(codes)));
  }
  const std::int64_t page = cache_strides(problem).page_stride;
  for (std::int64_t b = 1; b < s.B; ++b)
    for (std::int64_t i = 0; i < prefix / pages.size; ++i) {
      std::int32_t& entry = layout.table[std::size_t(b * layout.per_request + i)];
      for (auto& tensor : stored) std::fill_n(tensor.begin() + entry * page, page, std::uint16_t(-1));
      entry = layout.table[std::size_t(i)];
    }
  const std::vector<std::uint16_t> Q = to_codes(problem.Q.values, float16);
  worker::Call request("cascade");
  worker::add_numbers(request, problem);
  request.number("splits", count).number("prefix", double(prefix)).input("Q", Q);
  request.input("K", stored[0]).input("V", stored[1]).input("pages", layout.table);
  request.output<std::uint16_t>("O", std::size_t(s.q_size())).output<float>("lse", std::size_t(s.lse_size()));
  AttentionResult result;
  result.reply = call(request);
  result.O.sizes = {s.B, s.H, s.Nq, s.d}, result.lse.sizes = {s.B, s.H, s.Nq, 1};
  result.O.values = from_codes(result.reply.output<std::uint16_t>("O"), float16);
  result.lse.values = result.reply.output<float>("lse");
  // Both results are rounded to half before they are merged, and the LSE is computed once more in fp32.
  const Forward oracle = forward_oracle(problem);
  Bounds of_O = output_bounds(oracle, problem, precision()), of_lse = lse_bounds(oracle, problem, precision());
  for (std::size_t i = 0; i < of_O.element.values.size(); ++i)
    of_O.element.values[i] += 0x1p-11 * oracle.O_size.values[i] + 0x1p-24;
  of_O.rms *= 2;
  for (std::size_t i = 0; i < of_lse.element.values.size(); ++i)
    of_lse.element.values[i] += 0x1p-21 * (1 + std::abs(oracle.lse.values[i]));
  of_lse.rms += 0x1p-20;
  const std::string input = describe(problem, fmt::format("{}, a shared prefix of {} keys", cached.name, prefix));
  judge::Layout O, lse;
  O.tensor = "O", lse.tensor = "lse", lse.axes[3] = "";
  expect_all_close({{result.O, {oracle.O, of_O, O, input}}, {result.lse, {oracle.lse, of_lse, lse, input}}});
  return result;
}
void expect_every_kind_cascade() {
  std::uint64_t seed = 500;
  const Numbers64 lengths{60, 32, 75};
  for (const InputKind& kind : input_kinds()) {
    ++seed;
    expect_cascade(input(kind.name, decoding(lengths, 2, 3, 64), seed, seed % 2 == 0), lengths, 32,
                   {16, std::int64_t(seed)}, int(seed % 2) + 1);
  }
  for (const float scale : {-0.2f, 0.0f})
    expect_cascade(with_scale(input("normal", decoding(lengths, 1, 3, 64), ++seed), scale), lengths, 32, {8, 1}, 2);
}

}  // namespace

// ---- 21.1 sums of units ----

TEST_CASE("every request has its first unit", "[21.1]") {
  for (const std::size_t B : {1, 2, 31, 32, 33, 100}) {
    std::vector<std::int32_t> lengths;
    for (std::size_t b = 0; b < B; ++b) lengths.push_back(std::int32_t(b * 97 % 300));
    expect_first_units(lengths);
  }
  for (const std::int32_t length : {0, 1, 15, 16, 17}) expect_first_units({length, 100, length, 0, 33});
}
TEST_CASE("the sums exceed 32 bits", "[21.1]") {
  expect_first_units(std::vector<std::int32_t>(70, std::numeric_limits<std::int32_t>::max() - 15));
}
TEST_CASE("every key of every request counts once", "[21.1]") {
  for (const int count : {0, 1, 3}) {
    Numbers64 many;
    for (std::int64_t b = 0; b < 35; ++b) many.push_back(b * 7 % 50);
    expect_cached(input("value mean", decoding(many, 1, 2, 64), 10), many, {8, 1}, count);
  }
  expect_every_kind_cached();
}

// ---- 21.2 the request of a unit ----

TEST_CASE("the request of every unit is found", "[21.2]") {
  for (const std::int64_t heads : {1, 3}) {
    for (const Numbers64& units : {Numbers64{5}, Numbers64{1, 1}, Numbers64{3, 1, 7, 1, 1}, Numbers64(32, 2)}) {
      Numbers64 first{0}, asked, wanted;
      for (std::size_t b = 0; b < units.size(); ++b) {
        for (std::int64_t u = 0; u < heads * units[b]; ++u)
          asked.push_back(heads * first.back() + u), wanted.push_back(std::int64_t(b));
        first.push_back(first.back() + units[b]);
      }
      worker::Call request("requests");
      request.number("heads", double(heads)).input("first_unit", first).input("units", asked);
      request.output<std::int64_t>("requests", asked.size());
      const auto got = call(request).output<std::int64_t>("requests");
      for (std::size_t i = 0; i < asked.size(); ++i)
        expect(got[i] == wanted[i],
               fmt::format("first_unit is {}, and each request has {}: your code returns request {} for unit {} "
                           "of the sequence, expected {}",
                           fmt::join(first, ", "), counted(heads, "head"), got[i], asked[i], wanted[i]));
    }
  }
}
TEST_CASE("units beyond 32 bits are found", "[21.2]") {
  const std::int64_t large = std::int64_t(1) << 33;
  const Numbers64 first{0, large, 2 * large, 2 * large + 5};
  const Numbers64 units{2 * large - 1, 2 * large, 4 * large - 1, 4 * large, 4 * large + 9};
  worker::Call request("requests");
  request.number("heads", 2).input("first_unit", first).input("units", units);
  request.output<std::int64_t>("requests", 5);
  const auto got = call(request).output<std::int64_t>("requests");
  const Numbers64 wanted{0, 1, 1, 2, 2};
  expect(Numbers64(got.begin(), got.end()) == wanted,
         fmt::format("two heads, first_unit 0, 2^33, 2^34, 2^34 + 5: your code returns the requests {} for the units "
                     "2^34 - 1, 2^34, 2^35 - 1, 2^35, 2^35 + 9; expected {}",
                     fmt::join(got, ", "), fmt::join(wanted, ", ")));
}
TEST_CASE("thread blocks begin and end within requests", "[21.2]") {
  const Numbers64 lengths{100, 1, 300, 0, 16, 250};
  for (const int count : {0, 2})
    for (const std::int64_t G : {1, 8})
      expect_cached(input("value mean", decoding(lengths, 2, G, 64), 20), lengths, {16, 2}, count);
  expect_every_kind_cached();
}

// ---- 21.3 the page of a key ----

TEST_CASE("each lane has the offset of its key", "[21.3]") {
  for (const std::int64_t size : {8, 1, 2, 3, 7, 16, 20, 64, 256})
    for (const std::int64_t request : {0, 1})
      for (const std::int64_t first_key : {0, 16}) expect_offsets(table_of(size), request, first_key, 40);
}
TEST_CASE("the table is not read past the keys", "[21.3]") {
  // The table ends after the last page: the simulator reports a read past it.
  for (const std::int64_t size : {1, 3, 8, 16})
    for (const std::int64_t end : {33, 39, 40}) expect_offsets(table_of(size), 1, 32, end);
  for (const std::int64_t end : {0, 16, 32}) offsets(table_of(1), 1, 48, end);
}
TEST_CASE("offsets in the pages may exceed 32 bits", "[21.3]") {
  for (const std::int64_t size : {1, 16, 256}) {
    Table table = table_of(size, std::int64_t(1) << 27);
    expect_offsets(table, 1, 16, 40);
    table = table_of(size, 1000, std::int64_t(1) << 29);
    expect_offsets(table, 1, 16, 40);
  }
}
TEST_CASE("each page's entry is read once per head and unit", "[21.3]") {
  require_counters();
  const Numbers64 lengths{100, 0, 1, 250};
  for (const std::int64_t size : {1, 3, 8, 16, 64}) {
    for (const int count : {1, 3}) {
      const Input given = in_cache(input("normal", decoding(lengths, 2, 4, 64), 31), lengths, {size, 5});
      const worker::Reply reply = attention(given.problem, small_tiles(64, splits(count)).numbers()).reply;
      std::int64_t entries = 0;
      for (const std::int64_t keys : lengths) entries += entries_read(keys, size);
      expect_count(reply, "pages.load_bytes", double(4 * 2 * entries),
                   fmt::format("4 bytes per K/V head, unit and page that has a key of the unit; pages of {}, {} per "
                               "head",
                               counted(size, "key"), counted(count, "thread block")),
                   "your code reads an entry of the table in several lanes; the first lane of a page must read it, and "
                   "the others get it by a shuffle",
                   "table-reads");
    }
  }
  expect_every_kind_cached();
}

// ---- 21.4 and 21.5 K and V in pages ----

TEST_CASE("each lane holds its elements of K", "[21.4]") {
  expect_loaded("K", 16);
  expect_loaded("K", 16, true);  // offsets beyond 2^32 elements
}
TEST_CASE("missing keys of K are not read", "[21.4]") {
  for (const bool in_memory : {true, false})  // first, what is read shows which keys are
    for (const std::int64_t keys : {0, 1, 7, 9, 15}) expect_loaded("K", keys, false, in_memory);
  expect_loaded("K", -16);
  expect_every_kind_cached();
}
TEST_CASE("K is read 16 bytes per lane", "[21.4]") {
  expect_read_once("K");
  expect_cached(input("normal", decoding({100, 30}, 2, 4, 128), 41), {100, 30}, {8, 6}, 2);
}

TEST_CASE("each lane holds its elements of V", "[21.5]") {
  expect_loaded("V", 16);
  expect_loaded("V", 16, true);  // offsets beyond 2^32 elements
}
TEST_CASE("missing keys of V are not read", "[21.5]") {
  for (const bool in_memory : {true, false})  // first, what is read shows which keys are
    for (const std::int64_t keys : {0, 1, 7, 9, 15}) expect_loaded("V", keys, false, in_memory);
  expect_loaded("V", -16);
  expect_every_kind_cached();
}
TEST_CASE("V is read 16 bytes per lane", "[21.5]") {
  expect_read_once("V");
  expect_cached(input("normal", decoding({100, 30}, 2, 4, 128), 51), {100, 30}, {8, 6}, 2);
}

// ---- 21.6 lengths and the causal mask ----

TEST_CASE("each request attends to its own keys", "[21.6]") {
  // What is past the end of a request is NaN.
  for (const Numbers64& lengths : {Numbers64{33, 70, 16}, Numbers64{1, 100, 15}, Numbers64{17, 32, 31, 200}})
    for (const int count : {0, 1, 3})
      expect_cached(input("value mean", decoding(lengths, 2, 3, 64), 60), lengths, {}, count);
}
TEST_CASE("a request without keys has O = 0 and LSE = -inf", "[21.6]") {
  const Numbers64 lengths{0, 40, 0, 0};
  for (const bool causal : masks())
    for (const int count : {0, 1, 2}) {
      const AttentionResult result =
          expect_cached(input("value mean", decoding(lengths, 1, 2, 64, 2), 61, causal), lengths, {8, 3}, count);
      for (const std::int64_t b : {0, 2, 3})
        expect(result.lse(b, 1, 1, 0) == -std::numeric_limits<float>::infinity() && result.O(b, 1, 1, 0) == 0,
               fmt::format("request {} has no keys, O = {} and LSE = {}; they must be 0 and -inf", b,
                           result.O(b, 1, 1, 0), result.lse(b, 1, 1, 0)),
               "", "request-without-keys");
    }
}
TEST_CASE("the causal mask is aligned to each request's last key", "[21.6]") {
  for (const std::int64_t Nq : {2, 5, 20}) {
    const Numbers64 lengths{100, 20, 3, 64};
    for (const int count : {0, 1, 3})
      expect_cached(input("one hot", decoding(lengths, 1, 2, 64, Nq), 62, true), lengths, {16, 8}, count);
  }
  expect_every_kind_cached();
}
TEST_CASE("keys that no row attends to are not read", "[21.6]") {
  require_counters();
  // 40 queries of one head, in blocks of 16 rows: the first block attends to the keys up to 75 only.
  const Numbers64 lengths{100};
  const Input given = in_cache(input("normal", decoding(lengths, 1, 1, 64, 40), 63, true), lengths, {});
  const worker::Reply reply = attention(given.problem, small_tiles(64, splits(1)).numbers()).reply;
  expect_count(reply, "K.load_bytes", double((76 + 92 + 100) * 64 * 2),
               "100 keys, 40 queries in three blocks of 16 rows, which attend to 76, 92 and 100 keys",
               "your code reads keys after the last that a row of the block attends to; the keys must end where "
               "rows.end_of_keys(Br) says",
               "end-of-keys");
}
// ---- 21.7 and 21.8 new tokens ----

TEST_CASE("each new token has its slot", "[21.7]") {
  for (const std::int64_t size : {1, 3, 8, 16, 64, 256})
    for (const std::int64_t request : {0, 1}) expect_slots(table_of(size, 1000, 3), request, 5, 200);
}
TEST_CASE("slots beyond 32 bits are found", "[21.7]") {
  for (const std::int64_t size : {1, 8, 256}) {
    expect_slots(table_of(size, std::int64_t(1) << 27, 3), 1, 1, 200);
    expect_slots(table_of(size, 1000, std::int64_t(1) << 29), 1, 1, 200);
    expect_slots(table_of(size, 1000, 3), 1, 5, std::int64_t(1) << 30);
  }
}

TEST_CASE("new tokens are appended and rotated", "[21.8]") {
  for (const Pages& pages : {Pages{8, 2}, Pages{1, 3}, Pages{16, 5}, Pages{256, 6}})
    for (const std::int64_t d : {64, 128})
      for (const std::int64_t count : {3, 1}) expect_appended({20, 0, 8, 100}, 2, count, d, pages);
  expect_appended({30000, 5}, 1, 1, 64, {256, 1});  // angles of many turns
}
TEST_CASE("nothing else in the cache changes", "[21.8]") {
  for (const std::int64_t d : {64, 128}) {
    const Appended done({5, 0, 15, 16}, 2, 2, d, {8, 7});
    for (const auto& [name, got, given] : {std::tuple{"K", &done.K, &done.given_K}, {"V", &done.V, &done.given_V}})
      for (std::size_t i = 0; i < got->size(); ++i)
        expect(done.is_new[i] || (*got)[i] == (*given)[i],
               fmt::format("element {} of {} belongs to no new token, and changes from the bits {:#06x} to {:#06x}", i,
                           name, (*given)[i], (*got)[i]));
  }
}
TEST_CASE("the lengths count the new tokens after an append", "[21.8]") {
  const Appended done({5, 0, 15, 16}, 2, 2, 64, {8, 7});
  expect(done.new_lengths == std::vector<std::int32_t>{7, 2, 17, 18},
         fmt::format("after two new tokens each, the lengths 5, 0, 15, 16 are {}; expected 7, 2, 17, 18",
                     fmt::join(done.new_lengths, ", ")));
}
// ---- 21.9 and 21.10 K and V in 8 bits ----

TEST_CASE("every code becomes its half", "[21.9]") {
  worker::Call request("halves");
  request.output<std::uint32_t>("words", 256);
  const auto words = call(request).output<std::uint32_t>("words");
  for (std::uint32_t i = 0; i < 256; ++i) {
    for (const bool upper : {false, true}) {
      const std::uint32_t code = upper ? 255 - i : i;
      if (code % 128 == 127) continue;  // NaN
      const float wanted = simt::e4m3_to_float(std::uint8_t(code)) / 256;
      const std::uint16_t is = std::uint16_t(upper ? words[i] >> 16 : words[i]);
      const float got = from_codes(std::array{is}, float16)[0];
      expect(
          std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(wanted),
          fmt::format("your code converts the code {:#04x} in bits {} to the half {:#06x}, which is {}; expected {} / "
                      "256 = {}",
                      code, upper ? "8 to 15" : "0 to 7", is, got, wanted * 256, wanted));
    }
  }
}
TEST_CASE("8-bit keys and values agree with the oracle", "[21.9]") {
  const Numbers64 lengths{100, 0, 1, 33};
  std::uint64_t seed = 410;
  for (const std::int64_t d : head_dims())
    for (const std::int64_t size : {0, 1, 16, 64})
      for (const std::int64_t G : {1, 7, 16})
        ++seed, expect_8_bits(input("normal", decoding(lengths, 2, G, d), seed), lengths, {size, std::int64_t(seed)},
                              int(seed % 4));
  expect_every_kind_8();
}

TEST_CASE("each head has its own scales", "[21.10]") {
  const Numbers64 lengths{50, 20};
  for (const std::int64_t d : head_dims()) {
    Input given = input("value mean", decoding(lengths, 3, 2, d), 420);
    for (Tensor<float>* tensor : {&given.problem.K, &given.problem.V})
      for (std::size_t i = 0; i < tensor->values.size(); ++i) {
        const std::int64_t head = std::int64_t(i) / (given.problem.shape.Nk * d) % 3;
        tensor->values[i] *= (tensor == &given.problem.K ? std::array{1.0f, 0.3f, 2.0f}
                                                         : std::array{5.0f, 1.0f, 0.1f})[std::size_t(head)];
      }
    given.kind.clear();
    for (const int count : {0, 1, 2}) expect_8_bits(given, lengths, {8, 4}, count);
  }
  expect_every_kind_8();
}
TEST_CASE("8 bits are half of the bytes", "[21.10]") {
  require_counters();
  const Numbers64 lengths{250, 0, 1, 100};
  for (const std::int64_t d : head_dims()) {
    const AttentionResult result = expect_8_bits(input("normal", decoding(lengths, 2, 8, d), 421), lengths, {16, 1}, 3);
    for (const char* tensor : {"K8", "V8"})
      expect_count(result.reply, fmt::format("{}.load_bytes", tensor), double(2 * 351 * d),
                   "one byte for each element of 351 keys of 2 heads", "", "traffic");
  }
}
TEST_CASE("the error of 8 bits is within its bound", "[21.10]") {
  // e4m3 rounds x to x·(1 + e) with |e| <= 2^-4, or by at most 2^-10 of the scale if x is subnormal. The lesson derives
  // the bound of O from these. K is small, so that the bound is a small part of O.
  const Numbers64 lengths{90};
  Input given = input("value mean", decoding(lengths, 1, 4, 64), 422);
  for (float& k : given.problem.K.values) k /= 16;
  given.kind.clear();
  const AttentionResult result = expect_8_bits(given, lengths, {16, 1}, 1);  // as the codes and the scales say
  const Input cached = in_cache(given, lengths, {16, 1});
  const In8Bits in_8_bits(cached.problem);
  const Problem exact = in_element(cached.problem);
  const Forward oracle = forward_oracle(exact), of_codes = forward_oracle(in_8_bits.problem);
  const Bounds bounds = output_bounds(of_codes, in_8_bits.problem, precision());
  for (std::int64_t row = 0; row < 4; ++row) {
    double score_error = 0;
    for (std::int64_t j = 0; j < 90; ++j) {
      double of_key = 0;
      for (std::int64_t c = 0; c < 64; ++c) {
        const double k = std::abs(exact.K(0, 0, j, c));
        of_key += std::abs(exact.Q(0, row, 0, c)) * std::max(k * 0x1p-4, double(in_8_bits.scales[0]) * 0x1p-10);
      }
      score_error = std::max(score_error, std::abs(double(exact.scale)) * of_key);
    }
    for (std::int64_t c = 0; c < 64; ++c) {
      const std::size_t at = std::size_t(row * 64 + c);
      const double V_size = oracle.O_size.values[at], V_error = V_size * 0x1p-4 + double(in_8_bits.scales[1]) * 0x1p-10;
      const double bound = std::expm1(2 * score_error) * (V_size + V_error) + V_error + bounds.element.values[at];
      REQUIRE(bound < std::abs(oracle.O.values[at]) / 4);
      expect(std::abs(result.O.values[at] - oracle.O.values[at]) <= bound,
             fmt::format("row {}, column {}: O is {} with K and V in 8 bits and {} with 16; allowed difference {:.3g}",
                         row, c, result.O.values[at], oracle.O.values[at], bound));
    }
  }
}
// ---- 21.11 and 21.12 a shared prefix ----

TEST_CASE("each row has its place among the rows of the prefix", "[21.11]") {
  for (const auto& [B, Hkv, rows] :
       {std::tuple<std::int64_t, std::int64_t, std::int64_t>{3, 2, 4}, {1, 3, 5}, {5, 1, 2}, {4, 8, 1}, {2, 7, 3}}) {
    worker::Call request("rows_in_prefix");
    request.number("B", double(B)).number("Hkv", double(Hkv)).number("rows", double(rows));
    request.output<std::int64_t>("in_prefix", std::size_t(B * Hkv * rows));
    const auto got = call(request).output<std::int64_t>("in_prefix");
    for (std::int64_t b = 0; b < B; ++b)
      for (std::int64_t h = 0; h < Hkv; ++h)
        for (std::int64_t r = 0; r < rows; ++r) {
          const std::int64_t is = got[std::size_t((b * Hkv + h) * rows + r)], wanted = (h * B + b) * rows + r;
          expect(is == wanted, fmt::format("{}, {}, {} for each: row {} of head {} of request {} "
                                           "is row {} for the prefix, expected {}",
                                           counted(B, "request"), counted(Hkv, "K/V head"), counted(rows, "row"), r, h,
                                           b, is, wanted));
        }
  }
}
TEST_CASE("a shared prefix agrees with the oracle", "[21.11]") {
  std::uint64_t seed = 520;
  for (const std::int64_t d : head_dims())
    for (const std::int64_t size : {1, 8, 64})
      for (const std::int64_t G : {1, 7}) {
        ++seed;
        const Numbers64 lengths{100, 64, 65, 150};
        expect_cascade(input("normal", decoding(lengths, 2, G, d), seed), lengths, 64, {size, std::int64_t(seed)},
                       int(seed % 4));
      }
  const Numbers64 lengths{40, 37};
  expect_cascade(input("normal", decoding(lengths, 2, 3, 64, 4), ++seed, true), lengths, 32, {16, 2}, 2);
  expect_every_kind_cascade();
}
TEST_CASE("both parts have their weights", "[21.12]") {
  const Numbers64 lengths{80, 32, 33};
  for (const float slope : {2.0f, -2.0f, 0.1f, 0.0f}) {
    Input given = input("value mean", decoding(lengths, 2, 2, 64), 530);
    add_to_scores(
        given, [](std::int64_t) { return 1; }, [=](std::int64_t j) { return slope * float(j); });
    expect_cascade(given, lengths, 32, {16, 3}, 1);
  }
  expect_every_kind_cascade();
}
TEST_CASE("the prefix is read once per 16 rows", "[21.12]") {
  require_counters();
  const Numbers64 lengths{150, 128, 129, 200, 140, 128};
  for (const std::int64_t d : head_dims()) {
    const AttentionResult result =
        expect_cascade(input("normal", decoding(lengths, 2, 4, d), 531), lengths, 128, {16, 3}, 3);
    for (const char* tensor : {"K", "V"})  // 6·4 rows: twice 128 keys, and 107 keys after it
      expect_count(result.reply, fmt::format("{}.load_bytes", tensor), double(2 * (2 * 128 + 107) * d * 2),
                   "2 bytes for each element of 2 heads, of 128 keys for each 16 of 24 rows, and of 107 keys after the "
                   "prefix",
                   "", "traffic");
  }
}

// ---- The whole chapter ----

TEST_CASE("the paged cache agrees with the oracle", "[whole]") {
  expect_every_kind();
  expect_every_kind_cached();
  expect_appended({20, 0}, 2, 2, 64, {8, 2});
  const Numbers64 lengths{300, 0, 1, 77};
  expect_8_bits(input("normal", decoding(lengths, 2, 4, 64), 99), lengths, {16, 2}, 3);
  expect_cascade(input("normal", decoding({40, 32, 50}, 2, 2, 64), 98), {40, 32, 50}, 32, {16, 2}, 2);
  std::uint64_t seed = 100;
  for (const std::int64_t size : {0, 1, 8, 16, 64, 256})
    for (const int count : {0, 1, 2, 3, 8, 128})
      for (const std::int64_t d : head_dims()) {
        ++seed;
        expect_cached(input("rising maximum", decoding(lengths, 2, 4, d), seed), lengths, {size, std::int64_t(seed)},
                      count);
      }
}

TEST_CASE("bf16 agrees with the oracle", "[whole]") {
  expect_element(bfloat16);
  const Numbers64 lengths{300, 0, 1, 77};
  for (const std::int64_t d : head_dims())
    expect_cached(input("normal", decoding(lengths, 2, 7, d), 101), lengths, {16, 3}, 3, bfloat16);
}

TEST_CASE("any group and any number of queries agree with the oracle", "[whole]") {
  expect_any_two_lengths();
  std::uint64_t seed = 102;
  for (const std::int64_t G : {1, 2, 4, 7, 8, 16})
    for (const std::int64_t Nq : {1, 2, 5})
      for (const bool causal : masks()) {
        ++seed;
        const Numbers64 lengths{std::int64_t(seed), 3, 50};
        expect_cached(input("normal", decoding(lengths, 2, G, 64, Nq), seed, causal), lengths,
                      {std::int64_t(seed % 20), std::int64_t(seed)}, int(seed % 4));
      }
}

TEST_CASE("any order of the pages gives the same bits", "[whole]") {
  const Numbers64 lengths{90, 0, 1, 130};
  for (const std::int64_t d : head_dims()) {
    const Input given = input("normal", decoding(lengths, 2, 4, d), 105);
    const auto result = [&](const Pages& pages) {
      return attention(in_cache(given, lengths, pages).problem, small_tiles(d).numbers());
    };
    const AttentionResult contiguous = result({});
    for (const std::int64_t size : {1, 8, 16, 64, 256})
      for (const std::int64_t seed : {1, 2, 3, 4})
        expect_same(result({size, seed}), contiguous,
                    fmt::format("pages of {} in the order of seed {}, compared with a contiguous cache",
                                counted(size, "key"), seed));
  }
}

TEST_CASE("with a fixed number of splits, no answer depends on the batch", "[whole]") {
  const Numbers64 lengths{200, 1, 0, 77};
  const Problem all = in_cache(input("normal", decoding(lengths, 2, 4, 64), 106), lengths, {16, 9}).problem;
  for (const int count : {1, 3, 8}) {
    const AttentionResult together = attention(all, small_tiles(64, splits(count)).numbers());
    for (std::int64_t b = 0; b < 4; ++b) {
      const AttentionResult alone = attention(request_of(all, b), small_tiles(64, splits(count)).numbers());
      AttentionResult in_batch = together;
      const auto cut = [&](Tensor<float>& tensor, std::size_t size) {
        const auto first = tensor.values.begin() + std::ptrdiff_t(size) * b;
        tensor.values = std::vector<float>(first, first + std::ptrdiff_t(size));
      };
      cut(in_batch.O, alone.O.values.size()), cut(in_batch.lse, alone.lse.values.size());
      expect_same(alone, in_batch,
                  fmt::format("request {} of 4, alone and in the batch, with {}", b, counted(count, "split")));
    }
  }
}

TEST_CASE("K and V are read once, in any pages and splits", "[whole]") {
  require_counters();
  const Numbers64 lengths{250, 0, 1, 100};
  for (const std::int64_t d : head_dims())
    for (const int count : {0, 1, 2, 3, 8, 128})
      for (const std::int64_t size : {0, 1, 16, 256}) {
        const Input given = in_cache(input("normal", decoding(lengths, 2, 8, d), 104), lengths, {size, 11});
        const worker::Reply reply = attention(given.problem, small_tiles(d, splits(count)).numbers()).reply;
        const double bytes = counter(reply, "K.load_bytes") + counter(reply, "V.load_bytes");
        expect(bytes == double(4 * 2 * 351 * d),
               fmt::format("K and V are read in {} bytes, expected 4·Hkv·d for each of 351 keys = {}; d={}, {}, "
                           "splits={}",
                           bytes, 4 * 2 * 351 * d, d, Pages{size, 11}.text(), count),
               "your code reads keys more than once, or not at all; each key must be read by one warp of one thread "
               "block",
               "traffic");
      }
}

const Claims of_the_whole = {
    {"[whole]", "future positions have zero influence", [] { expect_no_future(); }},
    {"[whole]", "fully masked rows give O = 0 and LSE = -inf, never NaN", [] { expect_rows_without_keys(); }},
    {"[whole]", "a row's answer depends on no other row of Q", [] { expect_rows_independent(); }},
    {"[whole]", "results do not depend on workers or lane order", [] { expect_order_changes_nothing(); }},
    {"[whole]", "50 runs are bitwise equal", [] { expect_repeatable(50); }},
    {"[whole]", "the tiles fit 64, 99, 163 and 227 KB of shared memory", [] { expect_tiles_for_every_size(); }},
};
