// The pictures of the lessons: computes the facts that a chapter's pictures.toml requests, draws them by Node with the
// modules of notes/site/figures, and compares the results with the existing files.
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
  std::string why_not;  ///< why it cannot be drawn here; empty if it is drawn
};

/// Facts as a file: one member per line, so that diffs are readable.
std::string facts_text(const nlohmann::ordered_json& facts);
/// Why no SVG can be drawn here; empty if one can.
std::string why_not_drawn();
/// SVG texts of a list of facts, {"kind", "title", …} each. std::runtime_error with Node's message on failure.
std::vector<std::string> draw(const judge::Workspace& workspace, const nlohmann::ordered_json& facts);

/// All pictures of these folders of chapters/, or of all folders if none is given. book::ManifestError for an invalid
/// pictures.toml, std::runtime_error for a kernel that does not run.
std::vector<Picture> draw(const judge::Workspace& workspace, const std::vector<std::string>& folders);

enum class State {
  current,
  missing,  ///< the file does not exist
  differs,  ///< the file has other contents
  unused,   ///< no pictures.toml requests this file
  unknown,  ///< the picture cannot be drawn here
};
const char* name(State state);

struct Compared {
  std::filesystem::path file;
  State state = State::current;
  std::string why;  ///< of State::unknown
};
/// Compares every picture with its file, and lists the other files in these folders.
std::vector<Compared> compare(const std::vector<Picture>& pictures);

}  // namespace workbook::pictures
