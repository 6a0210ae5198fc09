// The running program: code addresses as source lines, `__shared__` variables (TLS symbols), and constants. Internal.
// Kernels must be in the executable itself, not in a shared library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/simt/address.hpp"
#include "common/simt/report.hpp"

namespace simt {

/// The load address of the executable. Set once, before any kernel runs.
extern std::uintptr_t program_base;

/// Converts a code address of the executable to 32 bits, and back.
inline std::uint32_t code_of(const void* pc) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pc) - program_base);
}
inline const void* address_of_code(std::uint32_t code) {
  return at_address<const void>(program_base + code);
}

/// Reads the symbol tables, and the address ranges of libraries if others have been loaded; inexpensive after the first
/// call. Call before the functions below, while no kernel runs.
void load_program();

/// The source line of the call that returns to `pc`: the innermost one outside the simulator's own headers.
SourceLine source_line(const void* pc);

/// The name of a function of the executable, without its arguments; "a kernel" if unknown.
std::string function_name(const void* function);

/// The thread-local storage of the executable in the calling thread: its static shared memory.
struct StaticShared {
  std::uintptr_t low;
  std::size_t bytes;
};
StaticShared static_shared_of_this_thread();

/// The `__shared__` variable at an address of the calling thread.
struct StaticVariable {
  std::string name;    ///< empty: no known variable
  std::size_t offset;  ///< bytes from its start
};
StaticVariable static_variable(std::uintptr_t address);
/// Whether all these bytes are in one variable (or no symbols are known).
bool static_variable_holds(std::uintptr_t address, std::size_t size);
/// Whether a byte of thread-local storage is a compiler-generated initialisation guard of a variable of class type.
bool is_initialisation_guard(std::uintptr_t address);
/// Fills the variables that overlap [low, high) with bytes 0xff.
void poison_static_shared(std::uintptr_t low, std::uintptr_t high);

/// Whether the address is in a constant or static variable of the program or of a loaded library: kernels may read it.
bool in_static_storage(std::uintptr_t address);

}  // namespace simt
