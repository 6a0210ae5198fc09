#include "common/grading/submission.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <functional>
#include <tuple>

#include "common/attention/error.hpp"
#include "common/book/files.hpp"
#include "common/book/foreign_text.hpp"
#include "common/book/markers.hpp"
#include "common/book/text.hpp"

namespace workbook::grading {
namespace fs = std::filesystem;
namespace {

using book::line_text, book::name_text;

/// The parts of a path, without "." and empty ones; with either separator. None for a path in a folder that contains no
/// student's work. The student's top folder may have any name, so only folders below it are checked.
std::vector<std::string> parts_of(const std::string& path) {
  std::vector<std::string> parts;
  bool aside = false;
  for (const std::string part : fs::path(book::replaced(path, "\\", "/")).relative_path()) {
    if (part.empty() || part == ".") continue;
    if (aside) return {};
    aside = part == "build" || part == "__MACOSX" || part == "solutions" || (part[0] == '.' && part != "..");
    parts.push_back(part);
  }
  return parts;
}

std::string in_small_letters(std::string text) {
  for (char& c : text) c = char(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

/// A part of a path without what browsers and other systems change: "Online_Softmax (1).CPP.txt" becomes
/// "online_softmax.cpp".
std::string without_copy_marks(std::string part) {
  part = in_small_letters(part);
  if (part.ends_with(".txt")) part.resize(part.size() - 4);
  const std::size_t point = std::min(part.rfind('.'), part.size());
  std::size_t end = point;
  if (end > 0 && part[end - 1] == ')') {
    do --end;
    while (end > 0 && std::isdigit(static_cast<unsigned char>(part[end - 1])) != 0);
    if (end == 0 || end == point - 1 || part[--end] != '(') end = point;
  }
  while (end < point && end > 0 && part[end - 1] == ' ') --end;
  for (const std::string_view mark : {" - copy", " copy"})
    if (part.substr(0, end).ends_with(mark)) end -= mark.size();
  return part.erase(end, point - end);
}

/// The number of trailing parts in which the path agrees with the wanted one; 0: a different file. `exact`: without
/// without_copy_marks.
std::size_t agreement(const std::vector<std::string>& parts, const std::vector<std::string>& wanted,
                      bool exact = false) {
  const auto agree = [&](const std::string& part, const std::string& want) {
    return part == want || (!exact && without_copy_marks(part) == want);
  };
  return std::size_t(std::mismatch(parts.rbegin(), parts.rend(), wanted.rbegin(), wanted.rend(), agree).first -
                     parts.rbegin());
}

struct Candidate {
  std::size_t agreement = 0, exact = 0, depth = 0;
  Entry entry;
  auto rank() const { return std::tuple(agreement, exact, -std::ptrdiff_t(depth)); }
};

/// Keeps the best two, the better one first. Two are enough to detect a tie.
void keep(std::vector<Candidate>& best, Candidate candidate) {
  best.push_back(std::move(candidate));
  std::ranges::stable_sort(best, std::greater(), &Candidate::rank);
  if (best.size() > 2) best.pop_back();
}

/// Reads a regular file; links are not followed.
Entry plain_file(const fs::path& path, const std::string& name, std::uint64_t longest) {
  Entry entry;
  entry.path = name;
  entry.regular = fs::is_regular_file(fs::symlink_status(path));
  if (!entry.regular) return entry;
  entry.too_large = fs::file_size(path) > longest;
  if (!entry.too_large) entry.text = book::read_file(path);
  return entry;
}

void read_folder(const fs::path& folder, const ArchiveLimits& limits,
                 const std::function<bool(const std::string&)>& wanted, const std::function<void(Entry)>& take) {
  std::error_code error;
  std::size_t entries = 0;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (++entries > limits.entries) throw ArchiveError(fmt::format("more than {} files in the folder", limits.entries));
    if (entry.depth() > 32) entry.disable_recursion_pending();
    const std::string relative = entry->path().lexically_relative(folder).generic_string();
    if (!wanted(relative)) continue;
    if (!fs::is_directory(entry->symlink_status(error))) take(plain_file(entry->path(), relative, limits.entry));
  }
  if (error) throw ArchiveError(fmt::format("the folder cannot be read: {}", error.message()));
}

/// The text with LF line ends and without a byte-order mark.
std::string normalized(const std::string& text) {
  const bool of_old_macs = text.find('\n') == std::string::npos;
  return book::join_lines(book::parse_reader("", of_old_macs ? book::replaced(text, "\r", "\n") : text).lines);
}

/// The name of the folder or archive, without an archive's extension.
std::string name_of(const fs::path& path) {
  fs::path absolute = fs::absolute(path).lexically_normal();
  if (!absolute.has_filename()) absolute = absolute.parent_path();
  const std::string name = absolute.filename().string();
  for (const std::string_view ending : {".tar.gz", ".tar.xz", ".tar.bz2", ".tar.zst", ".tgz", ".zip", ".tar", ".7z"})
    if (name.size() > ending.size() && name.ends_with(ending)) return name.substr(0, name.size() - ending.size());
  return name;
}

/// A name in UTF-8, and whether it needs a suffix to be unique.
std::pair<std::string, bool> shown_name(const fs::path& path) {
  constexpr std::size_t longest = 150;
  bool lossless = true;
  std::string name = name_text(name_of(path), lossless);
  if (name[0] == '.' || name[0] == '-') name[0] = '_';
  const bool reserved = in_small_letters(name).starts_with("class.");  // for the class's tables
  const bool needs_suffix = !lossless || reserved || name.size() > longest;
  if (name.size() > longest) {
    std::size_t end = longest;
    while ((static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) --end;  // not within a character
    name.resize(end);
  }
  return {name, needs_suffix};
}

}  // namespace

std::vector<Submission> name_submissions(const std::vector<std::string>& paths) {
  std::map<std::string, std::size_t> wanted;  // name -> number of submissions with this name
  for (const std::string& path : paths) {
    if (!fs::exists(fs::symlink_status(path))) fail_input("{}: this submission does not exist", line_text(path));
    ++wanted[shown_name(path).first];
  }
  std::map<std::string, fs::path> names;
  for (const std::string& path : paths) {
    auto [name, needs_suffix] = shown_name(path);
    // Computed from the path alone, so that separately graded parts of a class agree.
    if (needs_suffix || wanted.at(name) > 1)
      name += "-" + book::hash(fs::path(path).lexically_normal().string()).substr(0, 6);
    const auto [other, is_new] = names.emplace(name, path);
    if (!is_new) fail_input("{} is given twice; allowed: each submission once", line_text(path));
  }
  std::vector<Submission> submissions;
  for (const auto& [name, path] : names) submissions.push_back({name, path});
  return submissions;
}

HandedIn read_submission(const Submission& submission, const std::vector<std::string>& wanted,
                         const ArchiveLimits& limits) {
  HandedIn result;
  std::map<std::string, std::vector<Candidate>> candidates;
  std::vector<std::string> others;  // the first names of other files
  const auto is_wanted = [&](const std::string& path) {
    const std::vector<std::string> parts = parts_of(path);
    if (parts.empty()) return false;
    if (others.size() < 5) others.push_back(line_text(path, 60));
    return std::any_of(wanted.begin(), wanted.end(),
                       [&](const std::string& name) { return agreement(parts, parts_of(name)) > 0; });
  };
  const auto take = [&](const Entry& entry) {
    const std::vector<std::string> parts = parts_of(entry.path);
    for (const std::string& name : wanted) {
      const std::size_t count = agreement(parts, parts_of(name));
      if (count > 0) keep(candidates[name], {count, agreement(parts, parts_of(name), true), parts.size(), entry});
    }
  };
  try {
    const fs::file_status status = fs::symlink_status(submission.path);
    if (fs::is_symlink(status)) {
      throw ArchiveError("the submission is a link, which is not followed");
    } else if (fs::is_directory(status)) {
      read_folder(submission.path, limits, is_wanted, take);
    } else if (!fs::is_regular_file(status)) {
      throw ArchiveError("the submission is neither a folder nor a file");
    } else if (is_wanted(submission.path.filename().string())) {
      take(plain_file(submission.path, submission.path.filename().string(), limits.entry));
    } else {
      read_archive(submission.path, limits, is_wanted, take);
    }
  } catch (const ArchiveError& error) {
    result.notes.push_back(line_text(error.what(), 500));
    return result;
  }
  for (const std::string& name : wanted) {
    std::vector<Candidate>& found = candidates[name];
    if (found.empty()) {
      result.notes.push_back(fmt::format("{} was not handed in; the open file of the release is graded instead{}{}",
                                         name,
                                         others.empty() ? "" : ". The submission contains: ", fmt::join(others, ", ")));
      continue;
    }
    const Candidate& best = found.front();
    const std::string shown = line_text(best.entry.path, 200);
    if (found.size() > 1 && found[1].rank() == best.rank()) {
      result.notes.push_back(fmt::format("{}: {} and {} match equally well, so neither is used", name, shown,
                                         line_text(found[1].entry.path, 200)));
    } else if (!best.entry.regular) {
      result.notes.push_back(fmt::format("{}: {} is not a regular file (a link, for example)", name, shown));
    } else if (best.entry.too_large) {
      result.notes.push_back(fmt::format("{}: {} is larger than {} KiB", name, shown, limits.entry >> 10));
    } else if (best.entry.text.find('\0') != std::string::npos) {
      result.notes.push_back(
          fmt::format("{}: {} is not a text file (it must be UTF-8, not UTF-16 or a program)", name, shown));
    } else {
      result.files[name] = normalized(best.entry.text);
      if (shown != name) result.notes.push_back(fmt::format("{} was taken from {}", name, shown));
    }
  }
  return result;
}

}  // namespace workbook::grading
