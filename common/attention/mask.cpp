#include "common/attention/mask.hpp"

#include <numeric>

namespace workbook {

bool Mask::operator==(const Mask&) const = default;

std::int64_t Mask::rows() const {
  return std::accumulate(lengths.begin(), lengths.end(), std::int64_t(0));
}

std::vector<std::int32_t> Mask::starts() const {
  std::vector<std::int32_t> starts{0};
  for (const std::int64_t length : lengths) starts.push_back(starts.back() + std::int32_t(length));
  return starts;
}

KeyRange Mask::sequence(std::int64_t query) const {
  KeyRange own;
  for (const std::int64_t length : lengths) {
    own = {own.last, own.last + length};
    if (query < own.last) break;
  }
  return own;
}

std::optional<double> Mask::sink_of(const Shape& shape, std::int64_t row) const {
  return sink.empty() ? std::nullopt : std::optional<double>(sink[std::size_t(row / shape.Nq % shape.H)]);
}

std::int64_t Mask::count(const Shape& shape, std::int64_t row) const {
  std::int64_t keys = 0;
  for_ranges(shape, row, [&](const KeyRange& range) { keys += range.last - range.first; });
  return keys;
}

bool Mask::attends(const Shape& shape, std::int64_t row, std::int64_t key) const {
  bool seen = false;
  for_ranges(shape, row, [&](const KeyRange& range) { seen |= range.first <= key && key < range.last; });
  return seen;
}

std::string Mask::text() const {
  return *this == none ? "not causal" : name();
}

std::vector<NamedMask> all_masks() {
  return {{"none", Mask::none}, {"causal", Mask::causal}};
}
std::vector<Mask> plain_masks() {
  return {Mask::none, Mask::causal};
}
std::vector<NamedMask> mask_parts() {
  std::vector<NamedMask> parts = all_masks();
  const auto add = [&](std::string_view name, auto change) { change(parts.emplace_back(name).mask); };
  add("window", [](Mask& mask) { mask.kind = Mask::window; });
  add("documents", [](Mask& mask) { mask.kind = Mask::documents; });
  add("prefix", [](Mask& mask) { mask.kind = Mask::prefix; });
  add("strided", [](Mask& mask) { mask.kind = Mask::strided; });
  add("softcap", [](Mask& mask) { mask.softcap = 1; });
  add("alibi", [](Mask& mask) { mask.alibi = true; });
  add("sink", [](Mask& mask) { mask.sink = {0}; });
  add("packed", [](Mask& mask) { mask.lengths = {1}; });
  add("rope", [](Mask& mask) { mask.rope = true; });
  add("dropout", [](Mask& mask) { mask.dropped = 1; });
  add("cache", [](Mask& mask) { mask.cache = {1}; });
  return parts;
}
std::string_view part_name(const Mask& part) {
  for (const NamedMask& each : mask_parts())
    if (each.mask == part) return each.name;
  return "(not a part of a mask)";
}
std::string_view part_not_in(const std::vector<Mask>& served, const Mask& mask) {
  const auto any = [&](auto has) { return std::any_of(served.begin(), served.end(), has); };
  if (!any([&](const Mask& each) { return each == Mask(mask.kind); })) return part_name(mask.kind);
  if (mask.softcap > 0 && !any([](const Mask& each) { return each.softcap > 0; })) return "softcap";
  if (mask.alibi && !any([](const Mask& each) { return each.alibi; })) return "alibi";
  if (!mask.sink.empty() && !any([](const Mask& each) { return !each.sink.empty(); })) return "sink";
  if (mask.packed() && !any([](const Mask& each) { return !each.lengths.empty(); })) return "packed";
  if (mask.rope && !any([](const Mask& each) { return each.rope; })) return "rope";
  if (mask.dropped > 0 && !any([](const Mask& each) { return each.dropped > 0; })) return "dropout";
  if (!mask.cache.empty() && !any([](const Mask& each) { return !each.cache.empty(); })) return "cache";
  return "";
}

std::string Mask::name() const {
  std::string text(part_name(kind));
  if (kind == window || kind == strided)
    text.append("=").append(std::to_string(left)).append(",").append(std::to_string(right));
  if (kind == prefix) text.append("=").append(std::to_string(left));
  const auto append_list = [&](const char* name, const std::vector<std::int64_t>& list) {
    for (const std::int64_t& length : list)
      text.append(&length != list.data() ? "," : name).append(std::to_string(length));
  };
  if (kind == documents) append_list("=", lengths);
  const auto append_number = [&](const char* name, double value) {
    std::string number = std::to_string(value);
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    text.append(name).append(number);
  };
  if (softcap > 0) append_number("+softcap=", softcap);
  if (alibi) text += "+alibi";
  if (!sink.empty()) text += "+sink";
  if (kind != documents) append_list("+lengths=", lengths);
  if (rope) text += "+rope";
  if (dropped > 0) append_number("+dropout=", dropped / 256.0), text.append(",").append(std::to_string(seed));
  append_list("+cache=", cache);
  if (page_size > 0)
    text.append("+pages=").append(std::to_string(page_size)).append(",").append(std::to_string(page_seed));
  return text;
}
std::optional<Mask> mask_named(std::string_view name) {
  for (const NamedMask& each : all_masks())
    if (each.name == name) return each.mask;
  return std::nullopt;
}
std::optional<Mask> part_named(std::string_view name) {
  for (const NamedMask& each : mask_parts())
    if (each.name == name) return each.mask;
  return std::nullopt;
}

}  // namespace workbook
