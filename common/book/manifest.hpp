// chapter.toml: the description of a chapter with its exercises, hints and tests; and the book as the list of its
// chapters. Independent of compilers, CUDA and attention.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "common/attention/element_type.hpp"
#include "common/attention/setting.hpp"
#include "common/worker/backend.hpp"

namespace workbook::book {

/// A book file that cannot be used: what() begins with FILE:LINE if the location is known.
class ManifestError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Exercise {
  std::string id;     ///< "2.1"; the number before the point is the chapter's
  std::string slug;   ///< "one_pass_softmax"
  std::string title;  ///< "One-pass softmax of a row"
  int points = 0;
  int lines = 0;                   ///< approximate number of lines of the answer
  std::vector<std::string> hints;  ///< two or three, increasingly explicit
  std::vector<std::string> tests;  ///< names of the tests that prove it
  std::string why;                 ///< rationale of the book's answer, shown after solving; may be empty
  int line = 0;                    ///< its line in chapter.toml
};

/// A speed goal of the chapter's stage ([[goal]]): its speed relative to another kernel's, for one kind of shape.
struct Goal {
  static constexpr const char* kUnmasked = "unmasked";

  std::string over;  ///< a peer's name as in `bench`, another chapter's, or kUnmasked: the stage itself without a mask
  Mask mask;
  int d = 0;
  int least_N = 0;  ///< minimum of N = Nq = Nk
  int most_N = 0;   ///< maximum of N; 0: none
  double must = 0, hoped = 0;
};

struct Chapter {
  int number = 0;
  std::string slug;                      ///< "naive_attention"
  std::string title;                     ///< "Naive attention"
  std::string summary;                   ///< one sentence
  Element element = float32;             ///< type of Q, K, V, O on its first backend
  std::vector<Element> more_elements;    ///< further elements for which its kernels have a stage of the same pass
  std::string pass;                      ///< "forward" or "backward": the pass of the chapter's stage
  std::vector<std::string> more_passes;  ///< further passes with a stage, for the same elements and masks
  std::vector<Mask> masks;               ///< masks that the stage supports
  std::vector<Backend> shared_heads;     ///< backends on which it supports heads of Q that share K and V
  std::string use = "training";          ///< or "decoding" (few queries, many keys), "several GPUs"
  std::string architecture;              ///< "sm_90a": the target architecture for nvcc; empty: any
  std::vector<Backend> backends;         ///< the CPU, or the simulator and the GPU, or all; exercises run on the first
  std::vector<std::string> files;  ///< the exercise's source files, given headers included, relative to the folder
  std::vector<std::string> whole_tests;  ///< names of the whole-chapter tests
  std::vector<std::string> given_tests;  ///< the whole-chapter tests that test only given code
  std::vector<std::string> uses;         ///< earlier chapters whose given files it includes, by name: "05_causal"
  std::vector<std::string> compiles;     ///< earlier chapters whose kernels it compiles again, exercises included
  std::vector<Exercise> exercises;
  std::vector<Goal> goals;

  std::string name() const;  ///< "01_naive_attention", also the folder's name
  const Exercise* find(std::string_view id) const;
  std::vector<std::string> passes() const;  ///< the first is `pass`
  bool runs_on(Backend backend) const;
  /// The property of the problem that its stage does not support: the mask, or "Hkv < H". Empty if it supports the
  /// problem.
  std::string does_not_do(const Setting& setting, Backend backend) const;
  bool does(const Mask& mask) const;
  /// Type of Q, K, V, O on one of its backends. A CPU chapter with given kernels uses float16 in the kernels.
  Element element_on(Backend backend) const;
  /// Whether it has a stage for this element on the backend.
  bool takes(Element element, Backend backend) const;
};

/// The book: its folder and its chapters in order.
struct Book {
  std::filesystem::path root;
  std::vector<Chapter> chapters;

  std::filesystem::path solution(const Chapter& chapter, const std::string& file) const;  ///< solutions/NN_name/file
  std::filesystem::path reader(const Chapter& chapter, const std::string& file) const;    ///< chapters/NN_name/file
  std::filesystem::path manifest(const Chapter& chapter) const;  ///< chapters/NN_name/chapter.toml
  bool has_solutions(const Chapter& chapter) const;
  /// The folders of the chapters that it uses or compiles: in solutions/, or in chapters/ without solutions.
  std::vector<std::filesystem::path> used(const Chapter& chapter) const;
  const Chapter* find(int number) const;
  /// "1", "01", "01_naive_attention" or "naive_attention"; ManifestError listing the existing chapters.
  const Chapter& chapter(std::string_view which) const;
  /// "2.1"; ManifestError listing the existing exercises.
  const Exercise& exercise(std::string_view id) const;
};

/// Reads chapters/*/chapter.toml. ManifestError with FILE:LINE for: TOML errors, a missing, mistyped or unknown key; a
/// number or slug that does not match the folder; an exercise id of another chapter or given twice; an exercise without
/// two hints or without a test; a missing file; a used chapter that is not an earlier one.
Book load_book(const std::filesystem::path& root);

/// Reads one chapter.toml.
Chapter load_chapter(const std::filesystem::path& manifest);

}  // namespace workbook::book
