#include "common/training/curves.hpp"

#include <fmt/format.h>

#include "common/book/files.hpp"
#include "common/worker/command.hpp"

namespace workbook::training {
namespace {

constexpr double kPlotSeconds = 60;

std::string csv(const Trained& trained) {
  std::string text = "step";
  for (const RunResult& result : trained.runs) {
    const char* run = name(result.run->precision);
    text += fmt::format(",{} loss,{} scale,{} skipped", run, run, run);
  }
  text += '\n';
  for (std::size_t i = 0; i < trained.longest(); ++i) {
    text += std::to_string(i + 1);
    for (const RunResult& result : trained.runs) {
      if (i < result.run->steps.size()) {
        const StepRecord& step = result.run->steps[i];
        text += fmt::format(",{},{},{}", step.loss, step.scale, int(step.skipped));
      } else {
        text += ",,,";
      }
    }
    text += '\n';
  }
  return text;
}

std::string gnuplot_script(const Trained& trained) {
  std::string script =
      "# Draws losses.svg from losses.csv: gnuplot losses.gnuplot\n"
      "set terminal svg size 900,600 background rgb 'white'\n"
      "set output 'losses.svg'\n"
      "set datafile separator ','\n"
      "set key autotitle columnhead top right\n"
      "set xlabel 'step'\n"
      "set ylabel 'loss, nats a byte'\n"
      "set grid\n"
      "plot ";
  for (std::size_t i = 0; i < trained.runs.size(); ++i) {
    script += fmt::format("{}'losses.csv' using 1:{} with lines title '{}'", i == 0 ? "" : ", \\\n     ", 2 + 3 * i,
                          name(trained.runs[i].run->precision));
  }
  return script + "\n";
}

}  // namespace

CurveFiles write_curves(const std::filesystem::path& folder, const Trained& trained) {
  CurveFiles files{{(folder / "losses.csv").string(), (folder / "losses.gnuplot").string()}, ""};
  book::write_file(files.paths[0], csv(trained));
  book::write_file(files.paths[1], gnuplot_script(trained));
  if (trained.longest() == 0) return files;
  if (worker::find_program("gnuplot").empty()) {
    files.note = "no plot: gnuplot is not installed; losses.gnuplot draws one where it is";
    return files;
  }
  worker::CommandOptions options;
  options.folder = folder;
  options.time = kPlotSeconds;
  const worker::CommandResult drawn = worker::run_command({"gnuplot", "losses.gnuplot"}, options);
  if (drawn.exit_code == 0 && !drawn.timed_out)
    files.paths.push_back((folder / "losses.svg").string());
  else
    files.note = "no plot: gnuplot failed: " + drawn.output;
  return files;
}

}  // namespace workbook::training
