// What a student has handed in: a folder, an archive, or a single file; and in it the files that the assignment lets
// them edit, whatever else is there. Nothing is unpacked, no link is followed, nothing is run.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "common/grading/archive.hpp"

namespace workbook::grading {

struct Submission {
  std::string student;  ///< the folder's or archive's name without its ending, as name_text (text.hpp) makes it
  std::filesystem::path path;
};

/// Names the submissions. A name that would not be its own has a suffix: of two that are alike, one that lost letters
/// which are no UTF-8, the grader's own ("class.csv"), one that is too long. InputError (common/attention/error.hpp) if
/// a submission is not there, or is given twice.
std::vector<Submission> name_submissions(const std::vector<std::string>& paths);

struct HandedIn {
  std::map<std::string, std::string> files;  ///< name as the assignment has it -> text, LF line ends, no BOM
  std::vector<std::string> notes;            ///< what was found where, what is missing or cannot be used, and why
};

/// Looks for each of `wanted` ("chapters/02_online_softmax/online_softmax.cpp"). A file counts if its path ends in all
/// of that, or in its folder and name, or in its name; the more the better, then the less deep. Two that are equally
/// good are none: the note names both. Build folders, backups and dot folders are left aside. A file must be a regular
/// one, text (no NUL bytes) and at most limits.entry bytes.
HandedIn read_submission(const Submission& submission, const std::vector<std::string>& wanted,
                         const ArchiveLimits& limits = {});

}  // namespace workbook::grading
