#include "common/simt/program.hpp"
#include "common/simt/address.hpp"

#include <cxxabi.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#ifdef SIMT_HAVE_LIBBACKTRACE
#include <backtrace.h>
#include <dlfcn.h>
#else
#include <cstdio>
#endif

namespace simt {

std::uintptr_t program_base = 0;

namespace {

struct TlsSymbol {
  std::uintptr_t offset;
  std::size_t size;
  std::string name;
  bool shared;  ///< a variable of a function, not a thread_local of the host code at namespace scope
  bool guard;   ///< the compiler's flag that a variable was initialised
};
struct Range {
  std::uintptr_t low, high;
};

std::vector<TlsSymbol> tls_symbols;             // by offset
std::vector<Range> loaded_ranges;               // address ranges of the program and all libraries
unsigned long long libraries_loaded = 0;        // how often one was loaded when these ranges were read
[[maybe_unused]] std::uintptr_t load_bias = 0;  // addresses in memory minus those in the file

std::string demangled(const char* name) {
  int status = 0;
  char* text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
  std::string result = text != nullptr ? text : name;
  std::free(text);
  return result;
}

/// The executable's file, mapped permanently.
const char* program_file = nullptr;
std::size_t program_file_size = 0;

void map_program_file() {
  const int descriptor = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  struct stat status {};
  if (descriptor < 0) return;
  if (fstat(descriptor, &status) == 0) {
    const auto size = static_cast<std::size_t>(status.st_size);
    void* memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (memory != MAP_FAILED && size >= sizeof(ElfW(Ehdr))) {
      program_file = static_cast<const char*>(memory);
      program_file_size = size;
    }
  }
  close(descriptor);
}

/// Calls visit(symbol, name) for every entry of the symbol tables.
template <class Visit>
void for_each_symbol(Visit visit) {
  if (program_file == nullptr) return;
  ElfW(Ehdr) header;
  std::memcpy(&header, program_file, sizeof header);
  const auto section = [&](std::size_t i) {
    ElfW(Shdr) s{};
    const std::size_t at = header.e_shoff + i * sizeof s;
    if (at + sizeof s <= program_file_size) std::memcpy(&s, program_file + at, sizeof s);
    return s;
  };
  for (std::size_t i = 0; i < header.e_shnum; ++i) {
    const ElfW(Shdr) table = section(i);
    if (table.sh_type != SHT_SYMTAB || table.sh_offset + table.sh_size > program_file_size) continue;
    const ElfW(Shdr) strings = section(table.sh_link);
    for (std::size_t at = 0; at + sizeof(ElfW(Sym)) <= table.sh_size; at += sizeof(ElfW(Sym))) {
      ElfW(Sym) symbol;
      std::memcpy(&symbol, program_file + table.sh_offset + at, sizeof symbol);
      visit(symbol, program_file + strings.sh_offset + symbol.st_name);
    }
  }
}

void read_tls_symbols() {
  for_each_symbol([](const ElfW(Sym) & symbol, const char* name) {
    if (ELF64_ST_TYPE(symbol.st_info) != STT_TLS || symbol.st_size == 0) return;
    const std::string full = demangled(name);
    const std::size_t colon = full.rfind("::");
    const bool guard = std::strncmp(name, "_ZGV", 4) == 0;
    tls_symbols.push_back({symbol.st_value, symbol.st_size, colon == std::string::npos ? full : full.substr(colon + 2),
                           !guard && full.find('(') != std::string::npos, guard});
  });
  std::sort(tls_symbols.begin(), tls_symbols.end(), [](auto& a, auto& b) { return a.offset < b.offset; });
}

int visit_module(dl_phdr_info* info, std::size_t, void*) {
  if (loaded_ranges.empty()) {  // the executable comes first
    std::uintptr_t low = ~std::uintptr_t(0);
    for (int i = 0; i < info->dlpi_phnum; ++i) {
      if (info->dlpi_phdr[i].p_type == PT_LOAD) low = std::min<std::uintptr_t>(low, info->dlpi_phdr[i].p_vaddr);
    }
    program_base = info->dlpi_addr + low;
    load_bias = info->dlpi_addr;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& p = info->dlpi_phdr[i];
    if (p.p_type == PT_LOAD)
      loaded_ranges.push_back({info->dlpi_addr + p.p_vaddr, info->dlpi_addr + p.p_vaddr + p.p_memsz});
  }
  return 0;
}

/// How often a module has been loaded, the program included.
int count_loaded(dl_phdr_info* info, std::size_t, void* result) {
  *static_cast<unsigned long long*>(result) = info->dlpi_adds;
  return 1;
}

int find_tls(dl_phdr_info* info, std::size_t, void* result) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    if (info->dlpi_phdr[i].p_type != PT_TLS) continue;
    *static_cast<StaticShared*>(result) = {reinterpret_cast<std::uintptr_t>(info->dlpi_tls_data),
                                           info->dlpi_phdr[i].p_memsz};
  }
  return 1;  // only the first module: the executable
}

thread_local StaticShared tls_of_thread{0, 0};
thread_local const TlsSymbol* last_symbol = nullptr;

const TlsSymbol* symbol_at(std::uintptr_t address) {
  const std::uintptr_t offset = address - tls_of_thread.low;
  if (last_symbol != nullptr && offset - last_symbol->offset < last_symbol->size) return last_symbol;
  auto after = std::upper_bound(tls_symbols.begin(), tls_symbols.end(), offset,
                                [](std::uintptr_t o, const TlsSymbol& s) { return o < s.offset; });
  if (after == tls_symbols.begin()) return nullptr;
  --after;
  if (offset - after->offset >= after->size) return nullptr;
  return last_symbol = &*after;
}

/// Whether a file is not the reader's code: inlined functions of the CUDA headers, or of the standard library.
bool in_headers_of_ours(const std::string& file) {
  for (const char* folder : {"common/simt/", "common/cuda/", "/include/c++/", "/usr/lib/"}) {
    if (file.find(folder) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

void load_program() {
  static std::once_flag once;
  std::call_once(once, [] {
    map_program_file();
    read_tls_symbols();
  });
  unsigned long long loaded = 0;
  dl_iterate_phdr(count_loaded, &loaded);
  if (loaded == libraries_loaded) return;
  libraries_loaded = loaded;
  loaded_ranges.clear();
  dl_iterate_phdr(visit_module, nullptr);
  std::sort(loaded_ranges.begin(), loaded_ranges.end(), [](auto& a, auto& b) { return a.low < b.low; });
}

std::string function_name(const void* function) {
  static std::mutex mutex;
  static std::map<const void*, std::string> known;
  const std::lock_guard<std::mutex> lock(mutex);
  const auto known_at = known.try_emplace(function, "a kernel");
  std::string& text = known_at.first->second;
  if (!known_at.second) return text;
  for_each_symbol([&, address = reinterpret_cast<std::uintptr_t>(function) - load_bias](const ElfW(Sym) & symbol,
                                                                                        const char* name) {
    if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && symbol.st_value == address) text = demangled(name);
  });
  for (const char* noise : {"(anonymous namespace)::", "void "}) {
    for (std::size_t at; (at = text.find(noise)) != std::string::npos;) text.erase(at, std::strlen(noise));
  }
  // The parameters start at the first parenthesis outside the template arguments, which may contain some:
  // f<(Step)1>(int).
  int depth = 0;
  const auto parameters = std::find_if(text.begin(), text.end(), [&](char c) {
    depth += c == '<' ? 1 : c == '>' ? -1 : 0;
    return c == '(' && depth == 0;
  });
  text.erase(parameters, text.end());
  return text;
}

StaticShared static_shared_of_this_thread() {
  tls_of_thread = {0, 0};
  dl_iterate_phdr(find_tls, &tls_of_thread);
  return tls_of_thread;
}

StaticVariable static_variable(std::uintptr_t address) {
  const TlsSymbol* symbol = symbol_at(address);
  if (symbol == nullptr) return {"", 0};
  return {symbol->name, address - tls_of_thread.low - symbol->offset};
}

bool static_variable_holds(std::uintptr_t address, std::size_t size) {
  if (tls_symbols.empty()) return true;
  const TlsSymbol* symbol = symbol_at(address);
  return symbol != nullptr && address + size <= tls_of_thread.low + symbol->offset + symbol->size;
}

bool is_initialisation_guard(std::uintptr_t address) {
  const TlsSymbol* symbol = symbol_at(address);
  return symbol != nullptr && symbol->guard;
}

void poison_static_shared(std::uintptr_t low, std::uintptr_t high) {
  for (const TlsSymbol& symbol : tls_symbols) {
    const std::uintptr_t begin = tls_of_thread.low + symbol.offset;
    if (symbol.shared && begin < high && low < begin + symbol.size) {
      std::memset(at_address<void>(begin), 0xff, symbol.size);
    }
  }
}

bool in_static_storage(std::uintptr_t address) {
  auto after = std::upper_bound(loaded_ranges.begin(), loaded_ranges.end(), address,
                                [](std::uintptr_t a, const Range& r) { return a < r.low; });
  return after != loaded_ranges.begin() && address < (after - 1)->high;
}

#ifdef SIMT_HAVE_LIBBACKTRACE

namespace {

using VisitObject = int (*)(dl_phdr_info* object, std::size_t size, void* data);

/// The address whose source line this thread looks up now, or 0.
thread_local std::uintptr_t looked_up = 0;

bool contains(const dl_phdr_info& object, std::uintptr_t address) {
  return std::any_of(object.dlpi_phdr, object.dlpi_phdr + object.dlpi_phnum, [&](const ElfW(Phdr) & p) {
    return p.p_type == PT_LOAD && address - object.dlpi_addr - p.p_vaddr < p.p_memsz;
  });
}

struct Search {
  SourceLine innermost, chosen;
};

int visit_frame(void* data, std::uintptr_t, const char* file, int line, const char* function) {
  Search& search = *static_cast<Search*>(data);
  if (file == nullptr) return 0;
  const SourceLine here{file, line, function != nullptr ? demangled(function) : ""};
  if (search.innermost.line == 0) search.innermost = here;
  if (in_headers_of_ours(here.file)) return 0;
  search.chosen = here;
  return 1;
}

}  // namespace

/// libbacktrace reads the debug information of each object that dl_iterate_phdr visits. For the C library, where that
/// is installed, it takes longer than most tests. So the linker puts this function in the other's place (--wrap in
/// CMakeLists.txt): a lookup visits only the object that contains the address.
extern "C" int __real_dl_iterate_phdr(VisitObject visit, void* data);
extern "C" int __wrap_dl_iterate_phdr(VisitObject visit, void* data) {
  if (looked_up == 0) return __real_dl_iterate_phdr(visit, data);
  std::pair all(visit, data);
  return __real_dl_iterate_phdr(
      [](dl_phdr_info* object, std::size_t size, void* visitor) {
        const auto& [visit_one, its_data] = *static_cast<decltype(all)*>(visitor);
        return contains(*object, looked_up) ? visit_one(object, size, its_data) : 0;
      },
      &all);
}

SourceLine source_line(const void* pc) {
  static std::mutex mutex;
  static std::map<const void*, backtrace_state*> states;  // by the beginning of the object; they cannot be freed
  static unsigned long long libraries_known = 0;          // when `states` was filled
  const std::lock_guard<std::mutex> lock(mutex);
  if (libraries_known != libraries_loaded) states.clear();
  libraries_known = libraries_loaded;
  Dl_info object;
  if (pc == nullptr || dladdr(pc, &object) == 0) return {};
  backtrace_state*& state = states[object.dli_fbase];
  if (state == nullptr) state = backtrace_create_state(nullptr, 1, nullptr, nullptr);
  if (state == nullptr) return {};
  const auto line_at = [state](std::uintptr_t address) {
    Search search;
    looked_up = address;
    backtrace_pcinfo(
        state, address, visit_frame, [](void*, const char*, int) {}, &search);
    looked_up = 0;
    return search.chosen.line != 0 || search.innermost.line == 0 ? search.chosen : search.innermost;
  };
  // Minus one: the call itself, not the instruction after it.
  const std::uintptr_t call = reinterpret_cast<std::uintptr_t>(pc) - 1;
  const SourceLine found = line_at(call);
  // For two accesses that the compiler has merged there is no line: then the previous line of the same function
  // applies.
  constexpr std::uintptr_t kBefore = 64;
  for (std::uintptr_t back = 1; found.line == 0 && back <= kBefore; ++back) {
    const SourceLine before = line_at(call - back);
    if (before.line != 0 && before.file == found.file && before.function == found.function) return before;
  }
  return found;
}

#else  // binutils' addr2line, if the compiler has no libbacktrace

SourceLine source_line(const void* pc) {
  if (pc == nullptr) return {};
  char program[4096];
  const ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
  if (length <= 0) return {};
  program[length] = 0;
  std::string quoted = "'";
  for (const char* c = program; *c != 0; ++c) quoted += *c == '\'' ? std::string("'\\''") : std::string(1, *c);
  char address[32];
  std::snprintf(address, sizeof address, "0x%zx", reinterpret_cast<std::uintptr_t>(pc) - 1 - load_bias);
  FILE* pipe = popen(("addr2line -f -C -i -e " + quoted + "' " + address + " 2>/dev/null").c_str(), "r");
  if (pipe == nullptr) return {};
  SourceLine innermost, chosen;
  char function[4096], place[4096];
  while (std::fgets(function, sizeof function, pipe) && std::fgets(place, sizeof place, pipe)) {
    function[std::strcspn(function, "\n")] = 0;
    char* colon = std::strrchr(place, ':');
    if (colon == nullptr) continue;
    *colon = 0;
    const SourceLine here{place, std::atoi(colon + 1), function};
    if (here.line == 0) continue;
    if (innermost.line == 0) innermost = here;
    if (chosen.line == 0 && !in_headers_of_ours(here.file)) chosen = here;
  }
  pclose(pipe);
  return chosen.line != 0 ? chosen : innermost;
}

#endif

}  // namespace simt
