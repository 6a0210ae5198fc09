#include "common/judge/object.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string_view>

#include "common/book/files.hpp"
#include "common/book/text.hpp"
#include "common/simt/names.hpp"

namespace workbook::judge {
namespace {

using book::any_word, book::begins_with, book::is_one_of;

/// The sections and symbols of an object file. std::runtime_error if the file cannot be read as one.
class Object {
 public:
  explicit Object(std::string bytes) : bytes_(std::move(bytes)) {
    const auto header = at<Elf64_Ehdr>(0);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
        (header.e_type != ET_REL && header.e_type != ET_DYN) || header.e_shentsize != sizeof(Elf64_Shdr))
      throw std::runtime_error("it is not an object file");
    std::size_t count = header.e_shnum;
    // If the number of sections does not fit into the header, the first section holds it.
    if (count == 0) count = at<Elf64_Shdr>(header.e_shoff).sh_size;
    if (count > bytes_.size()) throw std::runtime_error("its section table is damaged");
    for (std::size_t i = 0; i < count; ++i) sections.push_back(at<Elf64_Shdr>(header.e_shoff + i * sizeof(Elf64_Shdr)));
    std::size_t names = header.e_shstrndx;
    if (names == SHN_XINDEX) names = sections.at(0).sh_link;
    for (const Elf64_Shdr& section : sections) section_names.push_back(text(sections.at(names), section.sh_name));
    for (const Elf64_Shdr& section : sections)
      if (section.sh_type == (header.e_type == ET_REL ? SHT_SYMTAB : SHT_DYNSYM)) read_symbols(section);
  }

  struct Symbol {
    std::string name;
    unsigned char binding, type;
    std::size_t section;  ///< its index; 0: undefined
    std::uint64_t value;  ///< offset in the section
    std::uint64_t size;
  };
  std::vector<Elf64_Shdr> sections;
  std::vector<std::string> section_names;
  std::vector<Symbol> symbols;

  template <class T>
  T at(std::uint64_t offset) const {
    if (offset > bytes_.size() || bytes_.size() - offset < sizeof(T)) throw std::runtime_error("it is truncated");
    T value;
    std::memcpy(&value, bytes_.data() + offset, sizeof value);
    return value;
  }

 private:
  std::string text(const Elf64_Shdr& table, std::uint64_t offset) const {
    if (table.sh_offset + offset >= bytes_.size()) throw std::runtime_error("the offset of a name is outside the file");
    return bytes_.c_str() + table.sh_offset + offset;
  }
  void read_symbols(const Elf64_Shdr& table) {
    for (std::uint64_t i = 0; i < table.sh_size / sizeof(Elf64_Sym); ++i) {
      const auto entry = at<Elf64_Sym>(table.sh_offset + i * sizeof(Elf64_Sym));
      symbols.push_back(
          {text(sections.at(table.sh_link), entry.st_name), static_cast<unsigned char>(ELF64_ST_BIND(entry.st_info)),
           static_cast<unsigned char>(ELF64_ST_TYPE(entry.st_info)), entry.st_shndx, entry.st_value, entry.st_size});
    }
  }

  std::string bytes_;
};

std::string demangled(const std::string& name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}
std::string readable(const std::string& name) {
  const std::string text = demangled(name);
  return text.size() > 120 ? text.substr(0, 120) + "…" : text;
}

/// A mangled name without the prefixes of virtual tables, type information and function-local statics. It begins with
/// the entity's own name. Empty for a name that is not mangled.
std::string_view entity(std::string_view name) {
  if (!name.starts_with("_Z")) return {};
  name.remove_prefix(2);
  for (const std::string_view prefix : {"TV", "TI", "TS", "TT", "GV", "GR", "GT"}) {
    if (!name.starts_with(prefix)) continue;
    name.remove_prefix(2);
    break;
  }
  while (name.starts_with("Z")) name.remove_prefix(1);
  if (name.starts_with("N")) name.remove_prefix(1);
  while (!name.empty() && (name[0] == 'K' || name[0] == 'V' || name[0] == 'R' || name[0] == 'O')) name.remove_prefix(1);
  return name;
}

/// "4ch02…": a name in the namespace of a chapter.
bool is_chapters(std::string_view name) {
  const std::string_view own = entity(name);
  return own.size() > 5 && own.starts_with("4ch") && own.find_first_not_of("0123456789", 3) > 4;
}

/// A name of the C++ standard library, recognised by its mangled form.
bool is_standard(std::string_view name) {
  // St: std; Sa, Ss, …: its abbreviations; N: a nested name.
  return begins_with("St Sa Sb Ss Si So Sd 9__gnu_cxx 10__cxxabiv1 NSt NKSt Li", entity(name));
}

/// A name in the namespaces of the book and its simulator.
bool is_of_the_book(std::string_view name) {
  return begins_with("8workbook 4simt 6nvcuda", entity(name));
}

/// Types and functions of the book's headers that are compiled into every answer that uses them.
bool is_shared_of_the_book(std::string_view name) {
  constexpr std::string_view own =
      R"(8workbook6Matrix 8workbook4headI 8workbook13OutsideMatrix 8workbook4Todo 8workbook10InputError 8workbook4half
      8workbook5Shape 8workbook12visible_keys 8workbook4cuda7Refused 8workbook4cuda6launchI 8workbook4cuda5Error
      8workbook4cuda13open_exercise)";
  constexpr std::string_view of_kernels =
      R"(8workbook4cuda13with_head_dim 8workbook4cuda10with_sizes 6nvcuda 4simt6launchI 4simt13shared_struct
      4simt6detail 8workbook4cuda14dynamic_shared 4simt11FragmentType 4simt16register_of_pair 8workbook4cuda7grid_of)";
  return begins_with(own, entity(name)) || begins_with(of_kernels, entity(name));
}

/// An inline function of the headers that kernels include: in the simulator's namespace or the book's, or a CUDA
/// function. The optimiser decides which of them get a symbol.
bool is_of_kernel_headers(std::string_view name) {
  if (entity(name).empty()) return false;
  if (begins_with(simt::kKernelScopes, entity(name))) return true;
  name.remove_prefix(2);  // in a name without a namespace, only its length precedes it
  const std::size_t digits = name.find_first_not_of("0123456789");
  return digits != 0 && digits != std::string_view::npos && begins_with(simt::kCudaFunctions, name.substr(digits));
}

/// What kernels, launches and the host code of kernel files call in the simulator.
bool is_kernels_own(std::string_view name) {
  const std::string_view scoped = entity(name);
  const auto is_in = [&](std::string_view scope, auto... names) {
    return scoped.starts_with(scope) && (begins_with(names, scoped.substr(scope.size())) || ...);
  };
  return is_in("4simt", simt::kCalledByKernels, simt::kCalledByHosts) ||
         is_in("8workbook4cuda", simt::kCalledByLaunches, simt::kMemoryOfHosts) ||
         is_in("8workbook4nccl", simt::kRanks) || is_in("", simt::kNccl);
}

/// The functions of the C library that a chapter's code may need: memory, strings, numbers, sorting, printing, time.
/// Functions that request pages, files, processes or threads from the system are excluded; in kernels also those that
/// read or write memory where the simulator does not observe it, or keep a state. (It observes memcpy, memmove and
/// memset.)
bool is_of_c(std::string_view name, bool kernels) {
  constexpr std::string_view exact =
      R"(_GLOBAL_OFFSET_TABLE_ __libc_single_threaded __dso_handle __stack_chk_fail __assert_fail __errno_location
      __cxa_atexit __ctype_b_loc __ctype_tolower_loc __ctype_toupper_loc tolower toupper stdout stderr abort exit
      getenv clock time difftime qsort bsearch abs labs llabs div ldiv rand srand rand_r malloc calloc realloc free
      aligned_alloc posix_memalign asprintf vasprintf bcmp fflush printf fprintf
      sprintf snprintf vprintf vfprintf vsprintf vsnprintf puts putchar putc fputs fputc fwrite clock_gettime)";
  constexpr std::string_view beginnings = "mem str is ato __isoc23_str", in_kernels = "memcpy memmove memset strlen is",
                             not_in_kernels =
                                 "qsort bsearch asprintf vasprintf sprintf snprintf vsprintf vsnprintf "
                                 "printf fprintf vprintf vfprintf bcmp rand srand rand_r";
  // If the compiler defines _FORTIFY_SOURCE by default, as on Ubuntu, printf is __printf_chk.
  if (name.starts_with("__") && name.ends_with("_chk") && !(kernels && name.starts_with("__mem")))
    return is_of_c(name.substr(2, name.size() - 6), kernels);
  if (kernels && is_one_of(not_in_kernels, name)) return false;
  return is_one_of(exact, name) || (begins_with(kernels ? in_kernels : beginnings, name) && name != "memfd_create");
}

/// The library of this program that defines a name: "libm.so.6"; empty: none. Each library is queried separately,
/// because a program that uses a library's data has a copy of it.
std::string library_of(const std::string& name) {
  for (const char* library : {"libgcc_s.so.1", "libstdc++.so.6", "libm.so.6", "libc.so.6"}) {
    void* const handle = ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;
    void* const address = ::dlsym(handle, name.c_str());  // may be found in a dependency of the library
    Dl_info info{};
    const bool there = address != nullptr && ::dladdr(address, &info) != 0 && info.dli_fname != nullptr &&
                       std::filesystem::path(info.dli_fname).filename() == library;
    ::dlclose(handle);
    if (there) return library;
  }
  return "";
}

/// A mathematical function that accesses no memory, or that the simulator observes.
bool is_observed_function(std::string_view name) {
  if (begins_with("frexpl modfl sincosl", name)) return false;         // not observed
  const std::string_view of_double = name.substr(0, name.size() - 1);  // if it is for float or long double
  return is_one_of(simt::kObserved, name) ||
         ((name.ends_with('f') || name.ends_with('l')) && is_one_of(simt::kObserved, of_double));
}

/// The compiler's runtime libraries and the mathematical functions, except for is_refused_of_library. In kernels only
/// functions that keep no state and access no memory.
bool is_of_compiler(const std::string& name, bool kernels) {
  const std::string library = library_of(name);
  constexpr std::string_view own = "libgcc_s. libstdc++. libm.", states = "__cxa_rethrow __cxa_current_exception_type";
  if (!begins_with(own, library) || name.starts_with("fe")) return false;  // fesetround, feenableexcept, …
  return !kernels || (library.starts_with("libm.") ? is_observed_function(name) : !is_one_of(states, name));
}

/// Parts of the standard library that start threads or programs, or open files. No answer needs them.
bool is_refused_of_library(std::string_view name) {
  constexpr std::string_view parts =
      R"(St6thread 7jthread __basic_file basic_filebuf 10filesystem 13_Async_state St5async 15_State_baseV2
      random_device 13shared_memory St18condition_variable)";
  return any_word(parts, [&](std::string_view part) { return name.find(part) != name.npos; });
}

class Judge {
 public:
  Judge(const Object& object, const ObjectRules& rules) : object_(object), rules_(rules) {}

  std::vector<Refusal> run() {
    for (std::size_t i = 0; i < object_.sections.size(); ++i) section(i);
    for (const Object::Symbol& symbol : object_.symbols)
      if (symbol.section == SHN_COMMON) static_bytes_ += symbol.size;  // the linker adds it to a section
    if (static_bytes_ > kStaticBytes && !rules_.kernels)
      refuse(fmt::format("reserves {} bytes of static memory", static_bytes_));
    for (const Object::Symbol& symbol : object_.symbols) {
      if (symbol.type == STT_FILE || symbol.type == STT_SECTION || symbol.name.empty()) continue;
      if (symbol.name.find('@') != std::string::npos) refuse("assigns a symbol version to " + readable(symbol.name));
      if (symbol.type == STT_GNU_IFUNC) refuse("selects a function at load time: " + readable(symbol.name));
      if (symbol.section == SHN_UNDEF) {
        if (!may_call(symbol.name) && !rules_.books.contains(symbol.name))
          refuse("calls " + readable(symbol.name), caller_of(symbol.name));
      } else {
        defined(symbol);
      }
      if (refusals_.size() >= kMost) break;
    }
    return std::move(refusals_);
  }

 private:
  /// A position in the compiled code; section 0 stands for none.
  struct Code {
    std::size_t section;
    std::uint64_t offset;
  };
  void refuse(const std::string& what, Code code = {0, 0}) {
    if (std::ranges::find(refusals_, what, &Refusal::what) != refusals_.end()) return;
    refusals_.push_back({what, "", is_code(code.section) ? object_.section_names[code.section] : "", code.offset});
  }
  /// The first position in the code that refers to a name.
  Code caller_of(const std::string& name) const {
    for (const Elf64_Shdr& section : object_.sections) {
      if (section.sh_type != SHT_RELA || !is_code(section.sh_info)) continue;
      for (std::uint64_t i = 0; i < section.sh_size / sizeof(Elf64_Rela); ++i) {
        const auto entry = object_.at<Elf64_Rela>(section.sh_offset + i * sizeof(Elf64_Rela));
        if (object_.symbols.at(ELF64_R_SYM(entry.r_info)).name == name) return {section.sh_info, entry.r_offset};
      }
    }
    return {0, 0};
  }
  bool is_code(std::size_t section) const {
    return section < object_.sections.size() && (object_.sections[section].sh_flags & SHF_EXECINSTR) != 0;
  }

  /// Whether the program may write to a section's memory, which all threads share.
  bool is_writable(std::size_t section) const {
    if (section == SHN_COMMON) return true;
    if (section >= object_.sections.size()) return false;
    const auto flags = object_.sections[section].sh_flags;
    return (flags & SHF_ALLOC) != 0 && (flags & SHF_WRITE) != 0 && (flags & SHF_TLS) == 0 &&
           !object_.section_names[section].starts_with(".data.rel.ro");
  }
  bool on_simulator() const { return rules_.kernels && !rules_.cuda; }

  bool may_call(std::string_view name) const {
    if (is_refused_of_library(name)) return false;
    if (is_chapters(name) && rules_.taken.contains(std::string(name))) return false;  // of a file without kernels
    const auto is_in_name = [&](std::string_view part) { return name.find(part) != name.npos; };
    if (on_simulator() && is_standard(name) && any_word(simt::kUnobservedOfLibrary, is_in_name)) return false;
    if (is_chapters(name) || is_standard(name) || is_of_c(name, on_simulator()) ||
        is_of_compiler(std::string(name), on_simulator()))
      return true;
    if (is_shared_of_the_book(name) || name == "_ZN8workbook4cuda16available_memoryEv") return true;
    constexpr std::string_view of_instrumentation = "__tsan_ simt_ __ubsan_handle_out_of_bounds";
    if (rules_.kernels && (is_kernels_own(name) || begins_with(of_instrumentation, name))) return true;
    return (rules_.cuda && begins_with("cuda __cuda", name)) ||
           begins_with("_Znw _Zna _Zdl _Zda", name);  // new, delete
  }

  void defined(const Object::Symbol& symbol) {
    if (symbol.type == STT_OBJECT && is_code(symbol.section))
      refuse("has data in a code section: " + readable(symbol.name));
    // Of exceptions and of <iostream>.
    const bool of_compiler = (symbol.name.starts_with("DW.ref.") && symbol.size == sizeof(void*)) ||
                             (symbol.name == "_ZStL8__ioinit" && symbol.size == 1);
    if (on_simulator() && symbol.type == STT_OBJECT && is_writable(symbol.section) && !of_compiler &&
        !rules_.books.contains(symbol.name))
      refuse("declares a static variable that is not constant: " + readable(symbol.name));
    if (symbol.binding == STB_LOCAL) return;
    if (is_chapters(symbol.name)) return;
    const bool is_shared = symbol.binding != STB_GLOBAL && symbol.section < object_.sections.size() &&
                           (object_.sections[symbol.section].sh_flags & SHF_GROUP) != 0;
    // If the program has the same name, its own functions would call this one.
    const bool replaces = rules_.taken.contains(symbol.name) || !library_of(symbol.name).empty();
    if (is_shared && !rules_.books.empty() && (rules_.books.contains(symbol.name) || !replaces))
      return;  // an inline function of the headers that stages include
    const bool is_template = demangled(symbol.name).find('<') != std::string::npos;
    const bool is_known =
        is_standard(symbol.name) || is_shared_of_the_book(symbol.name) ||
        symbol.name.starts_with("DW.ref.__gxx_personality") || symbol.name == "__clang_call_terminate" ||
        (rules_.kernels && is_of_kernel_headers(symbol.name) && !rules_.taken.contains(symbol.name)) ||
        (rules_.cuda && symbol.name.starts_with("_ZN"));
    const bool is_librarys = is_standard(symbol.name) && replaces && !is_template;
    if (is_shared && is_known && !is_librarys && !is_refused_of_library(symbol.name)) return;
    // An answer's own name is allowed unless it is reserved or already defined.
    const bool reserved = is_standard(symbol.name) || is_of_the_book(symbol.name) || symbol.name.starts_with("__") ||
                          (rules_.kernels && is_of_kernel_headers(symbol.name));
    if (reserved || replaces || symbol.name == "main")
      refuse("defines " + readable(symbol.name), {symbol.section, symbol.value});
  }

  void section(std::size_t i) {
    const std::string& name = object_.section_names[i];
    const Elf64_Shdr& header = object_.sections[i];
    constexpr std::string_view before_or_after = ".preinit_array .fini_array .ctors .dtors .init .fini .interp";
    // The server's .init_array.00098 seals it. Initialisers without a priority, and of the instrumentation, follow.
    const bool follows = name == ".init_array" || name == ".init_array.00099";
    if (!follows && (begins_with(before_or_after, name) || header.sh_type == SHT_FINI_ARRAY ||
                     header.sh_type == SHT_PREINIT_ARRAY || header.sh_type == SHT_INIT_ARRAY))
      refuse("has code that runs before or after main (" + name + ")");
    constexpr std::uint64_t memory = SHF_ALLOC | SHF_WRITE;
    if ((header.sh_flags & memory) == memory && !name.starts_with(".data.rel.ro")) static_bytes_ += header.sh_size;
    if (is_code(i) && !name.starts_with(".text")) refuse("has code in a section of its own (" + name + ")");
    if (is_code(i) && (header.sh_flags & SHF_WRITE) != 0) refuse("has writable code");
  }

  static constexpr std::size_t kMost = 20;  ///< refusals; more explain nothing
  static constexpr std::uint64_t kStaticBytes = 64 << 10;
  const Object& object_;
  const ObjectRules& rules_;
  std::uint64_t static_bytes_ = 0;  ///< of static variables; in kernels, they include checked memory
  std::vector<Refusal> refusals_;
};

}  // namespace

std::set<std::string> names_taken(const std::vector<std::string>& files) {
  std::set<std::string> names;
  for (const std::string& file : files) {
    const Object object(book::read_file(file));
    const bool library = file.ends_with(".so");  // its functions call each other through symbols that can be interposed
    for (const Object::Symbol& symbol : object.symbols) {
      const bool counts = symbol.binding == STB_GLOBAL || (library && symbol.binding == STB_WEAK);
      if (counts && symbol.section != SHN_UNDEF) names.insert(symbol.name);
    }
  }
  return names;
}

std::set<std::string> names_in(const std::filesystem::path& object) {
  std::set<std::string> names;
  for (const Object::Symbol& symbol : Object(book::read_file(object)).symbols) names.insert(symbol.name);
  return names;
}

std::vector<Refusal> refused_in_object(const std::filesystem::path& object, const ObjectRules& rules) {
  try {
    return Judge(Object(book::read_file(object)), rules).run();
  } catch (const std::exception& error) {
    return {{fmt::format("cannot be read: {}", error.what())}};
  }
}

}  // namespace workbook::judge
