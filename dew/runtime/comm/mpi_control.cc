#include "dew/runtime/comm/mpi_control.h"

#include "dew/base/format.h"

namespace dew::comm {
namespace {

constexpr int kTag = 7;

// "WORD CODE HEARD LENGTH TEXT HINT", the text of that length.
std::string to_bytes(const Message& m) {
  return format("{} {} {} {} {}{}", static_cast<int>(m.word), m.code, m.heard ? 1 : 0,
                m.text.size(), m.text, m.hint);
}

Message from_bytes(int from, const std::string& bytes) {
  Message m;
  m.from = from;
  std::size_t at = 0;
  const auto number = [&] {
    std::size_t used = 0;
    const int n = std::stoi(bytes.substr(at), &used);
    at += used + 1;
    return n;
  };
  m.word = static_cast<Word>(number());
  m.code = number();
  m.heard = number() != 0;
  const auto length = static_cast<std::size_t>(number());
  m.text = bytes.substr(at, length);
  m.hint = bytes.substr(at + length);
  return m;
}

}  // namespace

Control::Control() {
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &count_);
}

void Control::tell(int to, const Message& message) {
  sent_.push_back({to_bytes(message), MPI_REQUEST_NULL});
  Sent& s = sent_.back();
  check_mpi(MPI_Isend(s.bytes.data(), static_cast<int>(s.bytes.size()), MPI_CHAR, to, kTag, comm_,
                      &s.request),
            "MPI_Isend");
}

void Control::tell_all(const Message& message) {
  for (int rank = 0; rank < count_; ++rank) {
    if (rank != rank_) tell(rank, message);
  }
}

std::vector<Message> Control::heard() {
  for (Sent& s : sent_) {
    int done = 0;
    MPI_Test(&s.request, &done, MPI_STATUS_IGNORE);
  }
  while (!sent_.empty() && sent_.front().request == MPI_REQUEST_NULL) sent_.pop_front();
  std::vector<Message> out;
  for (;;) {
    int there = 0, length = 0;
    MPI_Status status;
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &there, &status), "MPI_Iprobe");
    if (there == 0) return out;
    MPI_Get_count(&status, MPI_CHAR, &length);
    std::string bytes(static_cast<std::size_t>(length), ' ');
    check_mpi(
        MPI_Recv(bytes.data(), length, MPI_CHAR, status.MPI_SOURCE, kTag, comm_, MPI_STATUS_IGNORE),
        "MPI_Recv");
    out.push_back(from_bytes(status.MPI_SOURCE, bytes));
  }
}

}  // namespace dew::comm
