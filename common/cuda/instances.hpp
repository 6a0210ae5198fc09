// What a kernel file is compiled with in two kinds of builds that the book's own gates make, for the simulator. Most of
// a compiler's time goes into kernels of sizes that the one test of a wrong answer never asks for, or asks for after it
// has found out.
//
//   -DWORKBOOK_INSTANCES       everything is compiled, and every choice of a head dimension is noted, until a kernel
//                              has run with a second one: that ends the process
//   -DWORKBOOK_INSTANCES=1,2   only the choices with these numbers are compiled; any other is noted as left out, and
//                              ends the process
//
// A choice is a call of with_head_dim with one d, whose work knows the tiles too. It is noted in the file that
// $WORKBOOK_INSTANCES_FILE names, a line each: its number, the file of the call, then "left out" if it was.
// (gates/instances.hpp)
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <type_traits>

#include "common/simt/simulator.hpp"

namespace workbook::cuda {
namespace instances {

// The macro's numbers; without any, the 1 that the compiler gives it.
inline constexpr std::uint64_t kOnly[] = {WORKBOOK_INSTANCES};
inline constexpr bool kAll = std::size(kOnly) == 1 && kOnly[0] == 1;

/// A number for the call of with_head_dim with this work and d: the same in every build of the chapter.
template <int d, class Work>
constexpr std::uint64_t number_of() {
  std::uint64_t hash = 14695981039346656037u;
  for (const char c : std::string_view(__PRETTY_FUNCTION__)) hash = (hash ^ std::uint8_t(c)) * 1099511628211u;
  return hash;
}

constexpr bool is_compiled(std::uint64_t number) {
  for (const std::uint64_t only : kOnly)
    if (only == number) return true;
  return kAll;
}

inline void note(std::uint64_t number, std::string_view source, const char* what = "") {
  const char* const name = std::getenv("WORKBOOK_INSTANCES_FILE");
  std::FILE* const file = name == nullptr ? nullptr : std::fopen(name, "a");
  if (file == nullptr) return;
  source.remove_prefix(source.rfind('/') + 1);
  std::fprintf(file, "%llu %s%s\n", static_cast<unsigned long long>(number), source.data(), what);
  std::fclose(file);
}

/// A choice that is noted when its work is done.
struct Noted {
  std::uint64_t number;
  int d;
  const char* file;
  std::size_t launches_before = simt::launches().size();
  static inline int d_of_first_launch = 0;

  ~Noted() {
    if (simt::launches().size() != launches_before) {
      if (d_of_first_launch == 0) d_of_first_launch = d;
      if (d_of_first_launch != d) std::_Exit(0);
    }
    note(number, file);
  }
};

/// What work gives. (Asked of a d that is compiled where there is one: the others are then not even looked at.)
template <class Work>
constexpr int any_d() {
  return is_compiled(number_of<32, Work>()) ? 32 : is_compiled(number_of<64, Work>()) ? 64 : 128;
}
template <class Work>
using Result = std::invoke_result_t<Work&, std::integral_constant<int, any_d<Work>()>>;

template <int d, class Work>
Result<Work> call(Work& work, const char* file) {
  constexpr std::uint64_t number = number_of<d, Work>();
  if constexpr (!is_compiled(number)) {
    note(number, file, " left out");
    std::abort();
  } else if constexpr (kAll) {
    const Noted noted{number, d, file};
    return work(std::integral_constant<int, d>());
  } else {
    return work(std::integral_constant<int, d>());
  }
}

}  // namespace instances

template <class Work>
auto with_head_dim(std::int64_t d, Work work, const char* file = __builtin_FILE()) -> instances::Result<Work> {
  if (d == 32) return instances::call<32>(work, file);
  if (d == 64) return instances::call<64>(work, file);
  if (d == 128) return instances::call<128>(work, file);
  refuse_head_dim(d);
}

}  // namespace workbook::cuda
