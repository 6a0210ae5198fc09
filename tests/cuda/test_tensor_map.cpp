// tensor_map refuses what the driver would refuse, and names the argument, its value and what is allowed.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <functional>

#include "common/cuda/error.hpp"
#include "common/cuda/tensor_map.hpp"

using namespace workbook::cuda;
using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;

namespace {

/// The arguments of tensor_map; by default, a map of 8 heads of 100 rows of 64 elements of 2 bytes.
struct MapArguments {
  const half* memory = nullptr;
  std::vector<std::uint64_t> sizes{64, 100, 8}, strides{128, 12800};
  std::vector<std::uint32_t> box{64, 32, 1};
  Swizzle swizzle = Swizzle::bytes_128;
  std::uint64_t before = 0;
};

void expect_refused(const std::function<void(MapArguments&)>& change, const std::string& message) {
  alignas(16) static half memory[16];
  MapArguments arguments;
  arguments.memory = memory;
  change(arguments);
  INFO(message);
  CHECK_THROWS_MATCHES(tensor_map(arguments.memory, arguments.sizes, arguments.strides, arguments.box,
                                  arguments.swizzle, arguments.before),
                       Error, MessageMatches(ContainsSubstring("tensor_map: " + message)));
}

}  // namespace

TEST_CASE("a tensor map has the given sizes, strides and box") {
  alignas(16) static half memory[16];
  const TensorMap map = tensor_map(memory, {64, 100, 8}, {128, 12800}, {64, 32, 1}, Swizzle::bytes_128);
  CHECK(map.dimensions == 3);
  CHECK(map.element_bytes == 2);
  CHECK(map.sizes[1] == 100);
  CHECK(map.strides[2] == 12800);
  CHECK(map.box[1] == 32);
}

TEST_CASE("a tensor map refuses dimensions that do not fit each other") {
  expect_refused([](MapArguments& t) { t.sizes = {64}, t.strides = {}, t.box = {64}; }, "1 sizes; allowed: 2 to 5");
  expect_refused([](MapArguments& t) { t.sizes.assign(6, 64), t.strides.assign(5, 128), t.box.assign(6, 1); },
                 "6 sizes; allowed: 2 to 5");
  expect_refused([](MapArguments& t) { t.strides = {128}; }, "1 strides for 3 sizes");
  expect_refused([](MapArguments& t) { t.box = {64, 32}; }, "a box of 2 dimensions for a tensor of 3");
}

TEST_CASE("a tensor map refuses numbers that TMA does not support") {
  expect_refused([](MapArguments& t) { t.memory += 4; },
                 "memory is not aligned; allowed: an address that is a multiple of 16 bytes");
  expect_refused([](MapArguments& t) { t.before = 8; },
                 "before is 8 bytes; allowed: multiples of 16, up to the memory's address");
  expect_refused([](MapArguments& t) { t.before = ~std::uint64_t(15); }, "before is 18446744073709551600 bytes");
  expect_refused([](MapArguments& t) { t.sizes[1] = 0; }, "sizes[1] is 0; allowed: 1 to 2^32");
  expect_refused([](MapArguments& t) { t.sizes[2] = (std::uint64_t(1) << 32) + 1; }, "sizes[2] is 4294967297");
  expect_refused([](MapArguments& t) { t.box[1] = 0; }, "box[1] is 0; allowed: 1 to 256");
  expect_refused([](MapArguments& t) { t.box[1] = 257; }, "box[1] is 257; allowed: 1 to 256");
  expect_refused([](MapArguments& t) { t.strides[0] = 100; },
                 "strides[0] is 100 bytes; allowed: multiples of 16 below 2^40");
  expect_refused([](MapArguments& t) { t.strides[1] = 0; }, "strides[1] is 0 bytes");
  expect_refused([](MapArguments& t) { t.strides[1] = std::uint64_t(1) << 40; }, "strides[1] is 1099511627776 bytes");
}

TEST_CASE("a tensor map refuses rows that the swizzle does not fit") {
  expect_refused([](MapArguments& t) { t.box[0] = 4, t.swizzle = Swizzle::none; },
                 "a row of the box has 8 bytes; allowed: multiples of 16");
  expect_refused([](MapArguments& t) { t.swizzle = Swizzle::bytes_64; },
                 "a row of the box has 128 bytes; allowed with this swizzle: 64");
  expect_refused([](MapArguments& t) { t.box[0] = 32; },
                 "a row of the box has 64 bytes; allowed with this swizzle: 128");
}
