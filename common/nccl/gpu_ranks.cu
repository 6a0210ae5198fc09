// Ranks on GPUs. If each has a GPU, NCCL moves the data; the library is loaded when it is needed. NCCL accepts no two
// ranks on one GPU, so where there are fewer GPUs, ranks share them, and a transfer is a copy that events order.
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/nccl/ranks.hpp"

namespace workbook::nccl {

namespace {

void check(cudaError_t error, const std::string& doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  throw std::runtime_error(doing + ": " + cudaGetErrorString(error) + " (" + cudaGetErrorName(error) + ")");
}

/// NCCL's functions (nccl.h of version 2). Its communicators are pointers.
struct Library {
  int (*ncclCommInitAll)(void** communicators, int count, const int* devices);
  int (*ncclCommDestroy)(void*);
  int (*ncclSend)(const void*, std::size_t, int type, int peer, void* communicator, cudaStream_t);
  int (*ncclRecv)(void*, std::size_t, int type, int peer, void* communicator, cudaStream_t);
  int (*ncclGroupStart)();
  int (*ncclGroupEnd)();
  const char* (*ncclGetErrorString)(int);

  Library() {
    void* const library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr)
      throw std::runtime_error(std::string("NCCL, which moves data between GPUs, was not found: ") + dlerror() +
                               "; install libnccl2, or add its folder to LD_LIBRARY_PATH");
#define WORKBOOK_LOAD(name) name = reinterpret_cast<decltype(name)>(dlsym(library, #name))
    WORKBOOK_LOAD(ncclCommInitAll), WORKBOOK_LOAD(ncclCommDestroy), WORKBOOK_LOAD(ncclSend), WORKBOOK_LOAD(ncclRecv);
    WORKBOOK_LOAD(ncclGroupStart), WORKBOOK_LOAD(ncclGroupEnd), WORKBOOK_LOAD(ncclGetErrorString);
#undef WORKBOOK_LOAD
    if (ncclSend == nullptr || ncclCommInitAll == nullptr)
      throw std::runtime_error("libnccl.so.2 has no ncclSend: version 2.7 or newer is needed");
  }
  void require(int result, const char* function) const {
    if (result != 0) throw std::runtime_error(std::string(function) + ": " + ncclGetErrorString(result));
  }
};
const Library& library() {
  static const Library loaded;
  return loaded;
}

std::size_t size_of(ncclDataType_t type) {
  constexpr std::size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
  return sizes[type];
}

struct Call {
  bool sends;
  const void* from;
  void* to;
  std::size_t count;
  ncclDataType_t type;
  int peer;
  Communicator* communicator;
  cudaStream_t stream;
  cudaEvent_t ready = nullptr, taken = nullptr;  ///< of a send: its data may be read, has been read
  bool done = false;

  std::string text() const;
};

/// Ends a rank after another one has failed.
struct Abandoned {};

/// What ranks without NCCL share: the sends that wait for their receives, by from · ranks + to.
struct Mailboxes {
  explicit Mailboxes(int ranks) : ranks(ranks), sends(std::size_t(ranks) * ranks) {}
  const int ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::deque<Call*>> sends;
  bool failed = false;

  void fail() {
    const std::lock_guard<std::mutex> lock(mutex);
    failed = true;
    changed.notify_all();
  }
  template <class Condition>
  void wait(std::unique_lock<std::mutex>& lock, const Call& call, Condition condition) {
    if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return failed || condition(); }))
      throw std::runtime_error(call.text() + " waits for its counterpart for 60 seconds");
    if (failed) throw Abandoned();
  }
};

}  // namespace

struct Communicator {
  int rank, ranks;
  void* nccl;  ///< null: the mailboxes are used
  std::shared_ptr<Mailboxes> mailboxes;
};

namespace {

std::string Call::text() const {
  return "rank " + std::to_string(communicator->rank) + ": " + (sends ? "ncclSend of " : "ncclRecv of ") +
         std::to_string(count) + " elements " + (sends ? "to rank " : "from rank ") + std::to_string(peer);
}

/// The open group of this thread's rank.
struct OpenGroup {
  bool of_nccl = false;
  int depth = 0;
  std::vector<Call> calls = {};  ///< without NCCL
};
thread_local OpenGroup group;

cudaEvent_t recorded(cudaStream_t stream) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "creating an event");
  check(cudaEventRecord(event, stream), "recording an event");
  return event;
}

void receive(Mailboxes& mailboxes, const Call& call) {
  std::unique_lock<std::mutex> lock(mailboxes.mutex);
  auto& queue = mailboxes.sends[std::size_t(call.peer * mailboxes.ranks + call.communicator->rank)];
  mailboxes.wait(lock, call, [&] { return !queue.empty(); });
  Call& send = *queue.front();
  queue.pop_front();
  if (send.count != call.count || send.type != call.type)
    throw std::runtime_error(call.text() + ", but " + send.text() + ": both must name the same count and type");
  check(cudaStreamWaitEvent(call.stream, send.ready), "waiting for an event");
  check(cudaMemcpyAsync(call.to, send.from, call.count * size_of(call.type), cudaMemcpyDefault, call.stream),
        "copying between ranks");
  send.taken = recorded(call.stream);
  send.done = true;
  mailboxes.changed.notify_all();
}

/// First all sends are offered, then the receives take theirs.
void execute(Mailboxes& mailboxes, std::vector<Call>& calls) {
  for (Call& call : calls) {
    if (!call.sends) continue;
    call.ready = recorded(call.stream);
    const std::lock_guard<std::mutex> lock(mailboxes.mutex);
    mailboxes.sends[std::size_t(call.communicator->rank * mailboxes.ranks + call.peer)].push_back(&call);
    mailboxes.changed.notify_all();
  }
  for (const Call& call : calls)
    if (!call.sends) receive(mailboxes, call);
  for (Call& call : calls) {
    if (!call.sends) continue;
    {
      std::unique_lock<std::mutex> lock(mailboxes.mutex);
      mailboxes.wait(lock, call, [&] { return call.done; });
    }
    check(cudaStreamWaitEvent(call.stream, call.taken), "waiting for an event");
    cudaEventDestroy(call.ready), cudaEventDestroy(call.taken);
  }
}

/// Executes the calls of a group. If one fails, no other rank may take a send of this one, which ends with it.
void complete(Mailboxes& mailboxes, std::vector<Call>& calls) {
  try {
    execute(mailboxes, calls);
  } catch (...) {
    mailboxes.fail();
    throw;
  }
}

ncclResult_t make(const Call& call) {
  if (call.peer < 0 || call.peer >= call.communicator->ranks)
    throw std::invalid_argument(call.text() + "; allowed are ranks 0 to " +
                                std::to_string(call.communicator->ranks - 1));
  if (call.communicator->nccl != nullptr) {
    const Library& nccl = library();
    call.sends
        ? nccl.require(nccl.ncclSend(call.from, call.count, call.type, call.peer, call.communicator->nccl, call.stream),
                       "ncclSend")
        : nccl.require(nccl.ncclRecv(call.to, call.count, call.type, call.peer, call.communicator->nccl, call.stream),
                       "ncclRecv");
    return ncclSuccess;
  }
  group.calls.push_back(call);
  if (group.depth > 0) return ncclSuccess;
  std::vector<Call> one = std::exchange(group.calls, {});
  complete(*call.communicator->mailboxes, one);
  return ncclSuccess;
}

/// The communicators of ranks, and NCCL's, which end with them.
struct Connected {
  const bool with_nccl;
  std::vector<Communicator> communicators;
  Connected(int ranks, bool with_nccl) : with_nccl(with_nccl) {
    std::vector<void*> of_nccl(std::size_t(ranks), nullptr);
    if (with_nccl) library().require(library().ncclCommInitAll(of_nccl.data(), ranks, nullptr), "ncclCommInitAll");
    const auto mailboxes = std::make_shared<Mailboxes>(ranks);
    for (int rank = 0; rank < ranks; ++rank)
      communicators.push_back({rank, ranks, of_nccl[std::size_t(rank)], mailboxes});
  }
  ~Connected() {
    if (with_nccl)
      for (const Communicator& each : communicators) library().ncclCommDestroy(each.nccl);
  }
  Connected(const Connected&) = delete;
  Connected& operator=(const Connected&) = delete;
};

}  // namespace

void run_ranks(int ranks, const std::function<void(int, ncclComm_t)>& body) {
  if (ranks < 1) throw std::invalid_argument("run_ranks: " + std::to_string(ranks) + " ranks; allowed are 1 and more");
  int gpus = 0, device = 0;
  check(cudaGetDeviceCount(&gpus), "counting the GPUs");
  check(cudaGetDevice(&device), "querying the device");
  check(cudaDeviceSynchronize(), "waiting for the device");  // the ranks' streams do not wait for the default stream
  Connected connected(ranks, ranks > 1 && ranks <= gpus);
  std::mutex mutex;
  std::exception_ptr failure;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        check(cudaSetDevice(rank % gpus), "choosing a device");
        group = {.of_nccl = connected.with_nccl};
        body(rank, &connected.communicators[std::size_t(rank)]);
        if (group.depth > 0) throw std::invalid_argument("ncclGroupStart without ncclGroupEnd");
        check(cudaDeviceSynchronize(), "a kernel of rank " + std::to_string(rank) + " failed");
      } catch (const Abandoned&) {
      } catch (...) {
        {
          const std::lock_guard<std::mutex> lock(mutex);
          if (!failure) failure = std::current_exception();
        }
        connected.communicators.front().mailboxes->fail();
      }
    });
  for (std::thread& thread : threads) thread.join();
  check(cudaSetDevice(device), "choosing a device");
  if (failure) std::rethrow_exception(failure);
}

}  // namespace workbook::nccl

using workbook::nccl::group, workbook::nccl::library, workbook::nccl::make;

ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return make({true, from, nullptr, count, type, peer, communicator, stream});
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return make({false, nullptr, to, count, type, peer, communicator, stream});
}
ncclResult_t ncclGroupStart() {
  if (group.of_nccl) library().require(library().ncclGroupStart(), "ncclGroupStart");
  ++group.depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (group.depth == 0) throw std::invalid_argument("ncclGroupEnd without ncclGroupStart");
  if (group.of_nccl) library().require(library().ncclGroupEnd(), "ncclGroupEnd");
  if (--group.depth > 0) return ncclSuccess;
  std::vector<workbook::nccl::Call> calls = std::exchange(group.calls, {});
  if (!calls.empty()) complete(*calls.front().communicator->mailboxes, calls);
  return ncclSuccess;
}
