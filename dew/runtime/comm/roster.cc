#include "dew/runtime/comm/roster.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>
#include <sstream>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew::comm {
namespace {

struct Stat {
  char state = 0;  // as in /proc: R, S, D, T (stopped), Z (dead), ...; 0 if it cannot be read
  std::string started;
};

// Of a process on this host.
Stat stat_of(int pid) {
  std::ifstream file(format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return {};
  // The name in parentheses may hold anything; field 3 follows it, field 22 is the start.
  std::istringstream fields(line.substr(line.rfind(')') + 1));
  Stat stat;
  fields >> stat.state;
  for (int field = 4; field <= 22; ++field) fields >> stat.started;
  return stat;
}

std::string link_text(const char* path) {
  std::array<char, 128> text{};
  const ssize_t length = ::readlink(path, text.data(), text.size());
  return {text.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

std::string own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::string text;
  if (::sched_getaffinity(0, sizeof(set), &set) != 0) return text;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) text += format("{}{}", text.empty() ? "" : ",", core);
  }
  return text;
}

}  // namespace

Peer Peer::self() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const int pid = ::getpid();
  return {.host = host.data(),
          .space = format("{} {}", host.data(), link_text("/proc/self/ns/pid")),
          .pid = pid,
          .started = stat_of(pid).started,
          .cores = own_cores()};
}

std::string Peer::text() const {
  return format("{}\n{}\n{}\n{}\n{}", host, space, pid, started, cores);
}

Peer Peer::from_text(const std::string& text) {
  std::istringstream lines(text);
  Peer peer;
  std::string pid;
  std::getline(lines, peer.host);
  std::getline(lines, peer.space);
  std::getline(lines, pid);
  std::getline(lines, peer.started);
  std::getline(lines, peer.cores);
  peer.pid = std::stoi(pid);
  return peer;
}

std::string Roster::name(int rank) const {
  return rank < count() ? format("rank {} ({})", rank, peer(rank).host) : format("rank {}", rank);
}

Condition Roster::condition(int rank) const {
  if (rank >= count() || !here(rank)) return Condition::unknown;
  const Stat stat = stat_of(peer(rank).pid);
  // That a file cannot be opened says nothing yet: this process may have too many open.
  if (stat.state == 0)
    return ::kill(peer(rank).pid, 0) != 0 && errno == ESRCH ? Condition::gone : Condition::unknown;
  const bool dead = stat.state == 'X' || stat.state == 'Z';
  if (dead || stat.started != peer(rank).started) return Condition::gone;
  return stat.state == 'T' || stat.state == 't' ? Condition::stopped : Condition::runs;
}

std::vector<int> Roster::others(Condition wanted) const {
  std::vector<int> out;
  for (int rank = 0; rank < count(); ++rank) {
    if (rank != rank_ && condition(rank) == wanted) out.push_back(rank);
  }
  return out;
}

std::string Roster::describe(int rank) const {
  const Condition now = condition(rank);
  if (now == Condition::unknown) return name(rank);
  const char* state = now == Condition::gone      ? "is gone"
                      : now == Condition::stopped ? "is stopped"
                                                  : "still runs";
  return format("{}, pid {}, {}", name(rank), peer(rank).pid, state);
}

std::string Roster::describe(const std::vector<int>& ranks) const {
  std::vector<std::string> all;
  for (const int rank : ranks) all.push_back(describe(rank));
  return format("{}", fmt::join(all, "; "));
}

int Roster::sharing_cores() const {
  int sharing = 0;
  for (const Peer& p : peers_)
    sharing += p.space == peer(rank_).space && p.cores == peer(rank_).cores;
  return sharing;
}

}  // namespace dew::comm
