#include "common/worker/build.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <stdexcept>

#include "common/worker/build_lock.hpp"
#include "common/worker/command.hpp"
#include "common/worker/hash.hpp"

namespace workbook::worker {
namespace fs = std::filesystem;
namespace {

std::string contents(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A log, of a long one the beginning and the end. A compiler's messages about a student's code may have no end.
std::string log_in(const fs::path& path) {
  constexpr std::streamoff longest = 1 << 20, last = 1 << 10;
  std::string text(std::size_t(longest), '\0');
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = file.tellg();
  if (size <= longest) return contents(path);
  file.seekg(0).read(text.data(), longest);
  file.seekg(std::max(longest, size - last));
  return text + std::string(std::istreambuf_iterator<char>(file), {});
}

/// A path in the syntax of a ninja build statement.
std::string in_ninja(const fs::path& path) {
  std::string text;
  for (const char c : path.string()) {
    if (c == '$' || c == ' ' || c == ':') text += '$';
    text += c;
  }
  return text;
}

/// Words as a shell command in a ninja variable.
std::string command_line(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    if (!text.empty()) text += ' ';
    for (const char c : shell_quoted(word)) {
      if (c == '$') text += '$';
      text += c;
    }
  }
  return text;
}

/// A fingerprint of the files in the chapters' folders that a source is compiled from. As part of the step's command it
/// makes ninja rebuild after a file was restored with an old date (mv, cp -p), since ninja detects only newer files.
std::string fingerprint(const fs::path& source, const fs::path& include, const std::vector<fs::path>& used) {
  const std::string own = contents(source);
  std::map<fs::path, std::string> files{{source, own}};
  std::error_code ignored;
  for (const fs::directory_entry& entry : fs::directory_iterator(include, ignored)) {
    const fs::path extension = entry.path().extension();
    const bool header = extension == ".hpp" || extension == ".cuh" || extension == ".h";
    // A kernel file that this one includes, to compile it for another element type.
    const bool once_more =
        own.find(fmt::format("#include \"{}\"", entry.path().filename().string())) != std::string::npos;
    if (header || once_more) files[entry.path()] = contents(entry.path());
  }
  for (const fs::path& folder : used) {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
      if (entry.is_regular_file()) files[entry.path()] = contents(entry.path());
  }
  std::string all;
  for (const auto& [path, text] : files) all += fmt::format("{} {}\n{}\n", path.string(), text.size(), text);
  return hash(all);
}

/// The path relative to the book's root if it is inside. Ninja runs in the root, so compilers print relative paths.
/// Special characters in the root's own path, such as quotes, which ninja cannot parse in a dependency list, then cause
/// no problem.
fs::path from_root(const Toolchain& toolchain, const fs::path& path) {
  const fs::path relative = path.lexically_relative(toolchain.root);
  return relative.empty() || *relative.begin() == ".." ? path : relative;
}

bool is_kernel_file(const fs::path& source) {
  return source.extension() == ".cu";
}

/// A rule that compiles one source with this command.
std::string compile_rule(const std::string& rule, Backend backend, std::vector<std::string> command) {
  command.emplace_back("-I.");
  const std::string compiler = command_line({command.front()});
  command.erase(command.begin());
  return fmt::format(
      "rule {}_{}\n  command = {} $first {} $include -MMD -MF $output.d -c $source -o $output > $output.log 2>&1 # "
      "$fingerprint\n"
      "  depfile = $depends\n  deps = gcc\n",
      rule, name(backend), compiler, command_line(command));
}

/// Rules for each backend: to compile, to compile kernels if it has any, and to link.
std::string ninja_rules(const Toolchain& toolchain) {
  std::string rules;
  for (const auto& [backend, how] : toolchain.backends) {
    // Each step stores the compiler's messages next to its output, since ninja's own output mixes the jobs. All paths
    // are quoted here, because ninja quotes $out only if necessary.
    for (const auto& [rule, compiler] : {std::pair{"compile", &how.compile}, {"kernels", &how.kernels}}) {
      if (compiler->empty()) continue;
      rules += compile_rule(rule, backend, *compiler);
    }
    // The book's own objects come first, because the linker uses the first definition of an inline function.
    const auto link = [&, &backend = backend, &how = how](const char* rule, const std::vector<std::string>& options,
                                                          const std::vector<std::string>& objects) {
      rules += fmt::format("rule {}_{}\n  command = {} {} {} $inputs {} -o $output > $output.log 2>&1\n", rule,
                           name(backend), command_line(how.link), command_line(options), command_line(objects),
                           command_line(how.libraries));
    };
    link("link", {}, how.objects);
    link("link_library", {"-shared", "-Xlinker", "--version-script=common/cuda/library.map", "-Xlinker", "-zdefs"},
         how.shared_objects);
  }
  return rules;
}

/// "sm_90a": code for that GPU only, without PTX for others.
std::string code_for(const std::string& architecture) {
  const std::string number = architecture.substr(architecture.find('_') + 1);
  return fmt::format("-gencode=arch=compute_{0},code=sm_{0}", number);
}

/// The rule for a job's kernels. A GPU job with an architecture of its own has a separate rule.
std::string kernel_rule(Backend backend, const std::string& architecture) {
  return backend == Backend::cuda && !architecture.empty() ? "kernels_" + architecture : "kernels";
}

/// Like ninja_rules, for kernels of this architecture.
std::string architecture_rule(const Toolchain& toolchain, const std::string& architecture) {
  std::vector<std::string> compile = toolchain.backends.at(Backend::cuda).kernels;
  for (std::string& word : compile)
    if (word.starts_with("-arch=")) word = code_for(architecture);
  return compile_rule(kernel_rule(Backend::cuda, architecture), Backend::cuda, std::move(compile));
}

/// The precompiled header that a file is compiled with, or empty. It is usable only with the flags it was made with,
/// plus macros that it does not use.
fs::path precompiled_header(const Toolchain& toolchain, Backend backend, const fs::path& source,
                            const std::vector<std::string>& flags) {
  const Toolchain::Rules& rules = toolchain.backends.at(backend);
  const bool quick = std::ranges::count(flags, kQuick) > 0;
  const std::string& for_kernels = quick ? rules.precompiled_quick : rules.precompiled;
  const std::string& header = is_kernel_file(source) ? for_kernels : rules.precompiled_host;
  const auto is_known = [](const std::string& flag) { return flag.starts_with("-D") || flag == kQuick; };
  if (header.empty() || !std::ranges::all_of(flags, is_known)) return {};
  const fs::path precompiled = toolchain.build_folder / (header + ".gch");
  std::error_code ignored;
  return fs::exists(precompiled, ignored) ? precompiled : fs::path();
}

/// `include`: the folder with the chapter's headers; `used`: those of earlier chapters.
std::string compile_step(const Toolchain& toolchain, Backend backend, const fs::path& source, const fs::path& include,
                         const std::vector<fs::path>& used, const std::vector<std::string>& flags,
                         const std::string& architecture, const fs::path& object) {
  const fs::path shown = from_root(toolchain, source);
  std::vector<std::string> includes{fmt::format("-I{}", from_root(toolchain, include).string())};
  for (const fs::path& folder : used) {
    const std::string option = fmt::format("-I{}", from_root(toolchain, folder.parent_path()).string());
    if (includes.back() != option) includes.push_back(option);
  }
  includes.insert(includes.end(), flags.begin(), flags.end());
  // The header that the compiler reads first. The compiler lists no files of a precompiled header, so it is added to
  // ninja's dependencies here.
  std::string first, implicit;
  if (const fs::path precompiled = precompiled_header(toolchain, backend, source, flags); !precompiled.empty()) {
    fs::path header = precompiled;
    first = command_line({"-include", header.replace_extension().string()});
    implicit = " | " + in_ninja(precompiled);
  }
  return fmt::format(
      "build {}: {}_{} {}{}\n  first = {}\n  include = {}\n  source = {}\n  output = {}\n  depends = {}\n"
      "  fingerprint = {}\n",
      in_ninja(object), is_kernel_file(source) ? kernel_rule(backend, architecture) : "compile", name(backend),
      in_ninja(shown), implicit, first, command_line(includes), command_line({shown.string()}),
      command_line({object.string()}), in_ninja(object.string() + ".d"), fingerprint(source, include, used));
}

std::string link_step(const Toolchain& toolchain, const WorkerJob& job, const std::vector<fs::path>& objects,
                      const fs::path& executable) {
  std::string in_build, implicit;
  std::vector<std::string> inputs;
  for (const fs::path& object : objects) {
    in_build += ' ';
    in_build += in_ninja(object);
    inputs.push_back(object.string());
  }
  inputs.insert(inputs.end(), job.libraries.begin(), job.libraries.end());
  const bool library = job.makes == WorkerJob::library;
  const Toolchain::Rules& backend = toolchain.backends.at(job.backend);
  for (const std::string& object : library ? backend.shared_objects : backend.objects) {
    implicit += ' ';
    implicit += in_ninja(object);
  }
  return fmt::format("build {}: {}_{}{} |{}\n  inputs = {}\n  output = {}\n", in_ninja(executable),
                     library ? "link_library" : "link", name(job.backend), in_build, implicit, command_line(inputs),
                     command_line({executable.string()}));
}

/// Whether ninja reports that the step with this output failed. (Steps that depend on it neither run nor are reported.)
bool says_failed(const std::string& ninja_output, const fs::path& output) {
  std::istringstream lines(ninja_output);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("FAILED: ") && line.find(output.string() + " ") != std::string::npos) return true;
  }
  return false;
}

/// The first of the job's sources that does not exist, or empty. With a missing source, ninja would build none of the
/// jobs.
fs::path missing_source(const WorkerJob& job) {
  for (const auto* sources : {&job.sources, &job.books_sources}) {
    for (const fs::path& source : *sources) {
      std::error_code ignored;
      if (!fs::is_regular_file(source, ignored)) return source;
    }
  }
  return {};
}

}  // namespace

Toolchain load_toolchain(const fs::path& build_folder, const fs::path& root) {
  Toolchain toolchain;
  try {
    const nlohmann::json file = nlohmann::json::parse(contents(build_folder / "toolchain.json"));
    toolchain.build_folder = build_folder;
    toolchain.root = root;
    for (const auto& [key, member] : {std::pair{"ninja", &Toolchain::ninja},
                                      {"cmake", &Toolchain::cmake},
                                      {"compiler", &Toolchain::compiler},
                                      {"compiler_id", &Toolchain::compiler_id},
                                      {"build_type", &Toolchain::build_type},
                                      {"sanitize", &Toolchain::sanitize},
                                      {"version", &Toolchain::version}}) {
      toolchain.*member = file.at(key).get<std::string>();
    }
    for (const auto& [name, backend] : file.at("backends").items()) {
      toolchain.backends[backend_of(name)] = {
          backend.at("compile"), backend.at("link"),           backend.at("libraries"),
          backend.at("objects"), backend.at("kernels"),        backend.at("sources"),
          backend.at("targets"), backend.at("shared_objects"), backend.at("shared_targets")};
      Toolchain::Rules& rules = toolchain.backends.at(backend_of(name));
      for (const auto& header : backend.at("precompiled")) rules.precompiled = header;  // one, or none
      for (const auto& header : backend.at("precompiled_host")) rules.precompiled_host = header;
      for (const auto& header : backend.at("precompiled_quick")) rules.precompiled_quick = header;
    }
    for (const auto& [name, why] : file.at("unavailable").items()) toolchain.unavailable[backend_of(name)] = why;
    toolchain.counts = file.at("counts");
    toolchain.simulator = file.at("simulator");
    toolchain.cublas = file.at("cublas");
  } catch (const std::exception& error) {  // JSON of another form, or an unknown backend
    throw std::runtime_error(fmt::format("{} is missing or damaged ({}): delete the folder {} and try again",
                                         (build_folder / "toolchain.json").string(), error.what(),
                                         build_folder.string()));
  }
  return toolchain;
}

std::vector<std::string> Toolchain::Rules::all_precompiled() const {
  std::vector<std::string> headers{precompiled, precompiled_host, precompiled_quick};
  std::erase(headers, "");
  return headers;
}

std::vector<std::string> Toolchain::Rules::quick_flags() const {
  if (precompiled_quick.empty()) return {};
  return {kQuick};
}

std::string Toolchain::why_not(Backend backend) const {
  if (can_build(backend)) return "";
  const auto known = unavailable.find(backend);
  return known == unavailable.end() ? "this build does not include it" : known->second;
}

// NOLINTNEXTLINE(readability-function-size): one ninja file after another, and what became of it
std::map<std::string, WorkerBuilt> build_workers(const Toolchain& toolchain, const std::vector<WorkerJob>& jobs) {
  std::map<std::string, WorkerBuilt> built;
  if (jobs.empty()) return built;
  const BuildLock lock(toolchain.build_folder);
  const fs::path folder = toolchain.build_folder / "workers";
  fs::create_directories(folder / "objects");

  // A source that several jobs share (the operations of all grafts) is compiled once.
  const fs::path shown_folder = from_root(toolchain, folder);
  std::string text = fmt::format("ninja_required_version = 1.10\nbuilddir = {}\n", in_ninja(shown_folder));
  text += ninja_rules(toolchain);
  std::set<std::string> architectures;
  for (const WorkerJob& job : jobs)
    if (job.backend == Backend::cuda && toolchain.can_build(job.backend) && !job.architecture.empty() &&
        architectures.insert(job.architecture).second)
      text += architecture_rule(toolchain, job.architecture);
  std::set<fs::path> known_objects;
  std::map<std::string, std::vector<fs::path>> objects_of;
  std::set<std::string> parts;
  for (const WorkerJob& job : jobs) {
    if (!toolchain.can_build(job.backend)) {
      throw std::runtime_error(
          fmt::format("this build has no backend \"{}\": {}", name(job.backend), toolchain.why_not(job.backend)));
    }
    const Toolchain::Rules& backend = toolchain.backends.at(job.backend);
    WorkerBuilt& worker = built[job.name];
    worker.executable = folder / job.name / (job.makes == WorkerJob::library ? "library.so" : "worker");
    const fs::path missing = missing_source(job);
    if (!missing.empty()) {
      worker.log = from_root(toolchain, missing).string() + " does not exist\n";
      continue;
    }
    std::vector<fs::path>& objects = objects_of[job.name];
    // shared: by all jobs of this backend, whatever their architecture.
    const auto add = [&](const fs::path& source, const fs::path& include, const std::vector<fs::path>& used,
                         const std::vector<std::string>& flags, bool shared = false) {
      std::string key = std::string(name(job.backend)) + '\n' + source.string() + '\n' + include.string();
      for (const fs::path& folder : used) key += '\n' + folder.string();
      for (const std::string& flag : flags) key += '\n' + flag;
      const std::string architecture = shared ? "" : job.architecture;
      if (!architecture.empty()) key += '\n' + architecture;
      objects.push_back(shown_folder / "objects" / (source.stem().string() + "." + hash(key) + ".o"));
      worker.objects[source] = toolchain.root / objects.back();
      if (known_objects.insert(objects.back()).second) {
        text += compile_step(toolchain, job.backend, source, include, used, flags, architecture, objects.back());
      }
    };
    // A library needs position-independent code. nvcc passes the flag on to the host compiler.
    const auto compiled_with = [&](const fs::path& source, std::vector<std::string> flags) {
      const bool nvcc = job.backend == Backend::cuda && is_kernel_file(source);
      if (job.makes != WorkerJob::worker) flags.emplace_back(nvcc ? "-Xcompiler=-fPIC" : "-fPIC");
      return flags;
    };
    std::vector<std::string> flags = job.flags;
    flags.insert(flags.end(), job.sources_flags.begin(), job.sources_flags.end());
    for (const fs::path& source : job.sources) add(source, job.include, job.used, compiled_with(source, flags));
    for (const fs::path& source : job.books_sources)
      add(source, job.books_include, job.used, compiled_with(source, job.flags));
    if (job.makes == WorkerJob::part) {
      parts.insert(job.name);
      continue;
    }
    for (const fs::path source : backend.sources)
      add(source, source.parent_path(), {}, compiled_with(source, job.flags), true);
    for (const std::string& part : job.parts) {
      const auto of_part = objects_of.find(part);
      if (of_part != objects_of.end())  // if a source was missing, the part has the message
        objects.insert(objects.end(), of_part->second.begin(), of_part->second.end());
    }
    text += link_step(toolchain, job, objects, from_root(toolchain, worker.executable));
    // Discards the messages of an earlier link.
    std::error_code ignored;
    fs::remove(worker.executable.string() + ".log", ignored);
  }

  const fs::path file = folder / "build.ninja";
  std::ofstream written(file, std::ios::binary);
  written << text;
  written.close();
  if (!written) throw std::runtime_error(fmt::format("cannot write {}", file.string()));
  CommandOptions options;
  options.folder = toolchain.root;
  const auto ninja = [&](const std::vector<std::string>& arguments) {
    std::vector<std::string> argv = toolchain.prefix;
    argv.insert(argv.end(), {toolchain.ninja, "-f", file.string()});
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return run_command(argv, options);
  };
  const CommandResult result = ninja({"-k", "0"});
  for (const auto& [name, objects] : objects_of) {
    WorkerBuilt& worker = built[name];
    worker.seconds = result.seconds;
    const fs::path target = from_root(toolchain, worker.executable);
    const auto has_failed = [&](const fs::path& output) { return says_failed(result.output, output); };
    // After a failure, an older executable may still exist. Ninja reports whether it is up to date.
    const auto is_current = [&] { return toolchain.prefix.empty() && ninja({target.string()}).exit_code == 0; };
    worker.ok = result.exit_code == 0 || (std::none_of(objects.begin(), objects.end(), has_failed) &&
                                          (parts.contains(name) || (!has_failed(target) && is_current())));
    for (const fs::path& object : objects) worker.log += log_in(toolchain.root / (object.string() + ".log"));
    if (!worker.ok) worker.log += log_in(worker.executable.string() + ".log");
    if (!worker.ok && worker.log.empty()) worker.log = result.output;
  }
  return built;
}

std::map<fs::path, std::vector<fs::path>> files_read(const Toolchain& toolchain, const std::vector<fs::path>& objects) {
  std::map<std::string, fs::path> named;  // by ninja's names
  for (const fs::path& object : objects) named[from_root(toolchain, object).string()] = object;
  std::vector<std::string> argv = toolchain.prefix;
  argv.insert(argv.end(),
              {toolchain.ninja, "-f", (toolchain.build_folder / "workers" / "build.ninja").string(), "-t", "deps"});
  for (const auto& [name, object] : named) argv.push_back(name);
  CommandOptions options;
  options.folder = toolchain.root;
  std::map<fs::path, std::vector<fs::path>> read;
  if (named.empty()) return read;
  // OBJECT: #deps 2, deps mtime 17 (VALID)
  //     common/attention/shape.hpp
  //     …
  std::istringstream lines(run_command(argv, options).output);
  std::vector<fs::path>* files = nullptr;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("    ")) {
      if (files != nullptr) files->push_back(from_root(toolchain, fs::path(line.substr(4)).lexically_normal()));
      continue;
    }
    const auto found = named.find(line.substr(0, line.rfind(": #deps ")));
    files = found != named.end() && line.ends_with("(VALID)") ? &read[found->second] : nullptr;
  }
  return read;
}

}  // namespace workbook::worker
