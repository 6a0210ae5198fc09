// .npy files: NumPy's files are read, malformed files are refused with their name, and written files are complete or
// absent.

#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>

#include "common/attention/half.hpp"
#include "common/attention/npy.hpp"
#include "tests/support/temporary_folder.hpp"

using namespace workbook;
namespace fs = std::filesystem;

namespace {

struct Folder : TemporaryFolder {
  std::vector<std::string> names() const {
    std::vector<std::string> result;
    for (const auto& entry : fs::directory_iterator(path())) result.push_back(entry.path().filename().string());
    std::sort(result.begin(), result.end());
    return result;
  }
};

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
}

/// A file as bytes: magic, version, length, header, data.
std::string npy(const std::string& header, const std::string& data, int major = 1) {
  std::string bytes = "\x93NUMPY";
  bytes.push_back(char(major));
  bytes.push_back('\0');
  const std::uint32_t length = std::uint32_t(header.size());
  bytes.append(reinterpret_cast<const char*>(&length), major == 1 ? 2 : 4);
  return bytes + header + data;
}
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}
std::string header_of(const std::string& type, const std::string& shape, const std::string& fortran = "False") {
  return "{'descr': '" + type + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
}
const std::string six_floats = bytes_of(std::vector<float>{1, 2, 3, 4, 5, 6});

}  // namespace

TEST_CASE("float32, float64 and float16 are read, rank 3 and 4, versions 1 to 3") {
  const Folder folder;
  const auto read = [&](const std::string& bytes) {
    write_file(folder / "x.npy", bytes);
    return read_npy(folder / "x.npy");
  };
  const std::vector<float> expected{1, 2, 3, 4, 5, 6};
  for (const int version : {1, 2, 3}) {
    const Tensor<float> x = read(npy(header_of("<f4", "(1, 3, 2)"), six_floats, version));
    CHECK(x.sizes == std::array<std::int64_t, 4>{1, 1, 3, 2});
    CHECK(x.values == expected);
  }
  CHECK(read(npy(header_of("<f4", "(3, 1, 1, 2)"), six_floats)).sizes == std::array<std::int64_t, 4>{3, 1, 1, 2});
  write_file(folder / "x.npy", npy(header_of("<f4", "(6,)"), six_floats));
  CHECK(read_npy(folder / "x.npy", true).sizes == std::array<std::int64_t, 4>{1, 1, 1, 6});
  CHECK(read(npy(header_of("<f8", "(1, 3, 2)"), bytes_of(std::vector<double>{1, 2, 3, 4, 5, 6}))).values == expected);
  std::vector<std::uint16_t> codes;
  for (const float value : expected) codes.push_back(float_to_half(value));
  CHECK(read(npy(header_of("<f2", "(1, 3, 2)"), bytes_of(codes))).values == expected);
}

TEST_CASE("the header may be spelled in any way that Python allows") {
  const Folder folder;
  for (const std::string& header : {
           std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 2), }          \n"),
           std::string("{\"shape\":(1,3,2),\"fortran_order\":False,\"descr\":\"<f4\"}"),
           std::string("  {  'fortran_order' : False ,\n\t'shape' : ( 1 , 3 , 2 , ) , 'descr' : '<f4' , }  "),
           std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 3L, 2L)}"),
       }) {
    write_file(folder / "x.npy", npy(header, six_floats));
    CHECK(read_npy(folder / "x.npy").sizes == std::array<std::int64_t, 4>{1, 1, 3, 2});
  }
}

TEST_CASE("a malformed file is refused, naming the file and the error") {
  const Folder folder;
  const std::string good_header = header_of("<f4", "(1, 3, 2)");
  const std::string good = npy(good_header, six_floats);
  struct Bad {
    std::string bytes, message;
  };
  std::string wrong_magic = good, version_4 = good, version_1_1 = good, version_0 = good;
  wrong_magic[0] = 'x';
  version_4[6] = 4;
  version_1_1[7] = 1;
  version_0[6] = 0;
  const auto with_header = [&](const std::string& header) { return npy(header, six_floats); };
  const auto with_shape = [&](const std::string& shape) { return npy(header_of("<f4", shape), six_floats); };
  const std::vector<Bad> cases{
      {"", "magic number"},
      {good.substr(0, 4), "magic number"},
      {wrong_magic, "does not start with the .npy magic"},
      {"PK\x03\x04 a zip file, that is .npz, here", "does not start with the .npy magic"},
      {good.substr(0, 6), "version"},
      {good.substr(0, 7), "version"},
      {version_4, "version 4.0"},
      {version_1_1, "version 1.1"},
      {version_0, "version 0.0"},
      {good.substr(0, 8), "length of the header"},
      {good.substr(0, 9), "length of the header"},
      {npy(good_header, six_floats, 2).substr(0, 10), "length of the header"},
      {good.substr(0, 30), "only 20 follow"},
      {std::string("\x93NUMPY\x02\0\xff\xff\xff\xff{}", 14), "4294967295 bytes"},
      {std::string("\x93NUMPY\x01\0\xff\xff", 10) + good_header, "65535 bytes"},
      {npy("", six_floats), "'{' expected"},
      {npy(good_header, six_floats.substr(0, 23)), "needs 24 bytes of data, but the file has 23"},
      {npy(good_header, ""), "the file has 0"},
      {good + "x", "needs 24 bytes of data, but the file has 25"},
      {with_header(header_of("<f4", "(1, 3, 2)", "True")), "Fortran order"},
      {with_header(header_of(">f4", "(1, 3, 2)")), "'>f4'"},
      {with_header(header_of("<i4", "(1, 3, 2)")), "'<i4'"},
      {with_header(header_of("|O", "(1, 3, 2)")), "'|O'"},
      {with_header(header_of("<c8", "(1, 3, 1)")), "'<c8'"},
      {with_header(header_of("<f16", "(1, 3, 2)")), "'<f16'"},
      {with_header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1, 3, 2), }"), "records"},
      {with_header("{'descr': '<f4', 'fortran_order': False, }"), "no 'shape'"},
      {with_header("{'fortran_order': False, 'shape': (1, 3, 2), }"), "no 'descr'"},
      {with_header("{'descr': '<f4', 'shape': (1, 3, 2), }"), "no 'fortran_order'"},
      {with_header("{}"), "no 'descr'"},
      {with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 2), 'more': True}"), "unknown key 'more'"},
      {with_header("{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 2)}"), "twice"},
      {with_header("{'descr': '<f4', 'fortran_order': 'no', 'shape': (1, 3, 2)}"),
       "'fortran_order' in the header must be"},
      {with_header("{'descr': True, 'fortran_order': False, 'shape': (1, 3, 2)}"), "'descr' in the header must be"},
      {with_header("{'descr': '<f4', 'fortran_order': False, 'shape': '6'}"), "'shape' in the header must be"},
      {with_header("{'descr': '<f4', 'fortran_order': False, 'shape': 6}"), "a tuple expected"},
      {with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 2)"), "',' or '}' expected"},
      {with_header("{'descr': '<f4' 'fortran_order': False, 'shape': (1, 3, 2)}"), "',' or '}' expected"},
      {with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 3, 2"), "',' or ')' expected"},
      {with_header("{'descr: '<f4'"), "':' expected"},
      {with_header("{'descr"), "does not end"},
      {with_header("[1, 2, 3]"), "'{' expected"},
      {with_header("print('hello')"), "'{' expected"},
      {with_header(good_header + " + more"), "only spaces"},
      {with_header(good_header + std::string(1, '\0')), "only spaces"},
      {with_shape("()"), "0 dimensions"},
      {with_shape("(6,)"), "1 dimensions"},
      {with_shape("(3, 2)"), "2 dimensions, shape (3, 2); allowed: 3 (H, N, d) and 4"},
      {with_shape("(1, 1, 1, 3, 2)"), "5 dimensions"},
      {with_shape("(1, 0, 2)"), "a size is 0"},
      {with_shape("(1, -3, 2)"), "a size is -3"},
      {with_shape("(1, 3.5, 2)"), "',' or ')' expected"},
      {with_shape("(1, x, 2)"), "a whole number expected"},
      {with_shape("(1, (3), 2)"), "a whole number expected"},
      {with_shape("(4294967296, 4294967296, 4294967296)"), "too large"},
      {with_shape("(9223372036854775807, 9223372036854775807, 2, 1)"), "too large"},
      {with_shape("(9223372036854775808, 1, 1)"), "at most 9223372036854775807"},
      {with_shape("(99999999999999999999999999, 1, 1)"), "at most 9223372036854775807"},
      {with_shape("(2305843009213693951, 1, 1)"), "too large"},
      {with_shape("(1000000000000000, 1, 1)"), "needs 4000000000000000 bytes"},  // fits 64 bits; must not be allocated
      {npy(header_of("<f8", "(1, 1, 2)"), bytes_of(std::vector<double>{1, 1e39})), "element 1 is 1e+39, too large"},
      {npy(header_of("<f8", "(1, 1, 2)"), bytes_of(std::vector<double>{-1e300, 1})), "element 0 is -1e+300, too large"},
  };
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const fs::path path = folder / fmt::format("bad_{}.npy", i);
    write_file(path, cases[i].bytes);
    INFO("case " << i << ": " << cases[i].message);
    CHECK_THROWS_MATCHES(read_npy(path), InputError,
                         Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring(path.filename().string()) &&
                                                         Catch::Matchers::ContainsSubstring(cases[i].message)));
  }
}

TEST_CASE("every shorter version of a good file is refused") {
  const Folder folder;
  const std::string good = npy(header_of("<f4", "(1, 3, 2)"), six_floats);
  for (std::size_t length = 0; length < good.size(); ++length) {
    write_file(folder / "short.npy", good.substr(0, length));
    REQUIRE_THROWS_AS(read_npy(folder / "short.npy"), InputError);
  }
}

TEST_CASE("a file with any one byte changed is read or refused, never worse") {
  const Folder folder;
  const std::string good = npy(header_of("<f4", "(1, 3, 2)"), six_floats);
  int refused = 0;
  for (std::size_t at = 0; at < good.size() - six_floats.size(); ++at)
    for (const char byte : {'\0', '\xff', '9', '(', '\'', '}'}) {
      std::string changed = good;
      changed[at] = byte;
      write_file(folder / "changed.npy", changed);
      try {
        read_npy(folder / "changed.npy");
      } catch (const InputError&) {
        ++refused;
      }
    }
  CHECK(refused > 200);
}

TEST_CASE("a path that is not a file is refused") {
  const Folder folder;
  const auto refused = [](const fs::path& path, const std::string& message) {
    CHECK_THROWS_MATCHES(read_npy(path), InputError,
                         Catch::Matchers::MessageMatches(Catch::Matchers::ContainsSubstring(path.filename().string()) &&
                                                         Catch::Matchers::ContainsSubstring(message)));
  };
  refused(folder / "missing.npy", "no such file");
  refused(folder / "missing_folder/x.npy", "no such file");
  fs::create_directory(folder / "folder.npy");
  refused(folder / "folder.npy", "is a folder");
  write_file(folder / "file", "");
  refused(folder / "file/x.npy", "");
  REQUIRE(::mkfifo((folder / "pipe.npy").c_str(), 0600) == 0);
  refused(folder / "pipe.npy", "not a regular file");  // and does not wait for a writer
  fs::create_symlink("loop.npy", folder / "loop.npy");
  refused(folder / "loop.npy", "cannot read the file");
  write_file(folder / "secret.npy", npy(header_of("<f4", "(1, 3, 2)"), six_floats));
  fs::permissions(folder / "secret.npy", fs::perms::none);
  if (::geteuid() != 0) refused(folder / "secret.npy", "cannot open the file");  // root may read everything
}

TEST_CASE("a written tensor is read back bit by bit") {
  const Folder folder;
  using limits = std::numeric_limits<float>;
  Tensor<float> x({1, 2, 3, 2});
  x.values = {-0.0f,
              0.0f,
              limits::denorm_min(),
              -limits::denorm_min(),
              limits::min(),
              limits::max(),
              -limits::max(),
              limits::infinity(),
              -limits::infinity(),
              limits::quiet_NaN(),
              1.0f / 3,
              0x1.fffffep-127f};
  for (const int rank : {3, 4}) {
    write_npy(folder / "x.npy", x, rank);
    const Tensor<float> back = read_npy(folder / "x.npy");
    CHECK(back.sizes == x.sizes);
    CHECK(std::memcmp(back.values.data(), x.values.data(), x.values.size() * sizeof(float)) == 0);
  }
  CHECK(folder.names() == std::vector<std::string>{"x.npy"});
}

TEST_CASE("float64 infinities and NaN are read as they are, and float64 is rounded to nearest") {
  const Folder folder;
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> values{infinity, -infinity, std::nan(""), 0.1, 1e-60, -0.0};
  write_file(folder / "x.npy", npy(header_of("<f8", "(1, 1, 6)"), bytes_of(values)));
  const Tensor<float> x = read_npy(folder / "x.npy");
  CHECK(x.values[0] == infinity);
  CHECK(x.values[1] == -infinity);
  CHECK(std::isnan(x.values[2]));
  CHECK(x.values[3] == 0.1f);
  CHECK(x.values[4] == 0);
  CHECK(std::signbit(x.values[5]));
}

TEST_CASE("a tensor larger than the reading buffer is read whole") {
  const Folder folder;
  Tensor<float> x({1, 3, 1001, 64});
  for (std::size_t i = 0; i < x.values.size(); ++i) x.values[i] = float(i);
  write_npy(folder / "x.npy", x);
  CHECK(read_npy(folder / "x.npy").values == x.values);
}

TEST_CASE("a written file is as NumPy writes it") {
  const Folder folder;
  write_npy(folder / "x.npy", Tensor<float>({1, 2, 3, 4}, 1.0f));
  const std::string bytes = file_text(folder / "x.npy");
  CHECK(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\0", 8));
  CHECK(bytes.size() == 128 + 24 * 4);
  CHECK(bytes.substr(8, 2) == std::string("\x76\0", 2));  // 118 = 128 - 10
  CHECK(bytes.substr(10, 61) == "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2, 3, 4");
  CHECK(bytes[127] == '\n');
}

TEST_CASE("rank 3 drops a size of 1, the last one first, and nothing else") {
  const Folder folder;
  const auto shape_written = [&](std::array<std::int64_t, 4> sizes) {
    write_npy(folder / "x.npy", Tensor<float>(sizes), 3);
    const std::string bytes = file_text(folder / "x.npy");
    const std::size_t from = bytes.find('(');
    return bytes.substr(from, bytes.find(')') - from + 1);
  };
  CHECK(shape_written({1, 2, 3, 4}) == "(2, 3, 4)");
  CHECK(shape_written({5, 2, 3, 1}) == "(5, 2, 3)");  // an LSE
  CHECK(shape_written({1, 2, 3, 1}) == "(1, 2, 3)");
  CHECK_THROWS_AS(write_npy(folder / "y.npy", Tensor<float>({5, 2, 3, 4}), 3), InputError);
  CHECK_THROWS_AS(write_npy(folder / "y.npy", Tensor<float>({1, 2, 3, 4}), 2), InputError);
  CHECK_THROWS_AS(write_npy(folder / "y.npy", Tensor<float>()), InputError);
  CHECK(folder.names() == std::vector<std::string>{"x.npy"});
}

TEST_CASE("a failed write leaves no temporary file and does not change the old file") {
  const Folder folder;
  const Tensor<float> x({1, 1, 2, 2}, 1.0f);
  CHECK_THROWS_AS(write_npy(folder / "missing/x.npy", x), InputError);
  write_file(folder / "file", "as it was");
  CHECK_THROWS_AS(write_npy(folder / "file/x.npy", x), InputError);
  CHECK(folder.names() == std::vector<std::string>{"file"});

  // The temporary file can be written but not renamed, because a folder has that name.
  fs::create_directory(folder / "x.npy");
  write_file(folder / "x.npy/inside", "");
  CHECK_THROWS_AS(write_npy(folder / "x.npy", x), InputError);
  CHECK(folder.names() == std::vector<std::string>{"file", "x.npy"});
  CHECK(file_text(folder / "file") == "as it was");

  // Impossible names.
  CHECK_THROWS_AS(write_npy("", x), InputError);
  CHECK_THROWS_AS(write_npy(folder / std::string(300, 'x'), x), InputError);
  CHECK(folder.names() == std::vector<std::string>{"file", "x.npy"});
}

TEST_CASE("writing replaces an older file whole") {
  const Folder folder;
  write_npy(folder / "x.npy", Tensor<float>({1, 1, 100, 2}, 1.0f));
  write_npy(folder / "x.npy", Tensor<float>({1, 1, 2, 2}, 3.0f));
  CHECK(read_npy(folder / "x.npy").values == std::vector<float>(4, 3.0f));
}
