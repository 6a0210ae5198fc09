// What goes wrong with masks that are any function of a pair.
#include "tests/01_naive_attention/mistakes.hpp"

namespace workbook::test {
namespace {

const judge::Declared declared({.chapter = "16_any_pair", .uses = {"08_registers", "09_backward_registers"}});

}  // namespace
}  // namespace workbook::test
