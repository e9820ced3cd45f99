#include "dew/runtime/comm/mpi_job.h"

#include <sched.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <optional>
#include <ranges>
#include <utility>
#include <vector>

#include "dew/base/dtype.h"
#include "dew/base/format.h"
#include "dew/runtime/comm/mpi_control.h"
#include "dew/runtime/comm/mpi_support.h"
#include "dew/runtime/comm/roster.h"

namespace dew::comm {
namespace {

constexpr int kStatus = static_cast<int>(ErrorCode::process);
constexpr Clock::duration kLook = std::chrono::milliseconds(20);    // between looks at messages
constexpr Clock::duration kCount = std::chrono::milliseconds(200);  // between looks at processes
constexpr double kAfterSignal = 2;  // s that an exchange may take once a signal has come
constexpr double kRollCall = 2;     // s for answers
constexpr double kLastWords = 0.3;  // s for answers when a signal has come
constexpr double kSpeech = 5;       // s for the one that reports to end the job
constexpr Clock::duration kProgress = std::chrono::microseconds(50);

void add_bf16(void* in, void* sum, int* count, MPI_Datatype*) {
  const auto* from = static_cast<const bf16*>(in);
  auto* to = static_cast<bf16*>(sum);
  for (int i = 0; i < *count; ++i)
    to[i] = bf16(static_cast<float>(from[i]) + static_cast<float>(to[i]));
}

MPI_Datatype type_of(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return MPI_FLOAT;
    case DType::bf16:
      return MPI_UINT16_T;
    case DType::f64:
      return MPI_DOUBLE;
    case DType::i32:
      return MPI_INT32_T;
    case DType::u32:
      return MPI_UINT32_T;
    case DType::pred:
      return MPI_UINT8_T;
  }
  return MPI_DATATYPE_NULL;
}

int own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return ::sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

class Mpi final : public MpiJob {
 public:
  Mpi(MpiOptions options, int expected) : options_(std::move(options)) {
    {
      const Watchdog watchdog = expect("MPI_Init", options_.start_timeout);
      int level = 0;
      check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &level), "MPI_Init");
      MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
      MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
      MPI_Comm_size(MPI_COMM_WORLD, &count_);
      if (expected > 0 && count_ != expected) {
        fail(ErrorCode::process,
             format("MPI has {} process(es), but the launcher started {}", count_, expected),
             "the launcher must speak to Open MPI: mpirun of the same version, or srun --mpi=pmix");
      }
      control_.emplace();
      check_mpi(MPI_Op_create(add_bf16, 1, &add_bf16_), "MPI_Op_create");
    }
    std::vector<Peer> peers;
    for (const std::string& text : exchange(Peer::self().text(), "the list of processes"))
      peers.push_back(Peer::from_text(text));
    roster_ = Roster(std::move(peers), rank_);
  }

  Mpi(const Mpi&) = delete;
  Mpi& operator=(const Mpi&) = delete;
  ~Mpi() override {
    if (ended_) return;
    try {
      expect_not_lost();
      end();
    } catch (const Error& error) {
      end_with(error);
    }
  }

  void set_options(MpiOptions options) override { options_ = std::move(options); }
  void steps_begin() override { steps_ = true; }

  int rank() const override { return rank_; }
  int count() const override { return count_; }
  std::string name(int rank) const override { return roster_.name(rank); }
  int neighbours() const override { return roster_.sharing_cores(); }

  std::vector<std::string> exchange(std::string_view mine, const char* what) override {
    expect_not_lost();
    const auto n = static_cast<std::size_t>(count_);
    int length = static_cast<int>(mine.size());
    std::vector<int> lengths(n), begins(n);
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(
        MPI_Iallgather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, MPI_COMM_WORLD, &request),
        what);
    wait_for(request, what);
    for (std::size_t i = 1; i < n; ++i) begins[i] = begins[i - 1] + lengths[i - 1];
    std::string all(static_cast<std::size_t>(begins.back() + lengths.back()), ' ');
    check_mpi(MPI_Iallgatherv(mine.data(), length, MPI_CHAR, all.data(), lengths.data(),
                              begins.data(), MPI_CHAR, MPI_COMM_WORLD, &request),
              what);
    wait_for(request, what);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < n; ++i)
      texts.push_back(
          all.substr(static_cast<std::size_t>(begins[i]), static_cast<std::size_t>(lengths[i])));
    return texts;
  }

  std::int64_t largest(std::int64_t mine, const char* what) override {
    expect_not_lost();
    std::int64_t most = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Iallreduce(&mine, &most, 1, MPI_INT64_T, MPI_MAX, MPI_COMM_WORLD, &request),
              what);
    wait_for(request, what);
    return most;
  }

  int group(std::span<const int> ranks) override {
    expect_not_lost();
    const auto [known, fresh] =
        known_groups_.try_emplace({ranks.begin(), ranks.end()}, static_cast<int>(groups_.size()));
    if (fresh) groups_.push_back(make_group(ranks));
    return known->second;
  }

  int start(const Exchange& e, const std::byte* from, std::byte* to) override {
    expect_not_lost();
    const std::size_t slot = free_slot();
    check_mpi(begin(e, from, to, &requests_[slot]), e.name.c_str());
    return static_cast<int>(slot);
  }

  void wait(int number, const Exchange& e) override {
    expect_not_lost();
    wait_for(requests_[static_cast<std::size_t>(number)], e.name.c_str());
    free_.push_back(static_cast<std::size_t>(number));
  }

  // A look at any request lets all of them go on.
  void progress() noexcept override {
    const Clock::time_point now = Clock::now();
    if (lost_ || now < next_progress_) return;
    next_progress_ = now + kProgress;
    const auto active =
        std::ranges::find_if(requests_, [](const MPI_Request& r) { return r != MPI_REQUEST_NULL; });
    int done = 0;
    if (active != requests_.end()) MPI_Test(&*active, &done, MPI_STATUS_IGNORE);
  }

  int end_with(const Error& error) override;
  void end() override {
    ended_ = true;
    MPI_Request request = MPI_REQUEST_NULL;
    check_mpi(MPI_Ibarrier(MPI_COMM_WORLD, &request), "the end");
    wait_for(request, "the end");
    const Watchdog watchdog = expect("MPI_Finalize", limit());
    MPI_Finalize();
  }

 private:
  double limit() const { return steps_ ? options_.step_timeout : options_.start_timeout; }
  int stop_signal() const { return options_.stop_signal ? options_.stop_signal() : 0; }

  void expect_not_lost() const {
    if (lost_) throw Error(*lost_);
  }

  void report(const Error& error) const {
    if (options_.report) options_.report(error);
  }

  Watchdog expect(std::string what, double limit) {
    return {seconds(limit), [this, what = std::move(what), limit] {
              report({ErrorCode::process,
                      format("{} did not end within {} s: a process is missing", what, limit)});
              std::_Exit(kStatus);
            }};
  }

  // Its members alone take part.
  MPI_Comm make_group(std::span<const int> ranks) {
    const Watchdog watchdog = expect("the making of a group", limit());
    MPI_Group all = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
    MPI_Comm comm = MPI_COMM_NULL;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    check_mpi(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &members),
              "MPI_Group_incl");
    check_mpi(MPI_Comm_create_group(MPI_COMM_WORLD, members, 0, &comm), "MPI_Comm_create_group");
    MPI_Group_free(&members);
    MPI_Group_free(&all);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    return comm;
  }

  std::size_t free_slot() {
    if (free_.empty()) {
      free_.push_back(requests_.size());
      requests_.push_back(MPI_REQUEST_NULL);
    }
    const std::size_t slot = free_.back();
    free_.pop_back();
    return slot;
  }

  int begin(const Exchange& e, const std::byte* from, std::byte* to, MPI_Request* request) const {
    MPI_Comm comm = groups_[static_cast<std::size_t>(e.group)];
    MPI_Datatype type = type_of(e.dtype);
    MPI_Op sum = e.dtype == DType::bf16 ? add_bf16_ : MPI_SUM;
    const int count = static_cast<int>(e.count);
    switch (e.pattern) {
      case Pattern::all_reduce:
        return MPI_Iallreduce(from, to, count, type, sum, comm, request);
      case Pattern::all_gather:
        return MPI_Iallgather(from, count, type, to, count, type, comm, request);
      case Pattern::reduce_scatter:
        return MPI_Ireduce_scatter_block(from, to, count, type, sum, comm, request);
      case Pattern::all_to_all:
        return MPI_Ialltoall(from, count, type, to, count, type, comm, request);
    }
    return MPI_ERR_ARG;
  }

  // One that waits, and since when.
  struct Wait {
    const char* what;
    Waited waited = {};
    std::optional<Waited> since_signal = {};
  };

  void wait_for(MPI_Request& request, const char* what);
  void wait_until_done(MPI_Request& request, const char* what);
  void look_around(Wait& wait);
  Message said(Word word, const std::string& text) const {
    Message m;
    m.from = rank_;
    m.word = word;
    m.text = text;
    return m;
  }
  void listen(const char* what);
  void look_for_the_gone(const char* what);
  void give_up_after_signal(Wait& wait);
  void call_the_roll(const char* what);
  [[noreturn]] void time_out(const char* what);
  void tell_of(const Error& error);
  void hear_last_words();
  bool all_said_the_same() const;
  int speaker() const;
  int second_speaker() const;

  MpiOptions options_;
  int rank_ = 0, count_ = 1;
  const int cores_ = own_cores();
  bool steps_ = false, ended_ = false;
  std::optional<Control> control_;
  Roster roster_;
  MPI_Op add_bf16_ = MPI_OP_NULL;
  std::vector<MPI_Comm> groups_;
  std::map<std::vector<int>, int> known_groups_;  // by ranks
  std::vector<MPI_Request> requests_;
  std::vector<std::size_t> free_;  // of requests_
  Clock::time_point next_progress_, next_count_;
  std::map<int, Message> failed_;       // by rank
  std::map<int, std::string> waiting_;  // answers to a roll call
  std::vector<int> missing_;            // those that did not answer it
  bool heard_ = false;                  // this process ends because it heard that another does
  std::optional<Error> lost_;  // why it gave up a wait: exchanges that were begun have no end
};

// MPI goes on with what was begun at each of its calls, and writes to memory that whoever unwinds
// gives back. So all that is to be told and heard after a failure is, before this throws.
void Mpi::wait_for(MPI_Request& request, const char* what) {
  try {
    wait_until_done(request, what);
  } catch (const Error& error) {
    lost_ = error;
    tell_of(error);
    throw;
  }
}

void Mpi::wait_until_done(MPI_Request& request, const char* what) {
  Rest rest(roster_.count() == 0 ? count_ : roster_.sharing_cores(), cores_);
  Wait wait{what};
  Clock::time_point next_look = Clock::now() + kLook;
  const auto is_done = [&] {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    return done != 0;
  };
  while (!is_done()) {
    rest.take();
    const Clock::time_point now = Clock::now();
    if (now < next_look) continue;
    next_look = now + kLook;
    look_around(wait);
    if (wait.waited.so_far() <= seconds(limit())) continue;
    call_the_roll(what);
    if (is_done()) return;  // the last one came meanwhile
    time_out(what);
  }
}

void Mpi::look_around(Wait& wait) {
  listen(wait.what);
  give_up_after_signal(wait);
  const Clock::time_point now = Clock::now();
  if (now < next_count_) return;
  next_count_ = now + kCount * (1 + roster_.count() / 4);  // it looks at a file for each
  look_for_the_gone(wait.what);
}

// Takes in all that has arrived before it fails: the first message may be of one that only passes
// on what the next one tells of itself.
void Mpi::listen(const char* what) {
  for (Message& m : control_->heard()) {
    if (m.word == Word::who_is_here) control_->tell(m.from, said(Word::waits, what));
    if (m.word == Word::waits) waiting_[m.from] = m.text;
    if (m.word == Word::failed) failed_[m.from] = std::move(m);
  }
  if (failed_.empty()) return;
  heard_ = true;
  const int known = speaker();
  const Message& why = known < 0 ? failed_.begin()->second : failed_.at(known);
  fail(ErrorCode::process,
       why.code == kStatus ? why.text : format("{}: {}", name(why.from), why.text), why.hint);
}

void Mpi::look_for_the_gone(const char* what) {
  const std::vector<int> gone = roster_.others(Condition::gone);
  if (gone.empty()) return;
  listen(what);  // it may have said why
  fail(ErrorCode::process,
       format("{}; {} waited for it in {}", roster_.describe(gone), name(rank_), what));
}

void Mpi::give_up_after_signal(Wait& wait) {
  if (stop_signal() == 0) return;
  if (!wait.since_signal) wait.since_signal.emplace();
  look_for_the_gone(wait.what);
  if (wait.since_signal->so_far() < seconds(kAfterSignal)) return;
  const std::vector<int> stopped = roster_.others(Condition::stopped);
  fail(ErrorCode::process,
       format("signal {}: {} gave up waiting in {} after {} s, {}; no checkpoint is written",
              stop_signal(), name(rank_), wait.what, kAfterSignal,
              stopped.empty() ? "the other processes of its host run" : roster_.describe(stopped)));
}

// Those that wait themselves answer; so the others can be named.
void Mpi::call_the_roll(const char* what) {
  waiting_.clear();
  missing_.clear();
  control_->tell_all(said(Word::who_is_here, what));
  for (Waited waited; waited.so_far() < seconds(kRollCall) && std::ssize(waiting_) + 1 < count_;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    listen(what);
  }
  for (int rank = 0; rank < count_; ++rank) {
    if (rank != rank_ && !waiting_.contains(rank)) missing_.push_back(rank);
  }
}

void Mpi::time_out(const char* what) {
  if (missing_.empty()) {
    std::vector<std::string> who;
    for (const auto& [rank, other] : waiting_) who.push_back(format("{} in {}", name(rank), other));
    fail(ErrorCode::process,
         format("all processes wait: {} in {}, {}", name(rank_), what, fmt::join(who, ", ")));
  }
  fail(ErrorCode::process,
       format("{}: did not come to {} within {} s", roster_.describe(missing_), what, limit()),
       steps_ ? "comm.step_timeout is how long a process may let others wait"
              : "comm.start_timeout is how long a process may let others wait at the start");
}

// ---- the end after an error ----

void Mpi::tell_of(const Error& error) {
  if (failed_.contains(rank_)) return;
  Message mine = said(Word::failed, error.what());
  mine.code = static_cast<int>(error.code());
  mine.hint = error.hint();
  mine.heard = heard_;
  control_->tell_all(mine);
  failed_[rank_] = std::move(mine);
  hear_last_words();
}

// Until all others that are there have said why they end.
void Mpi::hear_last_words() {
  std::vector<int> gone;
  const auto silent = [&](int rank) {
    return !failed_.contains(rank) && std::ranges::find(missing_, rank) == missing_.end() &&
           std::ranges::find(gone, rank) == gone.end();
  };
  const double time = stop_signal() != 0 ? kLastWords : kRollCall;
  Waited waited;
  for (int turn = 0; waited.so_far() < seconds(time); ++turn) {
    for (Message& m : control_->heard()) {
      if (m.word == Word::failed) failed_[m.from] = std::move(m);
    }
    if (turn % 32 == 0) gone = roster_.others(Condition::gone);
    if (std::ranges::none_of(std::views::iota(0, count_), silent)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

bool Mpi::all_said_the_same() const {
  const Message& mine = failed_.at(rank_);
  return std::ssize(failed_) == count_ && std::ranges::all_of(failed_, [&](const auto& f) {
           return f.second.code == mine.code && f.second.text == mine.text;
         });
}

// The first one that failed by itself; or else the first that found out that another had. -1: only
// those are known that have it from others.
int Mpi::speaker() const {
  for (const auto& [rank, m] : failed_) {
    if (m.code != kStatus) return rank;
  }
  for (const auto& [rank, m] : failed_) {
    if (!m.heard) return rank;
  }
  return -1;
}

// Reports if the speaker cannot.
int Mpi::second_speaker() const {
  for (const auto& [rank, m] : failed_) {
    if (rank != speaker()) return rank;
  }
  return speaker();
}

int Mpi::end_with(const Error& error) {
  ended_ = true;
  tell_of(error);
  const Message mine = failed_.at(rank_);
  if (!lost_ && all_said_the_same()) {
    if (rank_ == 0) report(error);
    end();
    return mine.code;
  }
  // The one that speaks ends the job, and this process with it.
  if (rank_ != speaker()) std::this_thread::sleep_for(seconds(kSpeech));
  if (rank_ != speaker() && rank_ != second_speaker()) {
    std::this_thread::sleep_for(seconds(kSpeech));
    std::_Exit(kStatus);
  }
  const bool own = mine.code != kStatus;
  report(
      {ErrorCode::process, own ? format("{}: {}", name(rank_), mine.text) : mine.text, mine.hint});
  MPI_Abort(MPI_COMM_WORLD, kStatus);
  std::_Exit(kStatus);
}

}  // namespace

std::unique_ptr<MpiJob> join_mpi(const MpiOptions& options, int expected) {
  return std::make_unique<Mpi>(options, expected);
}

}  // namespace dew::comm
