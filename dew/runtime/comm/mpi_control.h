// Messages beside the exchanges: who waits, and who has failed. Only dew/runtime/comm/mpi*.cc
// include this.
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "dew/base/error.h"
#include "dew/runtime/comm/mpi_support.h"

namespace dew::comm {

enum class Word : int {
  who_is_here,  // to be answered by those that wait
  waits,        // the answer; the text says for what
  failed,       // the sender has met an error and ends
};

struct Message {
  int from = 0;
  Word word = Word::waits;
  int code = 0;            // ErrorCode of one that failed
  std::string text, hint;  // one line each
  bool heard = false;      // it failed because it heard that another did
};

class Control {
 public:
  // Of all processes; a call in each of them.
  Control();
  Control(const Control&) = delete;
  Control& operator=(const Control&) = delete;

  // Sends without waiting for anybody.
  void tell(int to, const Message& message);
  void tell_all(const Message& message);  // but this process
  // What has arrived since the last call.
  std::vector<Message> heard();

 private:
  struct Sent {
    std::string bytes;
    MPI_Request request;
  };

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0, count_ = 1;
  std::deque<Sent> sent_;  // those under way stay
};

}  // namespace dew::comm
