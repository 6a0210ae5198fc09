#include "common/simt/uninstrumented.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string_view>
#include <vector>

namespace simt {
namespace {

using Numbers = std::set<std::string_view>;

/// The line at the beginning of a text, which is removed.
std::string_view next_line(std::string_view& text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  text.remove_prefix(std::min(text.size(), line.size() + 1));
  return line;
}

/// A statement without the contents of texts and without the types in "MEM <struct S<2, 3>> [(void *)&D.5]": they may
/// have brackets and commas.
std::string simplified(std::string_view line) {
  std::string code;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (const std::size_t end = line.find(" [(", i); end != line.npos && line.substr(i).starts_with("MEM <"))
      code += "MEM", i = end + 1;
    code += line[i];
    if (line[i] != '"') continue;
    while (++i < line.size() && line[i] != '"') i += line[i] == '\\';
  }
  return code;
}

/// The numbers of the names in a text: "intD.9 iD.2731" has 9 and 2731.
Numbers numbers_in(std::string_view text) {
  Numbers numbers;
  for (std::size_t at = text.find("D."); at != text.npos; at = text.find("D.", at + 1)) {
    const std::string_view rest = text.substr(at + 2), digits = rest.substr(0, rest.find_first_not_of("0123456789"));
    if (!digits.empty()) numbers.insert(digits);
  }
  return numbers;
}

/// The variables in shared memory.
struct Shared {
  Numbers names;
  std::string_view constant;  ///< the first that is constant; empty: none
};
Shared shared_in(std::string_view variables) {
  Shared shared;
  std::string_view variable;  // "_ZN4ch044tileE/6 (const float ch04::tile [32]) @0x7f"
  while (!variables.empty()) {
    const std::string_view line = next_line(variables);
    if (!line.starts_with(' ')) variable = line.substr(0, line.rfind(") @"));
    if (!line.starts_with("  Varpool flags:") || line.find(" tls-") == line.npos) continue;
    variable.remove_prefix(std::min(variable.find(" (") + 2, variable.size()));
    const std::string_view name = variable.substr(0, variable.find(" ["));
    shared.names.insert(name.substr(name.find_last_of(": ") + 1));
    if (shared.constant.empty() && line.find(" read-only") != line.npos) shared.constant = variable;
  }
  return shared;
}

/// Whether an operand is memory other than a local variable: "*p_1(D)", "MEM[(struct S *)_4]", "tileD.2761[_3].x". A
/// name alone may also be a function's.
bool is_memory(std::string_view operand, const Numbers& locals, const Shared& shared) {
  if (operand.starts_with('&') || operand.starts_with("<retval>") || operand.starts_with("*<retval>")) return false;
  const bool by_address = operand.starts_with("MEM[") || operand.starts_with("TARGET_MEM_REF");
  if (operand.starts_with('*') || operand.find("->") != operand.npos || by_address) return true;
  const std::size_t name = operand.find("D.");
  if (name == operand.npos) return false;
  const std::size_t end = operand.find_first_of("[.", name + 2);
  const Numbers root = numbers_in(operand.substr(0, end));
  if (root.empty() || locals.contains(*root.begin())) return false;
  return end != operand.npos || shared.names.contains(operand.substr(0, name));
}

/// The arguments of the call that ends a statement, and where it stores its result. Empty: it is no call.
std::vector<std::string_view> operands_of_call(std::string_view code) {
  const std::size_t last = code.rfind(';');
  if (last == code.npos || last == 0 || code[last - 1] != ')') return {};
  std::vector<std::string_view> operands;
  int depth = 0;
  for (std::size_t end = last - 1, i = last; i-- > 0;) {
    depth += (code[i] == ')' || code[i] == ']') - (code[i] == '(' || code[i] == '[');
    if (depth > 1 || (depth == 1 && code[i] != ',')) continue;
    const std::size_t begin = std::min(code.find_first_not_of(' ', i + 1), end);
    operands.push_back(code.substr(begin, end - begin));
    end = i;
    if (depth > 0) continue;
    if (i == 0 || code[i - 1] != ' ') return {};  // the (D) of p_1(D)
    operands.push_back(code.substr(0, std::min(code.find(" = "), i) == i ? 0 : code.find(" = ")));
    return operands;
  }
  return operands;
}

/// The dump with this ending: ANSWER.cu.147t.tsan1, beside ANSWER.o. Empty: there is none.
std::string beside(const std::filesystem::path& object, const char* ending) {
  for (const auto& entry : std::filesystem::directory_iterator(object.parent_path())) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(object.stem().string() + ".") || !name.ends_with(ending)) continue;
    std::ifstream file(entry.path(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  return "";
}

}  // namespace

std::string uninstrumented(const std::filesystem::path& object) {
  const std::string dumped = beside(object, ".tsan1"), variables = beside(object, ".visibility");
  std::string_view code = dumped;
  // With a precompiled header, g++ 12 leaves some of its dumps empty.
  if (!code.empty() && variables.empty()) return "cannot be checked: the compiler has not listed its variables";
  const Shared shared = shared_in(variables);
  if (!shared.constant.empty()) return "declares a constant in shared memory: " + std::string(shared.constant);
  std::string_view function;
  Numbers locals;
  bool in_body = false;
  while (!code.empty()) {
    std::string_view line = next_line(code);
    if (line.starts_with(";; Function ")) {
      function = line.substr(12, line.rfind(" (_Z") - 12);
      locals.clear();
      in_body = false;
    }
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    in_body = in_body || line.starts_with("<bb ");
    if (!in_body && !line.starts_with("static ")) locals.merge(numbers_in(line.substr(0, line.find(" [value-expr"))));
    if (!in_body || line.starts_with("# ") || line.starts_with("if (")) continue;
    const std::string statement = simplified(line);
    for (const std::string_view operand : operands_of_call(statement))
      if (is_memory(operand, locals, shared))
        return "passes a struct in memory to a call, or stores its result there, in " + std::string(function);
  }
  return "";
}

}  // namespace simt
