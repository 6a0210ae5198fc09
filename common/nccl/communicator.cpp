// Transfers on the simulator: matched as NCCL matches them, checked, executed and counted.
//
// The calls of a group are not ordered among themselves. A receive comes after its send, and so do later operations of
// its stream; a send does not come after its receive, since NCCL may hold the data in between.
#include "common/nccl/communicator.hpp"

#include <algorithm>
#include <deque>
#include <ranges>
#include <stdexcept>

#include "common/nccl/ranks.hpp"
#include "common/nccl/turns.hpp"
#include "common/simt/error.hpp"
#include "common/simt/simulator.hpp"
#include "common/simt/stream_order.hpp"

namespace workbook::nccl {

namespace {

constexpr const char* names[] = {"ncclSend", "ncclRecv", "ncclAllGather", "ncclReduceScatter", "ncclAllReduce"};

std::size_t size_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
  }
  throw std::invalid_argument(simt::words("NCCL: unknown data type ", int(type)));
}

}  // namespace

enum class Kind { send, receive, all_gather, reduce_scatter, all_reduce };

/// A call of a rank that waits for its counterparts.
struct Call {
  Kind kind;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t reduction = ncclSum;
  int peer = 0;  ///< of a send or receive
  Communicator* communicator = nullptr;
  cudaStream_t stream = nullptr;
  simt::Where where = {};
  simt::IssuedOperation operation = nullptr;
  int step = 0;
  bool alone = false;  ///< outside a group
  bool done = false;

  std::size_t bytes() const { return count * size_of(type); }
  std::string text() const {
    std::string text = simt::words(names[std::size_t(kind)], " of ", count, " elements, ", bytes(), " bytes");
    if (kind == Kind::send) text += simt::words(", to rank ", peer);
    if (kind == Kind::receive) text += simt::words(", from rank ", peer);
    return text;
  }
};

/// What the ranks of a communicator share: the calls that wait for their counterparts.
struct Group {
  explicit Group(int ranks) : ranks(ranks), sends(std::size_t(ranks) * ranks), receives(sends), collectives(ranks) {}
  int ranks;
  std::vector<std::deque<Call*>> sends, receives;  // by from · ranks + to
  std::vector<std::deque<Call*>> collectives;      // by rank
};

struct Communicator {
  std::shared_ptr<Group> group;
  int rank;
  int steps = 0;  ///< groups, and calls outside of groups, that it has completed
};

namespace {

/// The open group of this thread.
struct OpenGroup {
  int depth = 0;
  simt::Where where = {};
  std::vector<Call> calls;
};
thread_local OpenGroup group;

simt::Side side_of(const Call& call) {
  return {simt::words("rank ", call.communicator->rank, " calls ", call.text()),
          {call.where.file, int(call.where.line), call.where.function}};
}

[[noreturn]] void mismatch(const Call& earlier, const Call& later, std::string what, std::string advice) {
  simt::Report report{};
  report.mistake = simt::Mistake::transfer_mismatch;
  report.what = std::move(what);
  report.advice = std::move(advice);
  report.side = side_of(later);
  report.other = side_of(earlier);
  throw simt::KernelMistakes({report});
}

void throw_if_any(const std::vector<simt::Report>& reports) {
  if (!reports.empty()) throw simt::KernelMistakes(reports);
}
void append(std::vector<simt::Report>& reports, const std::vector<simt::Report>& more) {
  reports.insert(reports.end(), more.begin(), more.end());
}

void transfer(Call& send, Call& receive) {
  if (send.count != receive.count || send.type != receive.type)
    mismatch(send, receive, "the send and its receive differ in count or type",
             "both must name the same number of elements of the same type; transfers between two ranks match in the "
             "order of their calls");
  receive.operation = simt::joined(*receive.operation, {send.operation});
  std::vector<simt::Report> reports = simt::access(send.operation, send.from, send.bytes(), false);
  append(reports, simt::access(receive.operation, receive.to, receive.bytes(), true));
  throw_if_any(reports);
  if (send.count > 0) simt::copy_in(receive.to, send.from, send.bytes());
  simt::add_transfer({send.communicator->rank, receive.communicator->rank, send.bytes(), send.step});
  send.done = receive.done = true;
}

std::vector<float> floats(const Call& call, std::size_t count) {
  std::vector<float> values(count);
  simt::copy_out(values.data(), call.from, count * sizeof(float));
  return values;
}

/// The bytes that a collective writes to the memory of a rank, and those that it reads there.
std::size_t received(const Call& call) {
  return call.kind == Kind::all_gather ? call.bytes() * std::size_t(call.communicator->group->ranks) : call.bytes();
}
std::size_t given(const Call& call) {
  return call.kind == Kind::reduce_scatter ? call.bytes() * std::size_t(call.communicator->group->ranks) : call.bytes();
}

void gather(const std::vector<Call*>& calls) {
  // A rank may gather in place: everything is read before anything is written.
  std::vector<std::byte> all(received(*calls[0]));
  for (std::size_t r = 0; r < calls.size(); ++r)
    simt::copy_out(all.data() + r * calls[r]->bytes(), calls[r]->from, calls[r]->bytes());
  for (const Call* call : calls) simt::copy_in(call->to, all.data(), all.size());
}
void reduce(const std::vector<Call*>& calls) {
  const std::size_t count = given(*calls[0]) / sizeof(float);
  std::vector<float> result = floats(*calls[0], count);
  for (std::size_t r = 1; r < calls.size(); ++r) {
    const std::vector<float> addends = floats(*calls[r], count);
    for (std::size_t i = 0; i < count; ++i)
      result[i] = calls[r]->reduction == ncclSum ? result[i] + addends[i] : std::max(result[i], addends[i]);
  }
  for (std::size_t r = 0; r < calls.size(); ++r) {
    const std::size_t first = calls[r]->kind == Kind::reduce_scatter ? r * calls[r]->count : 0;
    simt::copy_in(calls[r]->to, result.data() + first, received(*calls[r]));
  }
}

/// Executes a collective of which every rank has made its call.
void execute(const std::vector<Call*>& calls) {
  const Call& first = *calls[0];
  for (const Call* call : calls)
    if (call->kind != first.kind || call->count != first.count || call->type != first.type ||
        call->reduction != first.reduction)
      mismatch(first, *call, "the ranks' next collectives differ",
               "every rank must call the same collectives with the same count, type and operation, in the same order");
  std::vector<simt::IssuedOperation> operations;
  for (const Call* call : calls) operations.push_back(call->operation);
  std::vector<simt::Report> reports;
  for (Call* call : calls) append(reports, simt::access(call->operation, call->from, given(*call), false));
  for (Call* call : calls) {
    call->operation = simt::joined(*call->operation, operations);
    append(reports, simt::access(call->operation, call->to, received(*call), true));
  }
  throw_if_any(reports);
  if (first.count > 0) first.kind == Kind::all_gather ? gather(calls) : reduce(calls);
  const std::size_t rounds = (calls.size() - 1) * (first.kind == Kind::all_reduce ? 2 : 1);
  const std::size_t part = first.kind == Kind::all_reduce ? first.bytes() / calls.size() : first.bytes();
  for (Call* call : calls) {
    const int rank = call->communicator->rank;
    if (rounds > 0) simt::add_transfer({rank, (rank + 1) % int(calls.size()), rounds * part, call->step});
    call->done = true;
  }
}

/// Executes every transfer whose ranks have all made their calls.
void progress(Group& of) {
  for (std::size_t pair = 0; pair < of.sends.size(); ++pair) {
    while (!of.sends[pair].empty() && !of.receives[pair].empty()) {
      Call &send = *of.sends[pair].front(), &receive = *of.receives[pair].front();
      of.sends[pair].pop_front(), of.receives[pair].pop_front();
      transfer(send, receive);
    }
  }
  while (std::ranges::none_of(of.collectives, [](const std::deque<Call*>& calls) { return calls.empty(); })) {
    std::vector<Call*> calls;
    for (std::deque<Call*>& of_rank : of.collectives) calls.push_back(of_rank.front()), of_rank.pop_front();
    execute(calls);
  }
}

/// The queue in which a call waits for its counterparts.
std::deque<Call*>& queue_of(const Call& call) {
  Group& of = *call.communicator->group;
  const int rank = call.communicator->rank;
  if (call.kind == Kind::send) return of.sends[std::size_t(rank * of.ranks + call.peer)];
  if (call.kind == Kind::receive) return of.receives[std::size_t(call.peer * of.ranks + rank)];
  return of.collectives[std::size_t(rank)];
}

/// Issues calls that are not ordered among themselves, and waits for all.
void complete(std::vector<Call>& calls) {
  for (Call& call : calls) {
    call.operation = simt::issue_branch(call.stream, names[std::size_t(call.kind)], call.where);
    call.step = call.communicator->steps;
    queue_of(call).push_back(&call);
  }
  for (Call& call : calls) progress(*call.communicator->group);
  const auto waits = [](const Call& call) { return !call.done; };
  wait_until([&] { return std::ranges::none_of(calls, waits); },
             [&] {
               Waiting waiting{"waits in"};
               for (const Call& call : calls | std::views::filter(waits)) {
                 waiting.text += simt::words(" ", call.text(), " at ", call.where.file, ":", call.where.line, ";");
                 waiting.lone_send = call.alone && call.kind == Kind::send;
               }
               waiting.text.pop_back();
               return waiting;
             });
  for (const Call& call : calls) simt::after(call.stream, *call.operation);
  for (const Call& call : calls) call.communicator->steps = call.step + 1;
}

ncclResult_t make(Call call) {
  simt::require_host(names[std::size_t(call.kind)]);
  const int ranks = call.communicator->group->ranks;
  if (call.peer < 0 || call.peer >= ranks)
    throw std::invalid_argument(
        simt::words(names[std::size_t(call.kind)], ": peer ", call.peer, "; allowed are 0 to ", ranks - 1));
  const bool reduces = call.kind == Kind::reduce_scatter || call.kind == Kind::all_reduce;
  if (reduces && call.type != ncclFloat)
    throw std::invalid_argument(simt::words(names[std::size_t(call.kind)], ": type ", int(call.type),
                                            "; on the simulator, reductions take ncclFloat alone"));
  if (group.depth > 0) {
    group.calls.push_back(std::move(call));
    return ncclSuccess;
  }
  call.alone = true;
  std::vector<Call> one{std::move(call)};
  complete(one);
  return ncclSuccess;
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> connect(int ranks) {
  const auto shared = std::make_shared<Group>(ranks);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < ranks; ++rank) all.push_back(std::make_unique<Communicator>(shared, rank));
  return all;
}

void start_group(simt::Where where) {
  if (group.depth++ == 0) group.where = where;
}
void end_group(simt::Where where) {
  if (group.depth == 0)
    throw std::invalid_argument(
        simt::words("ncclGroupEnd at ", where.file, ":", where.line, " without ncclGroupStart"));
  if (--group.depth > 0) return;
  std::vector<Call> calls = std::exchange(group.calls, {});
  complete(calls);
}
void require_no_open_group() {
  if (group.depth == 0) return;
  throw std::invalid_argument(
      simt::words("ncclGroupStart at ", group.where.file, ":", group.where.line, " without ncclGroupEnd"));
}

}  // namespace workbook::nccl

using workbook::nccl::Kind;
using workbook::nccl::make;

ncclResult_t ncclCommCount(ncclComm_t communicator, int* count) {
  *count = communicator->group->ranks;
  return ncclSuccess;
}
ncclResult_t ncclCommUserRank(ncclComm_t communicator, int* rank) {
  *rank = communicator->rank;
  return ncclSuccess;
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream, simt::Where where) {
  return make({Kind::send, from, nullptr, count, type, ncclSum, peer, communicator, stream, where});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream, simt::Where where) {
  return make({Kind::receive, nullptr, to, count, type, ncclSum, peer, communicator, stream, where});
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream, simt::Where where) {
  return make({Kind::all_gather, from, to, count, type, ncclSum, 0, communicator, stream, where});
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream, simt::Where where) {
  return make({Kind::reduce_scatter, from, to, count, type, operation, 0, communicator, stream, where});
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                           ncclComm_t communicator, cudaStream_t stream, simt::Where where) {
  return make({Kind::all_reduce, from, to, count, type, operation, 0, communicator, stream, where});
}
