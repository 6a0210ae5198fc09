#include "tests/support/context.hpp"

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace workbook::test {
namespace {

Context read_context() {
  const char* path = std::getenv("WORKBOOK_CONTEXT");
  if (path == nullptr) throw std::runtime_error("WORKBOOK_CONTEXT is not set: run these tests with ./workbook test");
  std::ifstream file(path);
  const nlohmann::json json = nlohmann::json::parse(file);
  Context context;
  context.chapter = json.at("chapter");
  context.backend = worker::backend_of(json.at("backend").get<std::string>());
  context.unavailable = json.at("unavailable");
  context.counts = json.at("counts");
  context.element = json.at("element");
  context.debugger = json.at("debugger");
  context.time_limit = json.at("time_limit");
  context.version = json.at("version");
  context.worker_prefix = json.at("worker_prefix");
  context.previous = json.at("previous");
  context.previous_element = json.at("previous_element");
  context.failed = json.at("failed");
  for (const auto& [name, subject] : json.at("subjects").items()) {
    Subject& read = context.subjects[name];
    read = {subject.at("executable"), subject.at("not_compiled"), subject.at("open"), subject.at("on_host")};
    if (!subject.contains("wrong_executable")) continue;
    read.wrong_executable = subject.at("wrong_executable");
    subject.at("calls").get_to(read.calls);
    subject.at("wrong").get_to(read.wrong);
    subject.at("wrong_seconds").get_to(read.wrong_seconds);
    subject.at("wrong_once").get_to(read.wrong_once);
  }
  return context;
}

}  // namespace

const Context& context() {
  static const Context context = read_context();
  return context;
}

}  // namespace workbook::test
