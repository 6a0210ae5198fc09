// The pictures of the lessons: what a chapter's pictures.toml asks for, the code's own facts, which Node draws with the
// modules of notes/site/figures, and whether the files that are there are these.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/judge/workspace.hpp"

namespace workbook::pictures {

struct Picture {
  std::filesystem::path file;  ///< chapters/NN_name/pictures/NAME.svg, or NAME.json: the facts that it shows
  std::string text;
  std::string why_not;  ///< it cannot be drawn here: why; empty if it is drawn
};

/// Facts as a file: a member a line, so that a change shows what has changed.
std::string facts_text(const nlohmann::ordered_json& facts);
/// Why no SVG can be drawn here; empty if one can.
std::string why_not_drawn();
/// SVG texts of a list of facts, {"kind", "title", …} each. std::runtime_error with what Node says if it fails.
std::vector<std::string> draw(const judge::Workspace& workspace, const nlohmann::ordered_json& facts);

/// All pictures of these folders of chapters/, by name; of all if there are none. book::ManifestError for what a
/// pictures.toml should not hold, std::runtime_error for a kernel that does not run.
std::vector<Picture> draw(const judge::Workspace& workspace, const std::vector<std::string>& folders);

enum class State {
  current,
  missing,  ///< there is no such file
  differs,  ///< the file holds something else
  unasked,  ///< no pictures.toml asks for this file
  unknown,  ///< it cannot be drawn here
};
const char* name(State state);

struct Compared {
  std::filesystem::path file;
  State state = State::current;
  std::string why;  ///< of State::unknown
};
/// Every picture against its file, and the files beside them that are no pictures of theirs.
std::vector<Compared> compare(const std::vector<Picture>& pictures);

}  // namespace workbook::pictures
