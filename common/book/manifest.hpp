// chapter.toml: what a chapter is, its exercises, hints and the tests that prove them; and the book as the list of its
// chapters. Knows nothing of compilers, CUDA or attention.
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

/// A book file that cannot be used: what() begins with FILE:LINE where the place is known.
class ManifestError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct Exercise {
  std::string id;     ///< "2.1"; the number before the point is the chapter's
  std::string slug;   ///< "one_pass_softmax"
  std::string title;  ///< "One-pass softmax of a row"
  int points = 0;
  int lines = 0;                   ///< about how many lines the answer has
  std::vector<std::string> hints;  ///< two or three, growing more explicit
  std::vector<std::string> tests;  ///< names of the tests that prove it
  std::string why;                 ///< why the book's answer is as it is, for whoever has found one; may be empty
  int line = 0;                    ///< where it stands in chapter.toml
};

/// How fast the chapter's stage should be, as its [[goal]] says: its speed over that of another, on one kind of shape.
struct Goal {
  static constexpr const char* kUnmasked = "unmasked";

  std::string over;  ///< a peer's name as `bench` prints it, another chapter's, or kUnmasked: itself without mask
  Mask mask;
  int d = 0;
  int least_N = 0;  ///< Nq = Nk, at least this long
  int most_N = 0;   ///< and at most; 0: any
  double must = 0, hoped = 0;
};

struct Chapter {
  int number = 0;
  std::string slug;                      ///< "naive_attention"
  std::string title;                     ///< "Naive attention"
  std::string summary;                   ///< one sentence
  Element element = float32;             ///< type of Q, K, V, O on its first backend
  std::vector<Element> more_elements;    ///< for which its kernels have a stage of the same pass beside that
  std::string pass;                      ///< what op "forward"/"backward" the chapter ends in: "forward", "backward"
  std::vector<std::string> more_passes;  ///< that it has a stage for beside that, with the same elements and masks
  std::vector<Mask> masks;               ///< that the stage serves
  std::vector<Backend> shared_heads;     ///< where it serves heads of Q that share one of K and V
  std::string architecture;              ///< "sm_90a": the one that nvcc compiles it for; empty: any
  std::vector<Backend> backends;         ///< the CPU, or the simulator and the GPU, or all: exercises run on the first
  std::vector<std::string> files;  ///< the exercise's source files, given headers included, relative to the folder
  std::vector<std::string> whole_tests;  ///< names of the whole-chapter tests
  std::vector<std::string> given_tests;  ///< those of them that reach no exercise: they test given code alone
  std::vector<std::string> uses;         ///< earlier chapters whose files it includes, by name: "05_causal"
  std::vector<Exercise> exercises;
  std::vector<Goal> goals;

  std::string name() const;  ///< "01_naive_attention", also the folder's name
  const Exercise* find(std::string_view id) const;
  std::vector<std::string> passes() const;  ///< the first is `pass`
  bool runs_on(Backend backend) const;
  /// What of the problem its stage does not serve: its mask, or "Hkv < H"; empty if it serves it.
  std::string does_not_do(const Setting& setting, Backend backend) const;
  bool does(const Mask& mask) const;
  /// Type of Q, K, V, O on one of its backends: a chapter of the CPU whose kernels are given takes float16 in those.
  Element element_on(Backend backend) const;
  /// Whether it has a stage for this element there.
  bool takes(Element element, Backend backend) const;
};

/// The book: the folder it lies in and its chapters in order.
struct Book {
  std::filesystem::path root;
  std::vector<Chapter> chapters;

  std::filesystem::path solution(const Chapter& chapter, const std::string& file) const;  ///< solutions/NN_name/file
  std::filesystem::path reader(const Chapter& chapter, const std::string& file) const;    ///< chapters/NN_name/file
  std::filesystem::path manifest(const Chapter& chapter) const;  ///< chapters/NN_name/chapter.toml
  bool has_solutions(const Chapter& chapter) const;
  /// The folders of the chapters that it uses: in solutions/, or in chapters/ where there is none.
  std::vector<std::filesystem::path> used(const Chapter& chapter) const;
  const Chapter* find(int number) const;
  /// "1", "01", "01_naive_attention" or "naive_attention"; InputError (common/attention/error.hpp is not used here:
  /// ManifestError) naming the chapters there are.
  const Chapter& chapter(std::string_view which) const;
  /// "2.1"; ManifestError naming the exercises there are.
  const Exercise& exercise(std::string_view id) const;
};

/// Reads chapters/*/chapter.toml. ManifestError with FILE:LINE for: TOML errors, a missing or mistyped key, an unknown
/// key, number or slug that do not match the folder, an exercise id of another chapter or given twice, an exercise
/// without two hints or without a test, a file that is not there, a chapter used that is not an earlier one.
Book load_book(const std::filesystem::path& root);

/// Reads one chapter.toml.
Chapter load_chapter(const std::filesystem::path& manifest);

}  // namespace workbook::book
