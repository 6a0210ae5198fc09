// What the running program is made of: places in its code as source lines, its `__shared__` variables (TLS symbols),
// its constants. Internal. Kernels have to be in the executable itself, not in a shared library.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "common/simt/address.hpp"
#include "common/simt/report.hpp"

namespace simt {

/// Where the executable lies. Set once, before any kernel runs.
extern std::uintptr_t program_base;

/// A place in the executable's code in 32 bits, and back.
inline std::uint32_t code_of(const void* pc) {
  return static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(pc) - program_base);
}
inline const void* address_of_code(std::uint32_t code) {
  return at_address<const void>(program_base + code);
}

/// Reads the symbols; cheap when it has been done. Call before anything else here.
void load_program();

/// The line of the call that returns to `pc`: the first one that is not in the simulator's own headers.
SourceLine source_line(const void* pc);

/// The name of a function of the executable, without its arguments; "a kernel" if it is not known.
std::string function_name(const void* function);

/// The executable's thread-local storage in the calling thread: its static shared memory.
struct StaticShared {
  std::uintptr_t low;
  std::size_t bytes;
};
StaticShared static_shared_of_this_thread();

/// The `__shared__` variable at an address of the calling thread.
struct StaticVariable {
  std::string name;    ///< empty: none is known there
  std::size_t offset;  ///< bytes from its beginning
};
StaticVariable static_variable(std::uintptr_t address);
/// Whether one variable holds all these bytes (or no symbols are known).
bool static_variable_holds(std::uintptr_t address, std::size_t size);
/// Whether a byte of thread-local storage is the compiler's own: for a variable of a class with constructors it notes
/// whether it was initialised, even where there is nothing to do.
bool is_initialisation_guard(std::uintptr_t address);
/// Fills the variables that overlap [low, high) with bytes 0xff.
void poison_static_shared(std::uintptr_t low, std::uintptr_t high);

/// Constants and static variables of any loaded library or of the program: legal to read from a kernel.
bool in_static_storage(std::uintptr_t address);

}  // namespace simt
