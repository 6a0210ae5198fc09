// The C interface of workbook.h to the stages linked with it, for either backend. Independent of any chapter.
#include <pthread.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/attention/error.hpp"
#include "common/attention/mask_text.hpp"
#include "common/attention/tensors.hpp"
#include "common/cuda/backend.hpp"
#include "common/cuda/description.hpp"
#include "common/cuda/error.hpp"
#include "common/cuda/extra_memory.hpp"
#include "common/cuda/todo.hpp"
#include "common/cuda/workbook.h"

namespace workbook::cuda {
namespace {

thread_local std::string last_error;

/// Runs `work` and converts its exceptions to a status and a text.
template <class Work>
int status_of(const Work& work) noexcept {
  const auto failed = [](workbook_status status, const std::string& text) {
    last_error = text;
    return status;
  };
  try {
    work();
    return WORKBOOK_OK;
  } catch (const Todo& todo) {
    return failed(WORKBOOK_OPEN_EXERCISE, std::string("exercise ") + todo.what() + " is still open");
  } catch (const Error& error) {
    return failed(WORKBOOK_KERNEL_FAILED, error.what());
  } catch (const Unavailable& error) {
    return failed(WORKBOOK_UNAVAILABLE, error.what());
  } catch (const Refused& error) {
    return failed(WORKBOOK_OUT_OF_MEMORY, error.what());
  } catch (const std::bad_alloc&) {
    return failed(WORKBOOK_OUT_OF_MEMORY, "not enough memory");
  } catch (const std::invalid_argument& error) {
    return failed(WORKBOOK_NOT_SERVED, error.what());
  } catch (const InputError& error) {
    return failed(WORKBOOK_NOT_SERVED, error.what());
  } catch (const std::exception& error) {
    return failed(WORKBOOK_FAILED, error.what());
  } catch (...) {
    return failed(WORKBOOK_FAILED, "an exception that is not a std::exception");
  }
}

bool on_gpu() {
  return std::string_view(backend_name()) == "cuda";
}

/// Unavailable if no kernel can run here.
void require_backend() {
  static const std::optional<std::string> why_not = unavailable();
  if (why_not) throw Unavailable(*why_not);
}

/// The stages of the interface, which are those with kernels. It excludes what a chapter computes on the CPU in fp32.
const std::vector<StageOperations>& kernel_stages() {
  static const std::vector<StageOperations> chosen = [] {
    std::vector<StageOperations> kernels;
    std::ranges::copy_if(all_stages(), std::back_inserter(kernels),
                         [](const auto& stage) { return stage.description.element != float32; });
    return kernels;
  }();
  return chosen;
}

const StageOperations& stage_at(int index) {
  const auto& all = kernel_stages();
  if (index < 0 || std::size_t(index) >= all.size())
    throw std::invalid_argument("stage = " + std::to_string(index) + ": allowed: 0 to " +
                                std::to_string(int(all.size()) - 1));
  return all[std::size_t(index)];
}

// --- A problem -------------------------------------------------------------------------------------------------------

template <class T>
const T& given(const char* name, const T* pointer) {
  if (pointer == nullptr) throw std::invalid_argument(std::string(name) + " = NULL: allowed: a valid pointer");
  return *pointer;
}

/// InputError for a problem that check() refuses, or an unknown mask. A cache's lengths are Nk: the call has its own.
Setting setting_of(const workbook_problem& problem) {
  if (problem.mask == nullptr)
    throw std::invalid_argument(std::string("mask = NULL: allowed: ") + mask_texts + ", +sink");
  Setting setting{{problem.B, problem.H, problem.Hkv, problem.Nq, problem.Nk, problem.d}, problem.scale, {}};
  check(setting, /*any_d=*/true);                              // the shape comes first, since a mask has H sinks
  const std::optional<Mask> named = mask_named(problem.mask);  // most calls have one, which needs no parsing
  setting.mask = named ? *named : mask_from(problem.mask, problem.H);
  if (!setting.mask.cache.empty())
    throw std::invalid_argument("mask = " + setting.mask.name() +
                                ": allowed for a cache: page_size, pages, cache_seqlens");
  if (problem.page_size != 0) setting.mask.cache.assign(std::size_t(problem.B), problem.Nk);
  if (!named || problem.page_size != 0) check(setting, /*any_d=*/true);
  return setting;
}

void require_range(const char* name, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (least <= value && value <= most) return;
  throw std::invalid_argument(std::string(name) + " = " + std::to_string(value) +
                              ": allowed: " + std::to_string(least) + " to " + std::to_string(most));
}

// --- A call ----------------------------------------------------------------------------------------------------------

std::string text_of(std::span<const std::int64_t> numbers) {
  std::string text;
  for (const std::int64_t number : numbers) text += (text.empty() ? "(" : ", ") + std::to_string(number);
  return text + ")";
}

/// std::invalid_argument for a tensor that is missing, is not aligned, or has gaps, which K and V of a cache may have.
void require_tensor(const CallTensor& expected, const workbook_tensor& tensor, const Shape& shape, bool cached) {
  const std::string name = expected.name;
  if (tensor.data == nullptr) throw std::invalid_argument(name + ".data = NULL: allowed: the address of the tensor");
  constexpr std::uintptr_t kAlignment = 16;
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment != 0)
    throw std::invalid_argument(name + ".data is at an address that is " +
                                std::to_string(reinterpret_cast<std::uintptr_t>(tensor.data) % kAlignment) +
                                " bytes past a multiple of 16: allowed: a multiple of 16 bytes");
  if (tensor.strides == nullptr || cached) return;
  const std::array<std::int64_t, 4> sizes = expected.sizes(shape);
  const std::array<std::int64_t, 4> dense{sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
  const std::size_t given_strides = expected.kind == CallTensor::of_rows ? 3 : 4;  // lse: (B, H, Nq)
  for (std::size_t i = 0; i < given_strides; ++i) {
    if (sizes[i] == 1 || tensor.strides[i] == dense[i]) continue;
    throw std::invalid_argument(
        name + ".strides = " + text_of({tensor.strides, given_strides}) +
        ": stages need tensors without gaps; allowed: " + text_of(std::span(dense).first(given_strides)));
  }
}

/// std::invalid_argument for K and V of a cache with strides that the stage cannot use.
CacheStrides strides_of_cache(const workbook_problem& problem, const workbook_tensor& K, const workbook_tensor& V) {
  const std::array dense{problem.Hkv * problem.page_size * problem.d, problem.page_size * problem.d, problem.d,
                         std::int64_t(1)};
  const auto of = [&](const workbook_tensor& tensor) {
    return std::span(tensor.strides == nullptr ? dense.data() : tensor.strides, dense.size());
  };
  const std::span<const std::int64_t> strides = of(K);
  for (std::size_t i = 0; i < dense.size(); ++i) {
    const bool allowed =
        i == 3 ? strides[i] == 1 : 0 <= strides[i] && strides[i] <= largest_number && strides[i] % 8 == 0;
    if (!allowed)
      throw std::invalid_argument("K.strides = " + text_of(strides) +
                                  ": allowed: multiples of 8 elements from 0 on, and then 1");
  }
  if (!std::ranges::equal(strides, of(V)))
    throw std::invalid_argument("V.strides = " + text_of(of(V)) + ": allowed: K's, " + text_of(strides));
  return {problem.page_size, strides[0], strides[1], strides[2]};
}

/// The additional tensors of a forward call, or of a backward call, which follow those of its table in this order.
enum Extra : std::size_t { sink, starts, dsink, dlse, cache_seqlens = dsink, block_table = dlse };

/// std::invalid_argument for an array that a problem needs and is missing, or that is given and not needed. with()
/// names what decides this.
template <class With>
void require_extra(const std::string& name, const workbook_tensor& tensor, bool needed, const With& with) {
  if (needed != (tensor.data != nullptr))
    throw std::invalid_argument(name + ".data = " + (needed ? "NULL" : "an address") + ": with " + with() +
                                " allowed: " + (needed ? "the address of the array" : "NULL"));
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % sizeof(float) != 0)
    throw std::invalid_argument(name + ".data is not aligned: allowed: a multiple of 4 bytes");
  if (tensor.strides != nullptr && tensor.strides[0] != 1)
    throw std::invalid_argument(name + ".strides = (" + std::to_string(tensor.strides[0]) +
                                "): stages need tensors without gaps; allowed: (1)");
}

bool has_variant(const Description& stage, std::string_view number) {
  return std::ranges::any_of(stage.variants, [&](const auto& variant) { return variant.number == number; });
}

/// The numbers and arrays of a call, as a stage requests them. tensors: nullptr, or those of the pass's table.
class LibraryCall final : public Arguments {
 public:
  LibraryCall(const Description& stage, const workbook_problem& problem, const workbook_tensor* tensors)
      : setting_(setting_of(problem)), table_(tensors_of(stage.pass == "backward")), tensors_(tensors) {
    numbers_.reserve(32);  // allocated once
    for_numbers(setting_, [&](std::string_view name, auto value) { numbers_.push_back({name, double(value)}); });
    if (problem.deterministic != 0 && has_variant(stage, "deterministic")) {
      numbers_.push_back({"deterministic", 1});
    } else if (problem.deterministic != 0 && stage.pass == "backward") {
      throw std::invalid_argument("deterministic = 1: this stage accumulates dQ in no fixed order; allowed: 0");
    }
    if (problem.lse_gradient != 0 && !stage.serves.lse_gradient)
      throw std::invalid_argument("lse_gradient = 1: this stage does not have the gradient of the LSE; allowed: 0");
    if (problem.splits != 0 && !has_variant(stage, "splits"))
      throw std::invalid_argument("splits = " + std::to_string(problem.splits) + ": allowed for this stage: 0");
    numbers_.push_back({"splits", double(problem.splits)});
    const Mask& mask = setting_.mask;
    const bool cached = problem.page_size != 0;
    if (cached) require_range("page_size", problem.page_size, 1, longest_length);
    if (cached) require_range("pages", problem.pages, 1, longest_length);
    if (cached) checked_size("pages, Hkv, page_size, d", {problem.pages, problem.Hkv, problem.page_size, problem.d});
    numbers_.push_back({"requests", double(mask.cache.size())});
    numbers_.push_back({"lse_gradient", double(problem.lse_gradient)});
    numbers_.push_back({"sinks", double(mask.sink.size())});
    numbers_.push_back({"sequences", double(mask.lengths.size())});
    if (tensors == nullptr) return;
    for (std::size_t i = 0; i < table_.size(); ++i)
      require_tensor(table_[i], tensors[i], setting_.shape, cached && table_[i].kind == CallTensor::of_keys);
    const auto of_mask = [&] { return "mask = " + mask.name(); };
    require_extra("sink", extra(sink), !mask.sink.empty(), of_mask);
    require_extra("starts", extra(starts), !mask.lengths.empty(), of_mask);
    if (stage.pass == "backward") {
      require_extra("dsink", extra(dsink), !mask.sink.empty(), of_mask);
      require_extra("dlse", extra(dlse), problem.lse_gradient != 0,
                    [&] { return "lse_gradient = " + std::to_string(problem.lse_gradient); });
    } else {
      const auto of_pages = [&] {
        return "page_size = " + std::to_string(problem.page_size) + ", Nk = " + std::to_string(problem.Nk);
      };
      require_extra("cache_seqlens", extra(cache_seqlens), cached, of_pages);
      const bool may_lack = cached && problem.page_size == problem.Nk && problem.pages >= problem.B;
      require_extra("block_table", extra(block_table), cached && !(may_lack && extra(block_table).data == nullptr),
                    of_pages);
      if (cached) add_cache(strides_of_cache(problem, tensors[1], tensors[2]), problem.pages);
    }
    if (!on_gpu()) read_extras();
  }

  double number(std::string_view name) const override {
    if (const Number* known = find(name)) return known->value;
    throw std::logic_error("the call has no number \"" + std::string(name) + "\"");
  }
  bool has(std::string_view name) const override { return find(name) != nullptr; }
  std::vector<std::string> names() const override { return {}; }  // every stage supports all numbers of this call

 private:
  struct Number {
    std::string_view name;
    double value = 0;
  };
  const workbook_tensor& extra(Extra which) const { return tensors_[table_.size() + which]; }
  void add_cache(const CacheStrides& at, std::int64_t pages) {
    const auto [B, H, Hkv, Nq, Nk, d] = setting_.shape;
    cache_elements_ =
        (pages - 1) * at.page_stride + (Hkv - 1) * at.head_stride + (at.page_size - 1) * at.key_stride + d;
    table_entries_ = extra(block_table).data == nullptr ? 0 : B * ((Nk + at.page_size - 1) / at.page_size);
    pages_ = pages;
    numbers_.push_back({"cache_page_size", double(at.page_size)});
    numbers_.push_back({"page_stride", double(at.page_stride)});
    numbers_.push_back({"head_stride", double(at.head_stride)});
    numbers_.push_back({"key_stride", double(at.key_stride)});
  }
  /// On the simulator, whose tensors are in host memory: copies the sinks, and checks that starts and lengths agree.
  void read_extras() {
    std::copy_n(static_cast<const float*>(extra(sink).data), setting_.mask.sink.size(), setting_.mask.sink.begin());
    check(setting_.mask);
    const auto* start = static_cast<const std::int32_t*>(extra(starts).data);
    std::int64_t first = 0;
    for (std::size_t s = 0; start != nullptr && s <= setting_.mask.lengths.size(); ++s) {
      if (start[s] != first)
        throw std::invalid_argument("starts[" + std::to_string(s) + "] = " + std::to_string(start[s]) +
                                    ": allowed with mask = " + setting_.mask.name() + ": " + std::to_string(first));
      if (s < setting_.mask.lengths.size()) first += setting_.mask.lengths[s];
    }
    std::vector<std::int64_t>& lengths = setting_.mask.cache;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      lengths[b] = static_cast<const std::int32_t*>(extra(cache_seqlens).data)[b];
      require_range(("cache_seqlens[" + std::to_string(b) + "]").c_str(), lengths[b], 0, setting_.shape.Nk);
    }
    const std::int64_t page_size = lengths.empty() ? 1 : integer("cache_page_size");
    const std::int64_t per_request = (setting_.shape.Nk + page_size - 1) / page_size;
    for (std::int64_t i = 0; i < table_entries_; ++i) {
      if (i % per_request * page_size >= lengths[std::size_t(i / per_request)]) continue;  // is not read
      require_range(
          ("block_table[" + std::to_string(i / per_request) + ", " + std::to_string(i % per_request) + "]").c_str(),
          static_cast<const std::int32_t*>(extra(block_table).data)[i], 0, pages_ - 1);
    }
  }
  /// The mask's arrays in host memory, for every backend. On the GPU the sinks are zeros there.
  template <class T>
  static std::span<std::byte> bytes_of(const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {const_cast<std::byte*>(bytes.data()), bytes.size()};
  }
  const Number* find(std::string_view name) const {
    for (const Number& each : numbers_)
      if (each.name == name) return &each;
    return nullptr;
  }
  std::span<std::byte> raw(std::string_view name, std::size_t element_size) const override {
    for (std::size_t i = 0; tensors_ != nullptr && i < table_.size(); ++i) {
      if (table_[i].name != name) continue;
      const bool cached = table_[i].kind == CallTensor::of_keys && cache_elements_ > 0;
      return {static_cast<std::byte*>(tensors_[i].data),
              std::size_t(cached ? cache_elements_ : table_[i].count(setting_.shape)) * element_size};
    }
    if (name == "sink") return bytes_of(setting_.mask.sink);
    if (name == "lengths") return bytes_of(setting_.mask.lengths);
    if (name == "cache") return bytes_of(setting_.mask.cache);
    const std::size_t sinks = setting_.mask.sink.size(), sequences = setting_.mask.lengths.size();
    const auto given_to = [&](Extra which, std::size_t count) -> std::span<std::byte> {
      return {static_cast<std::byte*>(extra(which).data), count * element_size};
    };
    if (name == "given sink") return given_to(sink, sinks);
    if (name == "given starts") return given_to(starts, sequences == 0 ? 0 : sequences + 1);
    if (name == "given cache_lengths") return given_to(cache_seqlens, setting_.mask.cache.size());
    if (name == "given pages") return given_to(block_table, std::size_t(table_entries_));
    if (name == "dsink") return given_to(dsink, sinks);
    if (name == "dlse")
      return given_to(
          dlse, number("lse_gradient") == 0 ? 0 : std::size_t(setting_.shape.B * setting_.shape.H * setting_.shape.Nq));
    throw std::logic_error("the call has no array \"" + std::string(name) + "\"");
  }

  Setting setting_;
  std::vector<Number> numbers_;
  std::span<const CallTensor> table_;
  const workbook_tensor* tensors_;
  std::int64_t cache_elements_ = 0, table_entries_ = 0, pages_ = 0;  ///< of K and of V; of the page table; 0: no cache
};

/// checked: refuses what the stage does not support. Starting the stage checks that too.
std::size_t workspace_for(const Description& stage, const LibraryCall& call, bool checked = true) {
  const int variant = chosen_variant(stage, call);
  const Description& kernels = variant < 0 ? stage : stage.variants[std::size_t(variant)].description;
  if (checked) chosen_sizes(kernels, call);
  return on_gpu() ? workspace_bytes(kernels.extra, call.setting()) : 0;
}

const StageOperations& stage_for(int index, const char* pass) {
  const StageOperations& stage = stage_at(index);
  if (stage.description.pass != pass)
    throw std::invalid_argument("stage = " + std::to_string(index) + ": this is a stage of the " +
                                stage.description.pass + " pass; allowed: a stage of the " + pass + " pass");
  return stage;
}

/// There is only one simulated device: a call locks it. A fork waits for the lock too, so that the child's copy of the
/// simulator is idle.
std::mutex& simulated_device() {
  static std::mutex mutex;
  static const int registered = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });
  if (registered != 0) throw std::bad_alloc();
  return mutex;
}

/// tensors: in the order of the pass's table, followed by Extra.
void run(int index, const char* pass, const workbook_problem* problem, const workbook_tensor* tensors, void* workspace,
         std::size_t bytes, void* stream) {
  require_backend();
  const StageOperations& stage = stage_for(index, pass);
  const LibraryCall call(stage.description, given("problem", problem), tensors);
  if (!on_gpu()) {
    const std::lock_guard lock(simulated_device());
    interrupt(false);
    stage.run(call);
    take_counters();  // otherwise the counters of all launches would accumulate
    return;
  }
  const std::size_t needed = workspace_for(stage.description, call, false);
  if (bytes < needed || (needed > 0 && workspace == nullptr)) {
    workspace_for(stage.description, call);
    throw std::invalid_argument("workspace_bytes = " + std::to_string(workspace == nullptr ? 0 : bytes) +
                                ": allowed: " + std::to_string(needed) + " or more, by workbook_workspace()");
  }
  stage.start(call, workspace, stream);
}

// --- Stages
// -----------------------------------------------------------------------------------------------------------

/// A stage's description as C types.
struct InC {
  explicit InC(const StageOperations& stage) : of(stage), element(name(stage.description.element)) {
    for (const NamedMask& part : mask_parts())
      if (std::ranges::count(of.description.serves.masks, part.mask) > 0) mask_names.push_back(part.name.data());
  }
  workbook_stage stage() const {
    const Description& d = of.description;
    return {.chapter = std::atoi(of.folder.c_str()),
            .folder = of.folder.c_str(),
            .pass = d.pass.c_str(),
            .element = element.c_str(),
            .head_dims = d.head_dims.data(),
            .head_dim_count = int(d.head_dims.size()),
            .masks = mask_names.data(),
            .mask_count = int(mask_names.size()),
            .shared_heads = d.serves.shared_heads,
            .deterministic = d.pass == "forward" || has_variant(d, "deterministic"),
            .compute = d.compute,
            .compute_only = d.compute_only,
            .lse_gradient = d.serves.lse_gradient};
  }
  const StageOperations& of;
  std::string element;
  std::vector<const char*> mask_names;
};

const std::vector<InC>& stages_in_C() {
  static const std::vector<InC> all = [] {
    std::vector<InC> made;
    for (const StageOperations& stage : kernel_stages()) made.emplace_back(stage);
    return made;
  }();
  return all;
}

}  // namespace
}  // namespace workbook::cuda

using namespace workbook::cuda;

const char* workbook_error() {
  return last_error.c_str();
}
int workbook_interface() {
  return WORKBOOK_INTERFACE;
}
const char* workbook_backend() {
  return backend_name();
}
int workbook_stage_count() {
  return int(kernel_stages().size());
}

int workbook_stage_at(int index, workbook_stage* stage) {
  return status_of([&] {
    stage_at(index);
    given("stage", stage);
    *stage = stages_in_C()[std::size_t(index)].stage();
  });
}

int workbook_stage_runs_here(int index) {
  return status_of([&] {
    require_backend();
    const Description& stage = stage_at(index).description;
    require_compute(compute_capability(), stage.compute, stage.compute_only);
  });
}

int workbook_workspace(int index, const workbook_problem* problem, size_t* bytes) {
  return status_of([&] {
    require_backend();
    const Description& stage = stage_at(index).description;
    const std::size_t needed = workspace_for(stage, LibraryCall(stage, given("problem", problem), nullptr));
    given("bytes", bytes);
    *bytes = needed;
  });
}

int workbook_forward(int index, const workbook_problem* problem, const workbook_forward_tensors* tensors,
                     void* workspace, size_t workspace_bytes, void* stream) {
  static_assert(sizeof *tensors == (workbook::forward_tensors.size() + block_table + 1) * sizeof tensors->Q);
  return status_of(
      [&] { run(index, "forward", problem, &given("tensors", tensors).Q, workspace, workspace_bytes, stream); });
}

int workbook_backward(int index, const workbook_problem* problem, const workbook_backward_tensors* tensors,
                      void* workspace, size_t workspace_bytes, void* stream) {
  static_assert(sizeof *tensors == (workbook::backward_tensors.size() + dlse + 1) * sizeof tensors->Q);
  return status_of(
      [&] { run(index, "backward", problem, &given("tensors", tensors).Q, workspace, workspace_bytes, stream); });
}

void workbook_interrupt() {
  interrupt(true);
}

int workbook_synchronize() {
  return status_of([] { synchronize(); });
}
