// 32-bit multiplications of shape numbers: absent in the book's kernels, detected in a reader's.
#include <fmt/format.h>

#include <catch2/catch_test_macros.hpp>
#include <filesystem>

#include "common/book/files.hpp"
#include "common/book/offsets.hpp"
#include "tests/text.hpp"

using namespace workbook;
using namespace workbook::book;
namespace fs = std::filesystem;

namespace {

std::string found_in(const std::string& source) {
  std::string all;
  for (const NarrowProduct& product : narrow_products(source))
    all += fmt::format("{}: {};", product.line, product.text);
  return all;
}

}  // namespace

TEST_CASE("a 32-bit multiplication of shape sizes is found, with its line") {
  CHECK(found_in("int i =\n  blockIdx.x * blockDim.x + threadIdx.x;") == "2: blockIdx.x * blockDim.x;");
  CHECK(found_in("void f(int Nq, int head) {\n  q += head * Nq * d;\n}") == "2: head * Nq;2: head * Nq * d;");
  CHECK(found_in("const int head = blockIdx.x / tiles;\nconst half* k = K + head * rows * d;") ==
        "2: head * rows;2: head * rows * d;");
  // Too late: the result is widened after the 32-bit multiplication.
  CHECK(found_in("const std::int64_t i = std::int64_t(blockIdx.x * blockDim.x);") == "1: blockIdx.x * blockDim.x;");
  CHECK(found_in("std::int64_t i = blockIdx.x * blockDim.x;") == "1: blockIdx.x * blockDim.x;");
  CHECK(found_in("const int Nq = sizes.Nq;\nuse(head, Nq * d);") == "2: Nq * d;");
  CHECK(found_in("void f(std::int64_t N) { const std::uint64_t stride = int(N) * d * bytes; }") ==
        "1: int(N) * d;1: int(N) * d * bytes;");
  CHECK(found_in("use(a, gridDim.x * blockDim.x)") == "1: gridDim.x * blockDim.x;");
}

TEST_CASE("a multiplication that is 64 bits wide in time, or small, is not reported") {
  CHECK(found_in("std::int64_t i = blockIdx.x * std::int64_t(blockDim.x) + threadIdx.x;").empty());
  CHECK(found_in("std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x;").empty());
  CHECK(found_in("void f(std::int64_t Nq) { const std::int64_t head = blockIdx.x; q += head * Nq * d; }").empty());
  CHECK(found_in("int row = threadIdx.x / 8; tile[row * d] = 0;").empty());
  CHECK(found_in("for (int n = lane; n < 4 * d; n += 32) { const int row = n / (d / 8); O[row * d] = 0; }").empty());
  CHECK(found_in("void f(int Nq) { const int rows = min(Br, Nq - first); use(rows * d); }").empty());
  CHECK(found_in("void f(int Nq) { if (query < Nq) *p = 1; }").empty());
  CHECK(found_in("const int head = blockIdx.x;\nsum -= exp2(sink[head] - brings.x) * brings.y;").empty());
  CHECK(found_in("int head(int row) { return row - heads * query(row); }").empty());
  CHECK(found_in("// blockIdx.x * blockDim.x\nauto s = \"blockIdx.x * blockDim.x\";").empty());
}

namespace {

/// Multiplications in the book's kernels that are reported although a bound, which the text does not show, makes them
/// safe.
std::vector<std::string> bounded_in(const fs::path& file) {
  // The number of a Q tile among all heads': 2^31 of them would be 2^37 queries, which no memory holds.
  if (file == "09_backward_registers/backward_registers.cu") return {"head * q_tiles"};
  // The same; and the first query of a Q tile, less than Nq.
  if (file == "17_rope_dropout/rope_dropout_backward.cu") return {"head * q_tiles", "i * T::Br"};
  // Block numbers, rounded down to whole groups of heads: no larger than blockIdx.x. And the first query of a tile,
  // less than Nq, which TMA's coordinates have as an int.
  if (file == "12_fp8/phases.hpp")
    return {"blockIdx.x / (heads_per_group*call.q_tiles) * heads_per_group", "first_head * call.q_tiles",
            "(call.q_tiles-1-index_in_group/heads) * T::Br"};
  // The query after the last one of a Q tile: less than Nq + Br.
  if (file == "15_which_pairs/which_pairs_backward.cu") return {"(n+1) * T::Br"};
  // The rows of the heads that are packed: no memory holds 2^31 of them.
  if (file == "14_grouped_queries/packed_rows.hpp") return {"heads * Nq"};
  // The first row of Q and the first and the last key of a block: no more than G·Nq and Nk, which are ints.
  if (file == "21_paged_cache/paged_cache.cu") return {"int(head%sizes.row_blocks) * Br"};
  if (file == "20_split_kv/split_kv.cu")
    return {"int(head%sizes.row_blocks) * Br", "int(begin-first_unit) * unit", "int(end-first_unit) * unit"};
  // A block's first query and first key: no more than Nq and Nk.
  if (file == "16_any_pair/lists.hpp") return {"int(block/table.columns) * Br", "int(block%table.columns) * Bc"};
  return {};
}

}  // namespace

TEST_CASE("the book's kernels multiply no shape sizes in 32 bits") {
  int files = 0;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(WORKBOOK_SOURCE) / "solutions")) {
    const std::string extension = entry.path().extension();
    if (extension != ".cu" && extension != ".cuh" && extension != ".hpp") continue;
    INFO(entry.path());
    const std::vector<std::string> bounded =
        bounded_in(entry.path().parent_path().filename() / entry.path().filename());
    std::vector<std::string> found;
    for (const NarrowProduct& product : narrow_products(read_file(entry.path()))) found.push_back(product.text);
    CHECK(found == bounded);
    ++files;
  }
  CHECK(files > 30);
}

TEST_CASE("32-bit offsets in the copy and in the rows of the backward pass are found") {
  const auto wrong = [](const char* file, const std::string& from, const std::string& to) {
    std::string text = read_file(fs::path(WORKBOOK_SOURCE) / "solutions" / file);
    const std::size_t at = text.find(from);
    REQUIRE(at != std::string::npos);
    return found_in(text.replace(at, from.size(), to));
  };
  CHECK(contains(wrong("03_tiled_wmma/warmups.cu", "blockIdx.x * std::int64_t(blockDim.x)", "blockIdx.x * blockDim.x"),
                 "blockIdx.x * blockDim.x"));
  CHECK(contains(wrong("06_backward/prepare_rows.cu", "std::int64_t(blockIdx.x) * of_block", "blockIdx.x * of_block"),
                 "blockIdx.x * of_block"));
}
