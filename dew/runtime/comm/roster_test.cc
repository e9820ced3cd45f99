#include "dew/runtime/comm/roster.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace dew::comm {
namespace {

// A process that waits to be killed, as it would tell of itself.
class Child {
 public:
  Child() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = ::fork();
    if (pid_ == 0) {
      const std::string text = Peer::self().text();
      if (::write(ends[1], text.data(), text.size()) < 0) ::_exit(1);
      ::close(ends[1]);
      for (;;) ::pause();
    }
    ::close(ends[1]);
    std::string text(4096, ' ');
    text.resize(static_cast<std::size_t>(::read(ends[0], text.data(), text.size())));
    ::close(ends[0]);
    peer_ = Peer::from_text(text);
  }
  ~Child() { end(); }

  const Peer& peer() const { return peer_; }
  void signal(int number) const { ::kill(pid_, number); }
  void wait(int options) const { ::waitpid(pid_, nullptr, options); }
  void end() {
    if (pid_ < 0) return;
    signal(SIGKILL);
    wait(0);
    pid_ = -1;
  }

 private:
  int pid_ = -1;
  Peer peer_;
};

TEST(Roster, PeersAsText) {
  const Peer self = Peer::self(), back = Peer::from_text(self.text());
  EXPECT_EQ(back.host, self.host);
  EXPECT_EQ(back.space, self.space);
  EXPECT_EQ(back.pid, ::getpid());
  EXPECT_EQ(back.started, self.started);
  EXPECT_EQ(back.cores, self.cores);
  EXPECT_FALSE(self.started.empty());
  EXPECT_FALSE(self.cores.empty());
}

TEST(Roster, SeesWhatBecameOfAProcess) {
  Child child;
  const Roster roster({Peer::self(), child.peer()}, 0);
  EXPECT_EQ(roster.condition(0), Condition::runs);
  EXPECT_EQ(roster.condition(1), Condition::runs);
  EXPECT_TRUE(roster.others(Condition::gone).empty());
  child.signal(SIGSTOP);
  child.wait(WUNTRACED);
  EXPECT_EQ(roster.condition(1), Condition::stopped);
  EXPECT_EQ(roster.others(Condition::stopped), std::vector<int>{1});
  EXPECT_NE(roster.describe(1).find("is stopped"), std::string::npos);
  child.end();
  EXPECT_EQ(roster.condition(1), Condition::gone);
  EXPECT_EQ(roster.others(Condition::gone), std::vector<int>{1});
  EXPECT_EQ(roster.describe(1), "rank 1 (" + child.peer().host + "), pid " +
                                    std::to_string(child.peer().pid) + ", is gone");
}

TEST(Roster, ANumberThatWasGivenAgainIsAnotherProcess) {
  Peer earlier = Peer::self();
  earlier.started += "0";
  EXPECT_EQ(Roster({Peer::self(), earlier}, 0).condition(1), Condition::gone);
}

// A process that can open no file does not take the others for dead.
TEST(Roster, NoFileLeftToLookAt) {
  const Child child;
  const Roster roster({Peer::self(), child.peer()}, 0);
  rlimit usual{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &usual), 0);
  const rlimit none{0, usual.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Condition seen = roster.condition(1);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &usual), 0);
  EXPECT_EQ(seen, Condition::unknown);
  EXPECT_EQ(roster.condition(1), Condition::runs);
}

// An error may come before the processes have told of themselves.
TEST(Roster, NamesAlsoWhomItDoesNotKnow) {
  const Roster roster;
  EXPECT_EQ(roster.name(3), "rank 3");
  EXPECT_EQ(roster.describe(std::vector{0, 3}), "rank 0; rank 3");
  EXPECT_TRUE(roster.others(Condition::gone).empty());
}

TEST(Roster, KnowsNothingOfOtherHosts) {
  Peer far = Peer::self();
  far.host = "elsewhere";
  far.space = "elsewhere pid:[1]";
  const Roster roster({Peer::self(), far}, 0);
  EXPECT_EQ(roster.condition(1), Condition::unknown);
  EXPECT_EQ(roster.describe(1), "rank 1 (elsewhere)");
  EXPECT_EQ(roster.sharing_cores(), 1);
}

TEST(Roster, CountsWhoSharesItsCores) {
  Peer other = Peer::self();
  other.cores = "none of mine";
  EXPECT_EQ(Roster({Peer::self(), Peer::self(), other}, 0).sharing_cores(), 2);
}

}  // namespace
}  // namespace dew::comm
