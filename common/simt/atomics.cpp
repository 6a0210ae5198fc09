// Atomic operations. They use the host's atomics: other blocks run on other operating-system threads.
#include <bit>
#include <cstring>

#include "common/simt/detect.hpp"
#include "common/simt/half_codes.hpp"
#include "common/simt/scheduler.hpp"
#include "common/simt/visibility.hpp"

namespace simt {

void observe_atomic(Lane& lane, std::uintptr_t address, unsigned size, const void* pc);  // observe.cpp

namespace {

template <class Integer>
Integer on_integers(AtomicOperation operation, Integer old, Integer operand, Integer compare) {
  switch (operation) {
    case AtomicOperation::add:
      return static_cast<Integer>(std::uint64_t(old) + std::uint64_t(operand));
    case AtomicOperation::maximum:
      return old < operand ? operand : old;
    case AtomicOperation::minimum:
      return operand < old ? operand : old;
    case AtomicOperation::exchange:
      return operand;
    case AtomicOperation::compare_and_swap:
      return old == compare ? operand : old;
    case AtomicOperation::bit_and:
      return old & operand;
    case AtomicOperation::bit_or:
      return old | operand;
    case AtomicOperation::bit_xor:
      return old ^ operand;
    case AtomicOperation::increment:
      return old >= operand ? 0 : old + 1;
  }
  return old;
}

std::uint32_t add_codes(std::uint32_t a, std::uint32_t b, float (*widen)(std::uint16_t),
                        std::uint16_t (*narrow)(float)) {
  const auto sum = [&](int shift) {
    const auto x = static_cast<std::uint16_t>(a >> shift), y = static_cast<std::uint16_t>(b >> shift);
    return std::uint32_t(narrow(widen(x) + widen(y)));
  };
  return sum(0) | sum(16) << 16;
}

/// The new value; all values as bits.
std::uint64_t combine(AtomicOperation operation, AtomicType type, std::uint64_t old, std::uint64_t operand,
                      std::uint64_t compare) {
  if (operation == AtomicOperation::exchange) return operand;
  switch (type) {
    case AtomicType::int32:
      return static_cast<std::uint32_t>(
          on_integers(operation, std::int32_t(old), std::int32_t(operand), std::int32_t(compare)));
    case AtomicType::uint32:
      return on_integers(operation, std::uint32_t(old), std::uint32_t(operand), std::uint32_t(compare));
    case AtomicType::uint64:
      return on_integers(operation, old, operand, compare);
    case AtomicType::float32:
      return std::bit_cast<std::uint32_t>(std::bit_cast<float>(std::uint32_t(old)) +
                                          std::bit_cast<float>(std::uint32_t(operand)));
    case AtomicType::float64:
      return std::bit_cast<std::uint64_t>(std::bit_cast<double>(old) + std::bit_cast<double>(operand));
    case AtomicType::half:
    case AtomicType::half2:
      return add_codes(std::uint32_t(old), std::uint32_t(operand), half_to_float, float_to_half);
    case AtomicType::bfloat16:
    case AtomicType::bfloat162:
      return add_codes(std::uint32_t(old), std::uint32_t(operand), bfloat16_to_float, float_to_bfloat16);
  }
  return old;
}

template <class Word>
std::uint64_t exchange_loop(AtomicOperation operation, AtomicType type, void* address, std::uint64_t operand,
                            std::uint64_t compare) {
  auto* word = static_cast<Word*>(address);
  Word old = __atomic_load_n(word, __ATOMIC_RELAXED);
  while (!__atomic_compare_exchange_n(word, &old, static_cast<Word>(combine(operation, type, old, operand, compare)),
                                      true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return old;
}

}  // namespace

std::uint64_t atomic(AtomicOperation operation, AtomicType type, void* address, std::uint64_t operand,
                     std::uint64_t compare) {
  const bool two_bytes = type == AtomicType::half || type == AtomicType::bfloat16;
  const bool eight_bytes = type == AtomicType::uint64 || type == AtomicType::float64;
  const bool integer = type == AtomicType::int32 || type == AtomicType::uint32 || type == AtomicType::uint64;
  if (integer && running != nullptr) {
    ++running->block->launch->changes;
    running->block->polling = {};
    note_signal(*running, reinterpret_cast<std::uintptr_t>(address));
    note_signal_seen(*running->block, reinterpret_cast<std::uintptr_t>(address));
  }
  if (observed != nullptr) {
    observe_atomic(*observed, reinterpret_cast<std::uintptr_t>(address),
                   two_bytes     ? 2
                   : eight_bytes ? 8
                                 : 4,
                   __builtin_return_address(0));
  }
  if (two_bytes) return exchange_loop<std::uint16_t>(operation, type, address, operand, compare);
  if (eight_bytes) return exchange_loop<std::uint64_t>(operation, type, address, operand, compare);
  return exchange_loop<std::uint32_t>(operation, type, address, operand, compare);
}

}  // namespace simt
