// Who takes part in a job: names, and whether those on this host still run.
#pragma once

#include <string>
#include <vector>

namespace dew::comm {

// What a process tells the others about itself.
struct Peer {
  std::string host;
  std::string space;  // whose processes know each other's numbers: a host, or a container on it
  int pid = 0;
  std::string started;  // as the system counts, so that a pid that was given again is noticed
  std::string cores;    // that it may use

  std::string text() const;
  static Peer from_text(const std::string& text);
  static Peer self();
};

enum class Condition { runs, stopped, gone, unknown };

class Roster {
 public:
  Roster() = default;  // knows nobody, as long as nobody has told
  Roster(std::vector<Peer> peers, int rank) : peers_(std::move(peers)), rank_(rank) {}

  int count() const { return static_cast<int>(peers_.size()); }
  // "rank 3 (node-b)"; "rank 3" of one that is not known
  std::string name(int rank) const;
  // Of a process on this host; `unknown` elsewhere.
  Condition condition(int rank) const;
  // Other ranks on this host that are in this condition.
  std::vector<int> others(Condition condition) const;
  // "rank 3 (node-b), pid 4711, is gone", "... is stopped"; the name alone where nothing is known.
  std::string describe(int rank) const;
  std::string describe(const std::vector<int>& ranks) const;  // one after another
  // Processes whose cores are this one's, itself included.
  int sharing_cores() const;

 private:
  const Peer& peer(int rank) const { return peers_[static_cast<std::size_t>(rank)]; }
  bool here(int rank) const { return peer(rank).space == peer(rank_).space; }

  std::vector<Peer> peers_;
  int rank_ = 0;
};

}  // namespace dew::comm
