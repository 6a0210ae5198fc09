#include "tests/grading/samples.hpp"

#include <fmt/format.h>

#include <toml++/toml.h>
#include <algorithm>

#include "common/book/files.hpp"
#include "common/book/markers.hpp"
#include "common/book/text.hpp"
#include "common/grading/release.hpp"

namespace workbook::test {
namespace fs = std::filesystem;
namespace {

constexpr const char* kWrong = "  return {10, 1};";

book::MarkedFile solution_file(const book::Book& book) {
  const fs::path path = book.root / "solutions/02_online_softmax/online_softmax.cpp";
  return book::parse_marked("online_softmax.cpp", book::read_file(path));
}

std::vector<std::string> lines_of(const std::string& text) {
  return book::parse_reader("", text).lines;
}

std::string with(std::string text, const std::string& at, const std::string& more) {
  return text.insert(text.find(at), more.empty() ? "" : more + "\n");
}

/// What hostile.toml says, with paths and the book's texts inserted.
class Bank {
 public:
  Bank(const book::Book& book, const SamplePaths& paths)
      : book_(book),
        solution_(solution_file(book)),
        document_(toml::parse_file((fs::path(WORKBOOK_SOURCE) / "tests/grading/hostile.toml").string())),
        words_{{"{solution}", paths.solution.string()},
               {"{hidden}", paths.hidden.string()},
               {"{outside}", paths.outside.string()},
               {"{other}", paths.other.string()},
               {"{2.1}", book::join_lines(solution_.find("2.1")->body)},
               {"{row}", text_of("row")}} {}

  std::vector<Sample> samples() const {
    std::vector<Sample> all;
    for (const auto& [name, fields] : *document_["samples"].as_table())
      all.push_back(sample(std::string(name), *fields.as_table()));
    return all;
  }

 private:
  std::string text_of(const std::string& name) const { return document_["texts"][name].value_or(std::string()); }
  std::string filled(std::string text) const {
    for (const auto& [word, stands_for] : words_) text = book::replaced(text, word, stands_for);
    return text;
  }
  std::string field(const toml::table& fields, const std::string& name) const {
    return filled(fields[name].value_or(std::string()));
  }

  Sample sample(const std::string& name, const toml::table& fields) const {
    Sample sample;
    sample.name = name;
    if (const toml::table* files = fields["files"].as_table())
      for (const auto& [file, text] : *files) sample.files[std::string(file)] = text.value_or(std::string());
    if (sample.files.empty() || fields.contains("open")) sample.files[kAnswerFile] = answer_file(fields);
    std::vector<std::string> earns;
    if (const toml::array* given = fields["earns"].as_array()) {
      for (const toml::node& id : *given) earns.push_back(id.value_or(std::string()));
    } else if (fields.contains("scores")) {
      earns = {"2.1", "2.3"};
    } else if (!fields.contains("open") && !fields.contains("circle")) {
      earns = {"2.3"};
    }
    sample.first = std::ranges::count(earns, "2.1") > 0;
    sample.second = std::ranges::count(earns, "2.3") > 0;
    sample.whole = std::ranges::count(earns, "chapter 2") > 0;
    sample.result = fields["result"].value_or(sample.first && !fields.contains("earns") ? "passed" : "");
    sample.says = field(fields, "says");
    return sample;
  }

  std::string answer_file(const toml::table& fields) const {
    std::string before = field(fields, "before"), first = field(fields, "body"), second = field(fields, "in_2_3");
    if (fields.contains("attack")) {
      first = attack_body(field(fields, "attack"));
      before = text_of("attack_before");
    }
    if (const toml::array* circle = fields["circle"].as_array()) {
      const std::string open = (*circle)[0].value_or(std::string()), call = (*circle)[1].value_or(std::string());
      first = book::replaced(book::replaced(text_of("circle_2_1"), "{open}", open), "{call}", call);
      second = text_of("circle_2_3");
      before = "#include <functional>";
    }
    if (fields.contains("scores"))
      second = book::replaced(
          book::replaced(text_of("row"), "  std::vector<double> S(std::size_t(rows * Nk));", field(fields, "scores")),
          "std::size_t(i * Nk + j)", "j");
    if (first.empty()) first = second.empty() && !fields.contains("right") ? kWrong : words_.at("{2.1}");
    std::string text = untouched(book_);
    if (!fields.contains("open")) {
      text = answer(book_, "2.1", first);
      if (!second.empty()) text = book::replace_body(book::parse_reader("", text), "2.3", lines_of(second));
    }
    text = with(with(text, "namespace ch02 {", before), "SoftmaxState online_softmax(", field(fields, "beside"));
    if (fields.contains("after")) text += "\n" + field(fields, "after") + "\n";
    if (const toml::array* change = fields["replace"].as_array())
      text = book::replaced(text, (*change)[0].value_or(std::string()), (*change)[1].value_or(std::string()));
    return text;
  }

  const book::Book& book_;
  book::MarkedFile solution_;
  toml::table document_;
  std::map<std::string, std::string> words_;
};

/// What no TOML holds: bytes that are no text, and too many of them.
void add_bytes(const book::Book& book, std::vector<Sample>& samples) {
  const std::string right = solved(book);
  const auto add = [&](const std::string& name, const std::string& text, const std::string& result,
                       const std::string& says = "") {
    const bool passes = result == "passed";
    samples.push_back({name, {{kAnswerFile, text}}, passes, passes || says.empty(), passes, result, says});
  };
  add("binary_in_place_of_a_source",
      std::string("\x7f"
                  "ELF\x02\x01\x01\0\0\0\0",
                  11),
      "todo", "is not a text file");
  add("utf_16", std::string("\xff\xfe#\0i\0n\0", 8), "todo", "is not a text file");
  add("crlf_and_byte_order_mark", "\xEF\xBB\xBF" + book::replaced(right, "\n", "\r\n"), "passed");
  add("not_utf_8", "// Gr\xfc\xdf Gott\n" + right, "passed");
  add("markers_gone", book::replaced(right, "  // BEGIN 2.1\n", ""), "not compiled",
      "that begins this region is missing");
  samples.back().second = true;
  std::string unknown = "\nvoid many() {\n", macros = "#define M0 1 +\n", gone;
  for (int i = 0; i < 20000; ++i) unknown += fmt::format("  no_such_function_{}(1, 2, 3);\n", i);
  for (int i = 1; i <= 30; ++i) macros += fmt::format("#define M{0} M{1} M{1} M{1} M{1}\n", i, i - 1);
  for (int i = 0; i <= 30; ++i) gone += fmt::format("#undef M{}\n", i);
  add("floods_the_compilers_messages", answer(book, "2.1", kWrong, unknown + "}\n"), "");
  add("expands_macros_without_end", answer(book, "2.1", macros + "  return {float(M30 0), 1};\n" + gone),
      "not compiled");
  const std::string open(60000, '('), close(60000, ')');
  add("nests_brackets_without_end", answer(book, "2.1", "  return {float(" + open + "1" + close + "), 1};\n"), "");
}

}  // namespace

std::string solved(const book::Book& book) {
  return book::read_file(book.root / "solutions/02_online_softmax/online_softmax.cpp");
}

std::string untouched(const book::Book& book) {
  return grading::released_text(solution_file(book), grading::make_assignment(book, {"2.1", "2.3"}, {}));
}

std::string answer(const book::Book& book, const std::string& exercise, const std::string& body,
                   const std::string& at_end) {
  return book::replace_body(solution_file(book), exercise, lines_of(body)) + at_end;
}

std::string attack_body(const std::string& attack) {
  return fmt::format(
      "  const bool worked = {};\n  if (worked) throw std::runtime_error(\"ATTACK SUCCEEDED\");\n"
      "  return {{10, 1}};\n",
      attack);
}

std::vector<Sample> hostile_samples(const book::Book& book, const SamplePaths& paths) {
  std::vector<Sample> samples = Bank(book, paths).samples();
  add_bytes(book, samples);
  return samples;
}

void write_sample(const fs::path& folder, const Sample& sample) {
  fs::create_directories(folder / sample.name);
  for (const auto& [name, text] : sample.files) book::write_file(folder / sample.name / name, text);
}

}  // namespace workbook::test
