// Reads a submission: a folder, an archive, or a single file. Takes only the files that the assignment lets students
// edit. Nothing is unpacked to disk or run, and no link is followed.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/grading/archive.hpp"

namespace workbook::grading {

struct Submission {
  std::string student;  ///< the folder's or archive's name without extension, converted by name_text (foreign_text.hpp)
  std::filesystem::path path;
};

/// Assigns a unique name to each submission. A suffix is added if two names are equal, if a name lost bytes that are
/// not UTF-8, is reserved ("class.csv"), or is too long. InputError (common/attention/error.hpp) if a submission does
/// not exist or is given twice.
std::vector<Submission> name_submissions(const std::vector<std::string>& paths);

struct HandedIn {
  std::map<std::string, std::string> files;  ///< name as in the assignment -> text with LF line ends, without a BOM
  std::vector<std::string> notes;            ///< what was found where; what is missing or unusable, and why
};

/// Searches for each of `wanted` ("chapters/02_online_softmax/online_softmax.cpp"). A file matches if its path ends
/// with the whole wanted path, with its folder and name, or with its name, in letters of any case and with what
/// browsers add: "Online_Softmax (1).cpp.txt". The longest match is used, then the one with the fewest such changes,
/// then the least deep one. If two match equally well, neither is used, and a note names both. Build folders, backups
/// and dot folders are skipped. A file must be regular, text (no NUL bytes) and at most limits.entry bytes.
HandedIn read_submission(const Submission& submission, const std::vector<std::string>& wanted,
                         const ArchiveLimits& limits = {});

}  // namespace workbook::grading
