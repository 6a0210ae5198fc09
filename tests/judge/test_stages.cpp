// Compares chapter.toml with a stage's own description.
#include <catch2/catch_test_macros.hpp>

#include "common/judge/stages.hpp"

using namespace workbook;
using judge::disagreement;

namespace {

book::Chapter chapter() {
  book::Chapter chapter;
  chapter.element = float32;
  chapter.pass = "forward";
  chapter.masks = {Mask::none, Mask::causal};
  chapter.backends = {Backend::cpu, Backend::sim};
  chapter.files = {"kernel.cu", "stage.cpp", "stage.cu"};
  return chapter;
}

worker::WorkerDescription description(Element element) {
  worker::StageDescription stage;
  stage.pass = stage.operation = "forward";
  stage.element = element;
  stage.masks = {Mask::none, Mask::causal};
  return {{stage}, {"forward"}};
}

}  // namespace

TEST_CASE("a manifest that agrees with the stage") {
  CHECK(disagreement(chapter(), Backend::cpu, description(float32)).empty());
  CHECK(disagreement(chapter(), Backend::sim, description(float16)).empty());
}

TEST_CASE("another element, pass, mask or backend is named") {
  CHECK(disagreement(chapter(), Backend::sim, description(bfloat16)) ==
        "on \"sim\" chapter.toml has the element \"float16\", but stage.cu has \"bfloat16\"");
  book::Chapter other = chapter();
  other.pass = "backward";
  CHECK(disagreement(other, Backend::cpu, description(float32)) ==
        "chapter.toml has pass = \"backward\", but stage.cpp has no such stage");
  other = chapter();
  other.more_passes = {"backward"};
  CHECK(disagreement(other, Backend::cpu, description(float32)) ==
        "chapter.toml has more_passes = \"backward\", but stage.cpp has no such stage");
  other = chapter();
  other.masks = {Mask::none};
  CHECK(disagreement(other, Backend::cpu, description(float32)) ==
        "chapter.toml has the masks none, but stage.cpp has none, causal");
  other = chapter();
  other.files = {"stage.cu"};
  CHECK(disagreement(other, Backend::cpu, description(float32)) ==
        "chapter.toml has the backend \"cpu\", but no stage.cpp among its files");
}
