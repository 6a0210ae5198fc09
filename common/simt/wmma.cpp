// WMMA: fragments, loads and stores, and mma_sync.
#include <algorithm>
#include <bit>
#include <cstring>

#include "common/simt/address.hpp"
#include "common/simt/detect.hpp"
#include "common/simt/global_memory.hpp"
#include "common/simt/half_codes.hpp"
#include "common/simt/matrix.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/shared_memory.hpp"
#include "common/simt/tensor_math.hpp"
#include "common/simt/tracer.hpp"

namespace simt {

namespace {

void report_unset(const Lane& lane, const char* which, const void* pc) {
  note_finding(lane, finding_of(lane, Mistake::unset_fragment, pc, "uses a fragment",
                                std::string(which) + " has elements that were never loaded, filled or computed",
                                "call fill_fragment with 0, or load the fragment, first"));
}

const char* use_name(const FragmentType& t) {
  return t.use == FragmentType::a ? "matrix_a" : t.use == FragmentType::b ? "matrix_b" : "the accumulator";
}

/// Ends the lane if the pointer or the leading dimension violates WMMA's requirements.
void check_matrix_alignment(Lane& lane, const MatrixInMemory& matrix, bool shared, Access access, const void* pc) {
  const bool bad_pointer = matrix.address % 32 != 0;
  const bool bad_leading = matrix.leading * bytes_of(matrix.type->element) % 16 != 0;
  if (!bad_pointer && !bad_leading) [[likely]]
    return;
  Finding finding = finding_of(lane, Mistake::misaligned, pc, action_of(access));
  const Tensor* tensor = shared ? nullptr : find_tensor(matrix.address);
  if (shared) {
    finding.variable = lane.block->shared->variable(matrix.address);
  } else if (tensor != nullptr) {
    finding.variable = {tensor->name, " (global)"};
  }
  finding.what = bad_pointer ? "WMMA needs a pointer that is a multiple of 32 bytes"
                             : "WMMA needs a leading dimension that is a multiple of 16 bytes";
  finding.advice = "pad rows by a multiple of 8 halves or 4 floats, and start tiles at multiples of 16 elements";
  refuse(lane, std::move(finding));
}

/// An accumulator: each lane accesses its own elements.
Tensor* check_accumulator(Lane& lane, const MatrixInMemory& matrix, bool shared, Access access, const void* pc) {
  Tensor* tensor = nullptr;
  const MachineLayout& layout = layout_of(*matrix.type);
  const int pieces = matrix.pieces();
  const unsigned bytes = matrix.piece_bytes();
  for (int piece = 0; piece < pieces; ++piece) {
    const std::uint64_t address = matrix.piece_address(layout, lane.index, piece);
    if (shared) {
      lane.block->shared->check(lane, address, bytes, access, lane.bit, pc);
    } else {
      tensor = check_global(lane, address, bytes, access, pc, tensor);
    }
  }
  return tensor;
}

/// An operand: its rows are loaded for all lanes together; each lane checks some of their 16-byte chunks.
Tensor* check_operand(Lane& lane, const MatrixInMemory& matrix, bool shared, Access access, const void* pc) {
  Tensor* tensor = nullptr;
  const int log_chunks = std::countr_zero(unsigned(matrix.line_bytes() / 16)), chunks = matrix.lines() << log_chunks;
  for (int chunk = lane.index; chunk < chunks; chunk += kWarpSize) {
    const std::uint64_t address =
        matrix.line(chunk >> log_chunks) + (chunk & ((1 << log_chunks) - 1)) * std::uint64_t(16);
    if (shared) {
      lane.block->shared->check(lane, address, 16, access, ~0u, pc);
    } else {
      tensor = check_global(lane, address, 16, access, pc, tensor);
    }
  }
  if (!shared && tensor == nullptr) tensor = check_global(lane, matrix.address, 16, access, pc);
  return tensor;
}

/// Whether this lane has checked the same operand at the same clock; records that it has.
bool checked_before(Lane& lane, const MatrixInMemory& matrix) {
  Warp::CheckedMatrix& entry = lane.warp->checked[matrix.address / 32 % 16];
  const bool same = entry.address == matrix.address && entry.clock == lane.block->clock && entry.type == matrix.type &&
                    entry.leading == matrix.leading && entry.row_major == matrix.row_major;
  if (!same) entry = {matrix.address, matrix.type, matrix.leading, lane.block->clock, 0, matrix.row_major};
  const bool before = entry.lanes & lane.bit;
  entry.lanes |= lane.bit;
  return before;
}

/// Checks the running lane's part of a matrix access, and adds it to the warp's records.
void observe_matrix(const MatrixInMemory& matrix, bool writes, const void* pc) {
  Lane* lane = observed;
  if (lane == nullptr) return;
  const Access access = writes ? Access::matrix_write : Access::matrix_read;
  const bool shared = lane->block->shared->contains(matrix.address);
  const bool operand = matrix.type->use != FragmentType::accumulator;
  Tensor* tensor = nullptr;
  if (!(shared && operand && checked_before(*lane, matrix))) {
    check_matrix_alignment(*lane, matrix, shared, access, pc);
    if (shared) {
      const std::uint64_t last = matrix.line(matrix.lines() - 1) + matrix.line_bytes() - 1;
      lane->block->shared->check_same_member(*lane, matrix.address, last, access, pc);
    }
    tensor = operand ? check_operand(*lane, matrix, shared, access, pc)
                     : check_accumulator(*lane, matrix, shared, access, pc);
  }
  if (!shared && tensor == nullptr) return;  // constants
  Record& record = lane->warp->recorder.add(lane->position, lane->index, pc, matrix.address, 0, access,
                                            shared ? Space::shared : Space::global);
  if (record.type != nullptr && (record.leading != matrix.leading || record.type != matrix.type)) [[unlikely]] {
    Finding finding = finding_of(*lane, Mistake::divergent_collective, pc, action_of(access),
                                 "the lanes of the warp pass different leading dimensions or fragments",
                                 "all 32 lanes must pass the same arguments");
    note_finding(*lane, std::move(finding));
  }
  record.tensor = tensor;
  record.type = matrix.type;
  record.leading = matrix.leading;
  record.row_major = matrix.row_major;
  if (lane->warp->recorder.far_ahead(lane->position)) [[unlikely]]
    pause_for_counting();
}

void observe_fragment(const void* x, const FragmentType& type, Access access, const void* pc) {
  observe_registers(x, std::size_t(type.elements) * unsigned(bytes_of(type.element)), access, pc);
}

/// CUDA does not specify the index of an element within a lane's accumulator. With a shuffled order of lanes, the seed
/// permutes the indices: element e ^ permutation_of() is stored at index e. The value is even, so that pairs stay
/// together.
int permutation_of(const Block& block) {
  const Options& options = block.launch->options;
  return options.order == Order::shuffled ? int(options.seed % 4) * 2 : 0;
}

/// Copies between x[] of an accumulator and memory.
template <class T, bool kStore>
void move_accumulator(T* x, const MatrixInMemory& matrix, const Lane& lane) {
  const int count = matrix.type->elements, step = matrix.paired() ? 2 : 1, permutation = permutation_of(*lane.block);
  const Place* places = layout_of(*matrix.type).at[lane.index];
  for (int e = 0; e < count; e += step) {
    auto* there = at_address<T>(matrix.element(places[e ^ permutation]));
    for (int i = 0; i < step; ++i) {
      if constexpr (kStore) {
        there[i] = x[e + i];
      } else {
        x[e + i] = there[i];
      }
    }
  }
}

/// Loads x[] of an operand: one block of `count` elements of the matrix, counted along its rows. All sizes are powers
/// of two.
template <class T>
void load_operand(T* x, const FragmentType& type, const T* memory, std::size_t leading, bool row_major, int lane) {
  const int count = type.elements, columns = columns_of(type), log_columns = std::countr_zero(unsigned(columns));
  const int blocks = rows_of(type) * columns >> std::countr_zero(unsigned(count));
  const int first = (lane & (blocks - 1)) * count;
  for (int begin = first; begin < first + count;) {  // a block may span rows
    const int row = begin >> log_columns, column = begin & (columns - 1);
    const int run = std::min(first + count - begin, columns - column);
    if (row_major) {
      std::memcpy(x, memory + row * leading + column, run * sizeof(T));
    } else {
      const T* from = memory + column * leading + row;
      for (int i = 0; i < run; ++i) x[i] = from[i * leading];
    }
    x += run;
    begin += run;
  }
}

// --- mma_sync --------------------------------------------------------------------------------------------------------

constexpr int kMostElements = 32 * 16;  // of a or b: 32x16, 16x32
constexpr int kMostResults = 256;       // of c

/// The whole operand a or b from the lanes' fragments, row-major, as floats. True if some elements are uninitialised.
template <class Pointer>
bool gather(const Warp& warp, const FragmentType& type, Pointer pointer, float* values) {
  const int total = rows_of(type) * columns_of(type);
  alignas(64) std::byte raw[kMostElements * 4];
  const int bytes = type.elements * bytes_of(type.element), lanes = total / type.elements;
  switch (bytes) {  // constant sizes avoid a call of memcpy
    case 32:
      for (std::ptrdiff_t lane = 0; lane < lanes; ++lane)
        std::memcpy(raw + lane * 32, pointer(warp.operands[lane]), 32);
      break;
    case 16:
      for (std::ptrdiff_t lane = 0; lane < lanes; ++lane)
        std::memcpy(raw + lane * 16, pointer(warp.operands[lane]), 16);
      break;
    default:
      for (std::ptrdiff_t lane = 0; lane < lanes; ++lane)
        std::memcpy(raw + lane * bytes, pointer(warp.operands[lane]), bytes);
  }
  widen(raw, type.element, values, total);
  return any_unset(raw, total, type.element);
}

/// For each element of each lane's accumulator, lane after lane: its row-major index in the matrix.
struct Indices {
  std::uint16_t at[kMostResults];
  explicit Indices(const FragmentType& type) {
    const MachineLayout& layout = layout_of(type);
    for (int i = 0; i < kMostResults; ++i) {
      const Place p = layout.at[i / 8][i % 8];
      at[i] = static_cast<std::uint16_t>(p.row * type.n + p.column);
    }
  }
};

const std::uint16_t* indices_of(const FragmentType& type) {
  static const Indices square({FragmentType::accumulator, ElementType::float32, 16, 16, 16, 8});
  static const Indices tall({FragmentType::accumulator, ElementType::float32, 32, 8, 16, 8});
  static const Indices wide({FragmentType::accumulator, ElementType::float32, 8, 32, 16, 8});
  return (type.m == 16 ? square : type.m == 32 ? tall : wide).at;
}

/// The accumulators of all lanes, one after another, as floats.
bool gather_accumulator(const Warp& warp, const FragmentType& type, float* c) {
  if (type.element == ElementType::float32) {
    for (std::ptrdiff_t lane = 0; lane < kWarpSize; ++lane) std::memcpy(c + lane * 8, warp.operands[lane].c, 32);
    return any_unset(c, kMostResults, ElementType::float32);
  }
  std::uint16_t codes[kMostResults];
  for (std::ptrdiff_t lane = 0; lane < kWarpSize; ++lane) std::memcpy(codes + lane * 8, warp.operands[lane].c, 16);
  widen(codes, ElementType::half, c, kMostResults);
  return any_unset(codes, kMostResults, ElementType::half);
}

void scatter_accumulator(const Warp& warp, const FragmentType& type, const float* d) {
  for (std::ptrdiff_t lane = 0; lane < kWarpSize; ++lane) {
    if (type.element == ElementType::float32) {
      std::memcpy(warp.operands[lane].d, d + lane * 8, 32);
    } else {
      auto* codes = static_cast<std::uint16_t*>(warp.operands[lane].d);
      for (int e = 0; e < 8; ++e) codes[e] = float_to_half(d[lane * 8 + e]);
    }
  }
}

/// Converts between the order of the lanes and row-major order. Adjacent elements of a row stay together, except for
/// 8x32, which is stored as its transpose.
template <bool kToRows>
void reorder(const FragmentType& type, int permutation, float* lanes, float* rows) {
  const std::uint16_t* at = indices_of(type);
  if (type.m == 8) {
    for (int i = 0; i < kMostResults; ++i) {
      float &in_row = rows[at[i ^ permutation]], &in_lane = lanes[i];
      (kToRows ? in_row : in_lane) = kToRows ? in_lane : in_row;
    }
    return;
  }
  for (int i = 0; i < kMostResults; i += 2) {
    float *in_row = rows + at[i ^ permutation], *in_lane = lanes + i;
    std::memcpy(kToRows ? in_row : in_lane, kToRows ? in_lane : in_row, 8);
  }
}

}  // namespace

void multiply_fragments(Warp& warp) {
  const Warp::Operands& first = warp.operands[0];
  alignas(64) float a[kMostElements], b[kMostElements], c[kMostResults], lanes[kMostResults];
  const bool unset_a = gather(
      warp, *first.type_a, [](const Warp::Operands& o) { return o.a; }, a);
  const bool unset_b = gather(
      warp, *first.type_b, [](const Warp::Operands& o) { return o.b; }, b);
  const bool unset_c = gather_accumulator(warp, *first.type_c, lanes);
  if ((unset_a || unset_b || unset_c) && !warp.block->damaged) [[unlikely]] {
    report_unset(warp.lanes[0], unset_a ? "matrix_a" : unset_b ? "matrix_b" : "the accumulator", first.pc);
  }
  const bool unset = unset_a || unset_b || unset_c;
  const int permutation = permutation_of(*warp.block);
  reorder<true>(*first.type_c, permutation, lanes, c);
  multiply_matrices(first.type_d->m, first.type_d->n, first.type_d->k, a, b, c);
  if (unset) [[unlikely]]
    make_nans_ordinary(c, kMostResults);
  reorder<false>(*first.type_d, permutation, lanes, c);
  scatter_accumulator(warp, *first.type_d, lanes);
  count_at(*warp.block, first.pc, [&warp, &counters = warp.block->counters] {
    ++counters.multiply_calls;
    counters.tensor_instructions += 2;  // all shapes here are two HMMA
    counters.multiplies_beside_copies += copies_in_flight(warp);
  });
}

void check_matrix_lanes(const Warp& warp, const Record& record) {
  if (warp.block->damaged) return;
  const int first = std::countr_zero(record.mask);
  bool same = true;
  for (int lane = 0; lane < kWarpSize; ++lane) {
    if (record.mask >> lane & 1) same &= record.address[lane] == record.address[first];
  }
  if (same && record.mask == ~0u) return;
  Finding finding = finding_of(warp.lanes[first], Mistake::divergent_collective, record.pc, action_of(record.access),
                               same ? "only some lanes of the warp execute this WMMA access"
                                    : "the lanes of the warp pass different pointers to this WMMA access");
  finding.side.lanes = record.mask;
  finding.advice =
      "all 32 lanes must execute it with the same arguments: pointers may depend on the warp, not on the lane";
  note_finding(warp.lanes[first], std::move(finding));
}

// --- What kernels call -----------------------------------------------------------------------------------------------

void matrix_load(void* x, const FragmentType& type, const void* memory, unsigned leading, bool row_major) {
  const MatrixInMemory matrix{reinterpret_cast<std::uint64_t>(memory), leading, row_major, &type};
  const void* pc = __builtin_return_address(0);
  observe_matrix(matrix, false, pc);
  observe_fragment(x, type, Access::write, pc);
  const int lane = running->index;
  const bool two_bytes = bytes_of(type.element) == 2;
  if (type.use == FragmentType::accumulator) {
    if (two_bytes) return move_accumulator<std::uint16_t, false>(static_cast<std::uint16_t*>(x), matrix, *running);
    return move_accumulator<std::uint32_t, false>(static_cast<std::uint32_t*>(x), matrix, *running);
  }
  if (two_bytes) {
    return load_operand(static_cast<std::uint16_t*>(x), type, static_cast<const std::uint16_t*>(memory), leading,
                        row_major, lane);
  }
  load_operand(static_cast<std::uint32_t*>(x), type, static_cast<const std::uint32_t*>(memory), leading, row_major,
               lane);
}

void matrix_store(void* memory, const FragmentType& type, const void* x, unsigned leading, bool row_major) {
  const void* pc = __builtin_return_address(0);
  const MatrixInMemory matrix{reinterpret_cast<std::uint64_t>(memory), leading, row_major, &type};
  observe_matrix(matrix, true, pc);
  observe_fragment(x, type, Access::read, pc);
  if (any_unset(x, type.elements, type.element)) [[unlikely]] {
    if (!running->block->damaged) report_unset(*running, use_name(type), pc);
  }
  void* values = const_cast<void*>(x);  // read only
  if (bytes_of(type.element) == 2)
    return move_accumulator<std::uint16_t, true>(static_cast<std::uint16_t*>(values), matrix, *running);
  move_accumulator<std::uint32_t, true>(static_cast<std::uint32_t*>(values), matrix, *running);
}

void matrix_multiply(void* d, const FragmentType& type_d, const void* a, const FragmentType& type_a, const void* b,
                     const FragmentType& type_b, const void* c, const FragmentType& type_c) {
  Lane& lane = *running;
  const void* pc = __builtin_return_address(0);
  observe_fragment(a, type_a, Access::read, pc);
  observe_fragment(b, type_b, Access::read, pc);
  observe_fragment(c, type_c, Access::read, pc);
  observe_fragment(d, type_d, Access::write, pc);
  lane.warp->operands[lane.index] = {d, a, b, c, &type_d, &type_a, &type_b, &type_c, pc};
  rendezvous(~0u, Collective::multiply, pc);
}

}  // namespace simt
