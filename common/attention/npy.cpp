#include "common/attention/npy.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <variant>

#include "common/attention/half.hpp"

// The format: numpy.org/doc/stable/reference/generated/numpy.lib.format.html. A file is the magic "\x93NUMPY", a major
// and a minor version, the length of the header (2 bytes in version 1, 4 bytes after), the header (a Python dictionary
// written out, such as {'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 64), }) and the data.

namespace workbook {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read and written in the byte order of memory");

constexpr const char* allowed_types = "allowed: little-endian float16 ('<f2'), float32 ('<f4') and float64 ('<f8')";

/// A value in the header's dictionary: text, True or False, or a tuple of whole numbers.
using Value = std::variant<std::string, bool, std::vector<std::int64_t>>;

/// Text from a file, made printable for a message.
std::string printable(std::string text) {
  for (char& c : text)
    if (!std::isprint(static_cast<unsigned char>(c))) c = '?';
  return text;
}

/// Reads the header's dictionary. It accepts only what the format allows: no expressions, and no nesting except tuples.
class HeaderParser {
 public:
  HeaderParser(const std::string& file, const std::string& header) : file_(file), header_(header) {}

  std::map<std::string, Value> parse() {
    std::map<std::string, Value> entries;
    expect('{');
    while (!accept('}')) {
      const std::string key = text();
      expect(':');
      if (!entries.emplace(key, value()).second) fail(fmt::format("the key '{}' occurs twice", printable(key)));
      if (!accept(',') && peek() != '}') fail("',' or '}' expected");
    }
    peek();
    if (at_ != header_.size()) fail("only spaces may follow the dictionary");
    return entries;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    const std::string rest = at_ < header_.size() ? printable(header_.substr(at_, 20)) : "nothing more";
    fail_input("{}: the .npy header is not a valid NumPy header: {}, found: {}", file_, what, rest);
  }
  /// The next character that is not a space; '\0' at the end.
  char peek() {
    while (at_ < header_.size() && std::isspace(static_cast<unsigned char>(header_[at_]))) ++at_;
    return at_ < header_.size() ? header_[at_] : '\0';
  }
  bool accept(char c) {
    if (peek() != c || at_ >= header_.size()) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!accept(c)) fail(fmt::format("'{}' expected", c));
  }
  std::string text() {
    const char quote = peek();
    if (quote != '\'' && quote != '"') fail("a quoted name expected");
    const std::size_t end = header_.find(quote, at_ + 1);
    if (end == std::string::npos) fail("a quote that does not end");
    const std::string result = header_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return result;
  }
  std::int64_t number() {
    peek();
    const std::size_t first = at_;
    const bool negative = accept('-');
    std::int64_t result = 0;
    const std::size_t first_digit = at_;
    for (; at_ < header_.size() && std::isdigit(static_cast<unsigned char>(header_[at_])); ++at_) {
      const int digit = header_[at_] - '0';
      if (result > (std::numeric_limits<std::int64_t>::max() - digit) / 10) {
        at_ = first;
        fail("a size of at most 9223372036854775807 expected");
      }
      result = 10 * result + digit;
    }
    if (at_ == first_digit) fail("a whole number expected");
    if (at_ < header_.size() && header_[at_] == 'L') ++at_;  // Python 2's suffix of long integers
    return negative ? -result : result;
  }
  Value value() {
    const char next = peek();
    if (next == '\'' || next == '"') return text();
    if (next == '(') {
      std::vector<std::int64_t> sizes;
      expect('(');
      while (!accept(')')) {
        sizes.push_back(number());
        if (!accept(',') && peek() != ')') fail("',' or ')' expected");
      }
      return sizes;
    }
    for (const bool flag : {true, false}) {
      const std::string name = flag ? "True" : "False";
      if (header_.compare(at_, name.size(), name) == 0) {
        at_ += name.size();
        return flag;
      }
    }
    if (next == '[') fail_input("{}: the array has records; {}", file_, allowed_types);
    fail("a text, True, False or a tuple expected");
  }

  const std::string& file_;
  const std::string& header_;
  std::size_t at_ = 0;
};

/// Reads an .npy file and tracks the number of remaining bytes, so that every length in the file is checked before use.
class Reader {
 public:
  explicit Reader(const std::filesystem::path& path) : name_(path.string()) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    if (status.type() == std::filesystem::file_type::not_found) fail_input("{}: no such file", name_);
    if (error) fail_input("{}: cannot read the file: {}", name_, error.message());
    if (status.type() == std::filesystem::file_type::directory)
      fail_input("{}: this is a folder; allowed: an .npy file", name_);
    if (status.type() != std::filesystem::file_type::regular)
      fail_input("{}: this is not a regular file; allowed: an .npy file", name_);
    left_ = std::filesystem::file_size(path, error);
    stream_.open(path, std::ios::binary);
    if (error || !stream_) fail_input("{}: cannot open the file: {}", name_, std::strerror(errno));
  }

  const std::string& name() const { return name_; }
  std::uint64_t left() const { return left_; }

  /// Reads `count` bytes; InputError naming `what` if the file has fewer.
  void read(void* to, std::uint64_t count, const char* what) {
    if (count > left_)
      fail_input("{}: the file ends within {}: {} bytes needed, {} present", name_, what, count, left_);
    stream_.read(static_cast<char*>(to), std::streamsize(count));
    if (std::uint64_t(stream_.gcount()) != count) fail_input("{}: reading {} failed", name_, what);
    left_ -= count;
  }

 private:
  std::string name_;
  std::ifstream stream_;
  std::uint64_t left_ = 0;
};

std::string read_header(Reader& reader) {
  char magic[6];
  reader.read(magic, 6, "the magic number");
  if (std::memcmp(magic, "\x93NUMPY", 6) != 0)
    fail_input("{}: the file does not start with the .npy magic (\\x93NUMPY)", reader.name());
  unsigned char version[2];
  reader.read(version, 2, "the version");
  if (version[0] < 1 || version[0] > 3 || version[1] != 0)
    fail_input("{}: .npy version {}.{}; allowed: 1.0, 2.0 and 3.0", reader.name(), version[0], version[1]);

  std::uint32_t length = 0;
  reader.read(&length, version[0] == 1 ? 2 : 4, "the length of the header");
  if (length > reader.left())
    fail_input("{}: the header should have {} bytes, but only {} follow", reader.name(), length, reader.left());
  std::string header(length, '\0');
  reader.read(header.data(), length, "the header");
  return header;
}

template <class T>
const T& entry(const Reader& reader, const std::map<std::string, Value>& header, const char* key,
               const char* expected) {
  const auto found = header.find(key);
  if (found == header.end()) fail_input("{}: the header has no '{}'", reader.name(), key);
  const T* value = std::get_if<T>(&found->second);
  if (!value) fail_input("{}: '{}' in the header must be {}", reader.name(), key, expected);
  return *value;
}

/// Reads all data as T and converts each element to float, in pieces, so that only the result needs memory.
template <class T, class Convert>
void read_values(Reader& reader, std::vector<float>& values, const Convert& convert) {
  std::vector<T> piece(std::min<std::size_t>(values.size(), 1 << 16));
  for (std::size_t first = 0; first < values.size(); first += piece.size()) {
    const std::size_t count = std::min(piece.size(), values.size() - first);
    reader.read(piece.data(), count * sizeof(T), "the data");
    for (std::size_t i = 0; i < count; ++i) values[first + i] = convert(piece[i], first + i);
  }
}

}  // namespace

Tensor<float> read_npy(const std::filesystem::path& path, bool rank_1) {
  Reader reader(path);
  const std::string text = read_header(reader);
  const std::map<std::string, Value> header = HeaderParser(reader.name(), text).parse();

  const std::string& type = entry<std::string>(reader, header, "descr", "a text such as '<f4'");
  const std::int64_t type_size = type == "<f2" ? 2 : type == "<f4" ? 4 : type == "<f8" ? 8 : 0;
  if (type_size == 0) fail_input("{}: elements of type '{}'; {}", reader.name(), printable(type), allowed_types);
  if (entry<bool>(reader, header, "fortran_order", "True or False"))
    fail_input("{}: the array is in Fortran order; allowed: C order (save numpy.ascontiguousarray(a))", reader.name());
  const auto& shape = entry<std::vector<std::int64_t>>(reader, header, "shape", "a tuple of sizes");
  for (const auto& [key, value] : header)
    if (key != "descr" && key != "fortran_order" && key != "shape")
      fail_input("{}: the header has an unknown key '{}'", reader.name(), printable(key));

  if (rank_1 ? shape.size() != 1 : shape.size() != 3 && shape.size() != 4)
    fail_input("{}: the array has {} dimensions, shape {}; allowed: {}", reader.name(), shape.size(), sizes_text(shape),
               rank_1 ? "1" : "3 (H, N, d) and 4 (B, H, N, d)");
  std::array<std::int64_t, 4> sizes{1, 1, 1, 1};
  std::copy(shape.begin(), shape.end(), sizes.begin() + std::ptrdiff_t(4 - shape.size()));
  const std::int64_t count = checked_size(reader.name(), {sizes[0], sizes[1], sizes[2], sizes[3]});
  const std::uint64_t bytes = std::uint64_t(count) * std::uint64_t(type_size);  // fits: checked as 8 bytes each
  if (reader.left() != bytes)
    fail_input("{}: shape {} of '{}' needs {} bytes of data, but the file has {}", reader.name(), sizes_text(shape),
               type, bytes, reader.left());

  Tensor<float> tensor(sizes);  // at most twice the size of the file, which has been checked
  if (type == "<f2") {
    read_values<std::uint16_t>(reader, tensor.values,
                               [](std::uint16_t code, std::size_t) { return half_to_float(code); });
  } else if (type == "<f4") {
    read_values<float>(reader, tensor.values, [](float value, std::size_t) { return value; });
  } else {
    read_values<double>(reader, tensor.values, [&](double value, std::size_t i) {
      const float result = float(value);
      if (std::isinf(result) && std::isfinite(value))
        fail_input("{}: element {} is {}, too large for float32 (at most {:.8g})", reader.name(), i, value,
                   std::numeric_limits<float>::max());
      return result;
    });
  }
  return tensor;
}

void write_npy(const std::filesystem::path& path, const Tensor<float>& tensor, int rank) {
  const std::string name = path.string();
  if (rank != 3 && rank != 4) fail_input("{}: rank {}; allowed: 3 and 4", name, rank);
  std::vector<std::int64_t> shape(tensor.sizes.begin(), tensor.sizes.end());
  const std::int64_t count = checked_size(name, {shape[0], shape[1], shape[2], shape[3]});
  if (std::int64_t(tensor.values.size()) != count)
    fail_input("{}: {} values given for sizes {}", name, tensor.values.size(), sizes_text(shape));
  if (rank == 3) {
    if (shape[3] == 1)
      shape.pop_back();  // the LSE: (B, H, N)
    else if (shape[0] == 1)
      shape.erase(shape.begin());
    else
      fail_input("{}: rank 3 needs a first or a last size of 1; the sizes are {}", name, sizes_text(shape));
  }

  // Version 1.0. Spaces and a line feed pad the header to a multiple of 64 bytes, as the format requires.
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': {}, }}", sizes_text(shape));
  constexpr std::size_t before = 10;  // magic, version, length
  header.append(63 - (before + header.size()) % 64, ' ').push_back('\n');

  // In the same folder, so that renaming does not cross file systems. "x": never overwrites an existing file.
  static std::atomic<unsigned> counter{0};
  std::filesystem::path temporary = path;
  temporary.replace_filename(fmt::format(".{}.tmp-{}-{}", path.filename().string(), ::getpid(), counter++));
  std::FILE* file = std::fopen(temporary.c_str(), "wbx");
  if (!file) fail_input("{}: cannot write the file: {}", name, std::strerror(errno));

  const unsigned char start[before] = {0x93,
                                       'N',
                                       'U',
                                       'M',
                                       'P',
                                       'Y',
                                       1,
                                       0,
                                       static_cast<unsigned char>(header.size() % 256),
                                       static_cast<unsigned char>(header.size() / 256)};
  bool good = std::fwrite(start, 1, before, file) == before &&
              std::fwrite(header.data(), 1, header.size(), file) == header.size() &&
              std::fwrite(tensor.values.data(), sizeof(float), tensor.values.size(), file) == tensor.values.size();
  good = std::fclose(file) == 0 && good;
  good = good && std::rename(temporary.c_str(), path.c_str()) == 0;
  if (!good) {
    const std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    fail_input("{}: cannot write the file: {}", name, reason);
  }
}

}  // namespace workbook
