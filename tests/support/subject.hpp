// What a chapter's test is written with: calling the code under test, and expecting things of what comes back. A
// failure of any kind ends the test with an outcome that says what happened and, where it can be told, why.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "common/attention/inputs.hpp"
#include "common/attention/tolerance.hpp"
#include "common/judge/compare.hpp"
#include "common/judge/verdict.hpp"
#include "common/worker/calls.hpp"
#include "common/worker/description.hpp"
#include "common/worker/worker.hpp"

namespace workbook::test {

using Numbers = std::map<std::string, double>;

/// Calls the code under test: the graft of the running test's exercise, or the whole chapter for [whole].
worker::Reply call(const worker::Call& call);

/// Multiplies the time limit of each call of the running test by `times`.
void extend_time_limit(double times);

/// Limits the memory that each call of the running test may allocate. A call that exceeds the limit ends the test with
/// this cause.
void allow_memory(std::uint64_t bytes, const judge::Cause& cause);

/// Calls the previous chapter's stage: the book's, unless the reader requested their own.
worker::Reply call_previous(const worker::Call& call);

/// The value of the number "skipped_batches" (common/cuda/skipped_batches.hpp) for which the skipped batches, of so
/// many elements each, have 2^32 elements: the offsets of what follows exceed 32 bits. Skips the test on the GPU.
double batches_beyond_32_bits(std::int64_t elements);

/// Each of `heads` heads, more than a grid has rows, is right. call_with(numbers) calls the code under test, and
/// returns a function that describes the error in a head, or returns an empty text. At first only the first and the
/// last blocks of each launch run. If some of their heads are wrong, all blocks run: block indices may not follow the
/// heads.
using WrongWithHead = std::function<std::string(std::int64_t head)>;
void expect_many_heads(std::int64_t heads, Numbers numbers,
                       const std::function<WrongWithHead(const Numbers&)>& call_with);

using worker::AttentionResult;
/// The operation "forward" with B, H, Hkv, Nq, Nk, d, scale, causal and `numbers` (Br, Bc, warps), arrays Q, K, V -> O,
/// lse. Where the stage takes 16-bit elements, Q, K and V are rounded to them: see in_element().
/// element, here and below: that of the chapter's stage if it is empty; else one of the chapter's more_elements, or its
/// own.
AttentionResult attention(const Problem& problem, const std::map<std::string, double>& numbers = {},
                          std::optional<Element> element = {});
AttentionResult previous_attention(const Problem& problem, const std::map<std::string, double>& numbers = {});

/// The problem with Q, K and V as the code under test sees them: rounded to its element. What the oracle is given.
Problem in_element(const Problem& problem, std::optional<Element> element = {});
/// The roundings of the code under test.
Precision precision(std::optional<Element> element = {});
/// Skips the test where the backend counts nothing (on a GPU, and where the simulator is not instrumented).
void require_counters();
/// A counter of a reply by its name in common/cuda/simulator_backend.cpp; 0 for one that counted nothing.
double counter(const worker::Reply& reply, const std::string& name);

/// "Nq=200, Nk=200, d=64, causal=no, input "normal", seed 1": stands in the first line of a failure message.
std::string describe(const Problem& problem, const std::string& kind = "");

/// How rows fall into blocks and tiles in a backward stage, for messages; 0: untiled.
struct GradientTiles {
  std::int64_t Bc = 0, Br = 0;
};

/// What a comparison is made with.
struct Expectation {
  Tensor<double> expected;
  Bounds bounds;
  judge::Layout layout;
  std::string input;  ///< describe(…)
};

struct Compared {
  Tensor<float> got;
  Expectation expectation;
  bool decides = true;  ///< false: only looked at, for what it says about the others
};
/// Ends the test as failed if one of them is outside its bounds: the first such located, the others in a line each.
/// Whatever was right or wrong of each becomes part of the verdict.
void expect_all_close(const std::vector<Compared>& all);
void expect_close(const Tensor<float>& got, const Expectation& expectation);

/// What the stage of this pass says of itself on this device, or its variant that `numbers` asks for; a worker is asked
/// once. Nothing but empty fields where it has no such stage.
const worker::StageDescription& stage_of(const std::string& pass, const Numbers& numbers = {},
                                         std::optional<Element> element = {});
/// Notes of which kinds a problem is: that of this name, if there is one, and what its scale and its mask make it.
void note_kinds(const std::string& name, const Problem& problem);

/// `problem`, rounded to the element, through the stage under test against the oracle: O, then the LSE. Returns what
/// came back, for more checks.
AttentionResult expect_attention(const Problem& problem, const std::string& kind, const Numbers& numbers = {},
                                 std::optional<Element> element = {});

/// Ends the test as failed if this element of an output is NaN: not written, or computed so.
void expect_written(float value, const std::string& tensor);
/// Ends the test as failed with `message` unless `condition` holds. `cause`: what it most likely is; `diagnosis`: id.
void expect(bool condition, const std::string& message, const std::string& cause = "",
            const std::string& diagnosis = "");

/// Ends the test as failed unless the counter `name` is exactly `expected`. `why`: what it counts, and the formula.
void expect_count(const worker::Reply& reply, const std::string& name, double expected, const std::string& why,
                  const std::string& cause, const std::string& diagnosis);

/// Ends the test as failed unless warps issue their products while cp.async brings the next tiles, all but a share
/// `alone` of them: what the last tile, or a tile that has no second place, takes.
void expect_beside_copies(double products, double beside, double alone, const std::string& how);

/// Ends the test as failed unless warps wait for a tile when they come to the product that takes it, not for several
/// together: but `first` times, before its first product.
void expect_waits_apart(const worker::Reply& reply, double first, const std::string& how);

/// Ends the test as failed if tensor cores have multiplied less than `products` products of queries with keys, such as
/// S = Q Kᵀ, need: for each of 16 queries, 16 keys and 16 columns two HMMA, where a query sees a key. How much more
/// they do is not asked.
void expect_matmuls(double tensor_instructions, const Shape& shape, bool causal, int products, const std::string& how);

using worker::BackwardProblem, worker::BackwardResult;
/// The operation "backward", or another of that kind; the number float_gradients = 1 asks for gradients in float.
BackwardResult backward(const BackwardProblem& given, const std::map<std::string, double>& numbers = {},
                        const std::string& operation = "backward", std::optional<Element> element = {});
/// A stage that takes and gives floats, such as a chapter's naive backward.
BackwardResult float_backward(const BackwardProblem& given, const std::string& operation);

/// Ends the test as failed unless the gradients named in `which` ("dQ", "dK", "dV"), in this order, agree with the
/// oracle within the bounds of `precision`.
void expect_gradients(const BackwardResult& got, const BackwardProblem& given, const std::string& input,
                      const GradientTiles& tiles, const Precision& precision,
                      const std::vector<std::string>& which = {"dQ", "dK", "dV"});

/// Changes every key after those that query `query` sees: first its K and V to another finite number, then its K to
/// NaN. O of the queries up to it must stay the same, bit for bit. (V stays finite: a stage that computes masked keys
/// multiplies their V by 0, and 0 · NaN is NaN.)
void expect_no_influence_from_the_future(const Problem& problem, std::int64_t query,
                                         const std::map<std::string, double>& numbers = {});

std::int64_t tiles_of(std::int64_t rows, std::int64_t tile);

/// A tensor of the given sizes from an output of a reply.
Tensor<float> tensor(const worker::Reply& reply, const std::string& name, std::array<std::int64_t, 4> sizes);
Tensor<double> widened(const Tensor<float>& tensor);

}  // namespace workbook::test
