// Counts what differs between devices that should hold the same bits.
#include <array>
#include <cstring>

#include "dew/runtime/cpu/kernels/kernels_highway.h"

namespace dew::cpu {
namespace {

constexpr std::size_t kMaxRank = 16;

class ReplicasDiffer final : public Kernel {
 public:
  ReplicasDiffer(const View& view, std::size_t replica_dims)
      : size_(static_cast<std::size_t>(byte_size(view.type.dtype))) {
    for (std::size_t d = 0; d < view.type.shape.size(); ++d) {
      sizes_[d] = view.type.shape[d];
      strides_[d] = view.strides[d] * byte_size(view.type.dtype);
      (d < replica_dims ? replicas_ : elements_) *= sizes_[d];
    }
    rank_ = view.type.shape.size();
    replica_dims_ = replica_dims;
    implementation_ = "highway";  // none of it: a check, made to be plain
  }

  void run(const KernelArgs& args, int, int) const noexcept override {
    std::int32_t differing = 0;
    for (std::int64_t e = 0; e < elements_; ++e) {
      const std::byte* first = args.operands[0] + offset(e, replica_dims_, rank_);
      for (std::int64_t r = 1; r < replicas_; ++r)
        differing += std::memcmp(first, first + offset(r, 0, replica_dims_), size_) != 0;
    }
    *reinterpret_cast<std::int32_t*>(args.operands[1]) += differing;
  }

 private:
  // Of an index that counts the dimensions first..last, the last one fastest.
  std::int64_t offset(std::int64_t index, std::size_t first, std::size_t last) const noexcept {
    std::int64_t at = 0;
    for (std::size_t d = last; d-- > first;) {
      at += index % sizes_[d] * strides_[d];
      index /= sizes_[d];
    }
    return at;
  }

  std::size_t size_, rank_ = 0, replica_dims_ = 0;
  std::int64_t replicas_ = 1, elements_ = 1;
  std::array<std::int64_t, kMaxRank> sizes_{}, strides_{};
};

}  // namespace

std::unique_ptr<Kernel> make_replicas_differ(const Step& step, std::string& why_not) {
  const View& view = step.inputs[0];
  if (step.op != &replicas_differ_op || view.type.shape.size() > kMaxRank) {
    why_not = "another op, or too many dimensions";
    return nullptr;
  }
  return std::make_unique<ReplicasDiffer>(
      view, static_cast<std::size_t>(std::get<Axes>(step.attrs).dims.front()));
}

}  // namespace dew::cpu
