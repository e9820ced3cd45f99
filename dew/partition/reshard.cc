#include "dew/partition/reshard.h"

#include <algorithm>
#include <queue>
#include <set>

#include "dew/base/error.h"
#include "dew/base/format.h"

namespace dew {
namespace {

// What starting a collective costs, as bytes; and a step that sends nothing, so that fewer win.
constexpr double kStart = 2000.0, kLocalStep = 0.5;

struct Candidate {
  double cost = 0;
  int number = 0;  // order of discovery: of equal costs the first one wins
  Spec spec;
  std::vector<ReshardStep> path;
};
struct Later {
  bool operator()(const Candidate& a, const Candidate& b) const {
    return std::pair(a.cost, a.number) > std::pair(b.cost, b.number);
  }
};

class Search {
 public:
  Search(const Mesh& mesh, const Dims& shape, std::int64_t element_bytes, const Spec& from,
         const Spec& to)
      : mesh_(mesh), shape_(shape), element_bytes_(element_bytes), from_(from), to_(to) {
    AtomMask used = atoms_in(from.dims) | atoms_in(to.dims) | from.partial | to.partial;
    for (std::size_t d = 0; d < shape.size(); ++d) {
      const std::vector<int>&a = from.dims[d], &b = to.dims[d];
      std::size_t k = 0;
      while (k < std::min(a.size(), b.size()) && a[k] == b[k]) used &= ~bit(a[k++]);
      fixed_.push_back(k);
    }
    for (int a = 0; a < static_cast<int>(mesh.atoms.size()); ++a) {
      if (has(used, a)) free_.push_back(a);
    }
  }

  std::vector<ReshardStep> run() {
    queue_.push({0.0, 0, from_, {}});
    std::set<Spec> seen;
    while (!queue_.empty()) {
      const Candidate here = queue_.top();
      queue_.pop();
      if (here.spec == to_) return here.path;
      if (!seen.insert(here.spec).second) continue;
      here_ = &here;
      find_local();
      add_edges();
    }
    check_failed(__FILE__, __LINE__, "reshard",
                 format("no way from {} to {} of [{}]", to_string(mesh_, from_),
                        to_string(mesh_, to_), join(shape_)));
  }

 private:
  const Spec& spec() const { return here_->spec; }
  std::int64_t size(int atom) const { return mesh_.atoms[static_cast<std::size_t>(atom)].size; }

  void find_local() {
    local_ = local_shape(mesh_, shape_, spec());
    bytes_ = static_cast<double>(element_count(local_) * element_bytes_);
  }

  void go(Move move, std::vector<int> atoms, std::vector<int> dims, Spec to, double bytes) {
    ReshardStep step{.move = move,
                     .atoms = std::move(atoms),
                     .dims = std::move(dims),
                     .from = spec(),
                     .to = std::move(to),
                     .bytes = bytes};
    Candidate next{here_->cost + Resharder::price(step), ++number_, step.to, here_->path};
    next.path.push_back(std::move(step));
    queue_.push(std::move(next));
  }

  Spec with_dim(std::size_t d, std::vector<int> atoms) const {
    Spec out = spec();
    out.dims[d] = std::move(atoms);
    return out;
  }
  Spec appended(std::size_t d, int atom) const {
    Spec out = spec();
    out.dims[d].push_back(atom);
    return out;
  }
  bool splits(std::size_t d, int atom) const { return local_[d] % size(atom) == 0; }

  void add_edges() {
    const AtomMask here = atoms_in(spec().dims) | spec().partial;
    for (const int a : free_) {
      if (!has(here, a)) take_part(a);
    }
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      if (spec().dims[d].size() > fixed_[d]) leave_dim(d);
    }
    reduce();
    permute();
  }

  // A value that is whole over the atom.
  void take_part(int a) {
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      if (splits(d, a)) go(Move::slice, {a}, {static_cast<int>(d)}, appended(d, a), 0);
    }
    if (has(to_.partial, a)) {
      Spec out = spec();
      out.partial |= bit(a);
      go(Move::keep_first, {a}, {}, out, 0);
    }
  }

  // A minor run of a dimension's atoms is gathered by one collective.
  void leave_dim(std::size_t d) {
    std::vector<int> rest = spec().dims[d], atoms;
    while (rest.size() > fixed_[d]) {
      atoms.insert(atoms.begin(), rest.back());
      rest.pop_back();
      const auto n = static_cast<double>(mesh_.product(atoms));
      go(Move::all_gather, atoms, {static_cast<int>(d)}, with_dim(d, rest), bytes_ * (n - 1));
    }
    exchange(d);
  }

  void exchange(std::size_t d) {
    Spec less = spec();
    const int a = less.dims[d].back();
    less.dims[d].pop_back();
    const auto n = static_cast<double>(size(a));
    for (std::size_t e = 0; e < shape_.size(); ++e) {
      if (e == d || !splits(e, a)) continue;
      Spec out = less;
      out.dims[e].push_back(a);
      go(Move::all_to_all, {a}, {static_cast<int>(d), static_cast<int>(e)}, out,
         bytes_ * (n - 1) / n);
    }
  }

  void reduce() {
    std::vector<int> sums;
    for (const int a : free_) {
      if (has(spec().partial, a) && !has(to_.partial, a)) sums.push_back(a);
    }
    for (std::uint32_t subset = 1; subset < (1U << sums.size()); ++subset) {
      std::vector<int> atoms;
      Spec out = spec();
      for (std::size_t k = 0; k < sums.size(); ++k) {
        if ((subset >> k & 1U) == 0) continue;
        atoms.push_back(sums[k]);
        out.partial &= ~bit(sums[k]);
      }
      const auto n = static_cast<double>(mesh_.product(atoms));
      go(Move::all_reduce, atoms, {}, out, 2 * bytes_ * (n - 1) / n);
    }
    for (std::size_t d = 0; d < shape_.size(); ++d) scatter(d, sums, {}, spec());
  }

  // Sums over one or several atoms, in any order, are scattered over a dimension by one collective.
  void scatter(std::size_t d, const std::vector<int>& sums, const std::vector<int>& atoms,
               const Spec& made) {
    for (const int a : sums) {
      std::vector<int> more = atoms;
      more.push_back(a);
      if (!has(made.partial, a) || local_[d] % mesh_.product(more) != 0) continue;
      Spec out = made;
      out.dims[d].push_back(a);
      out.partial &= ~bit(a);
      const auto n = static_cast<double>(mesh_.product(more));
      go(Move::reduce_scatter, more, {static_cast<int>(d)}, out, bytes_ * (n - 1) / n);
      scatter(d, sums, more, out);
    }
  }

  // Other atoms, or another order, with as many parts of each dimension; the fixed ones stay.
  void permute() {
    std::vector<std::int64_t> parts;
    std::vector<int> pool, moved;
    for (std::size_t d = 0; d < shape_.size(); ++d) {
      const std::vector<int> tail = tail_of(spec(), d);
      parts.push_back(mesh_.product(tail));
      moved.insert(moved.end(), tail.begin(), tail.end());
    }
    if (moved.empty()) return;
    for (const int a : free_) {
      if (!has(spec().partial, a)) pool.push_back(a);
    }
    arrange(parts, pool, spec(), 0, moved);
  }

  std::vector<int> tail_of(const Spec& s, std::size_t d) const {
    return {s.dims[d].begin() + static_cast<std::ptrdiff_t>(fixed_[d]), s.dims[d].end()};
  }

  // Chooses the tails of dimension d and later ones from what is left of the pool.
  void arrange(const std::vector<std::int64_t>& parts, const std::vector<int>& pool, Spec made,
               std::size_t d, const std::vector<int>& moved) {
    if (d == shape_.size()) {
      if (made == spec()) return;
      std::vector<int> atoms = moved;
      for (std::size_t e = 0; e < shape_.size(); ++e) {
        for (const int a : tail_of(made, e)) {
          if (std::ranges::find(atoms, a) == atoms.end()) atoms.push_back(a);
        }
      }
      std::ranges::sort(atoms);
      go(Move::permute, atoms, {}, made, bytes_);
      return;
    }
    made.dims[d].resize(fixed_[d]);
    fill_dim(parts, pool, made, d, parts[d], moved);
  }

  void fill_dim(const std::vector<std::int64_t>& parts, const std::vector<int>& pool,
                const Spec& made, std::size_t d, std::int64_t left, const std::vector<int>& moved) {
    if (left == 1) {
      arrange(parts, pool, made, d + 1, moved);
      return;
    }
    for (std::size_t k = 0; k < pool.size(); ++k) {
      if (left % size(pool[k]) != 0) continue;
      std::vector<int> rest = pool;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(k));
      Spec next = made;
      next.dims[d].push_back(pool[k]);
      fill_dim(parts, rest, next, d, left / size(pool[k]), moved);
    }
  }

  const Mesh& mesh_;
  const Dims& shape_;
  const std::int64_t element_bytes_;
  const Spec &from_, &to_;
  std::vector<std::size_t> fixed_;  // atoms of each dimension that stay
  std::vector<int> free_;
  std::priority_queue<Candidate, std::vector<Candidate>, Later> queue_;
  const Candidate* here_ = nullptr;
  Dims local_;
  double bytes_ = 0;
  int number_ = 0;
};

}  // namespace

const char* name(Move move) {
  switch (move) {
    case Move::slice:
      return "slice";
    case Move::keep_first:
      return "keep_first";
    case Move::all_gather:
      return "all_gather";
    case Move::all_to_all:
      return "all_to_all";
    case Move::permute:
      return "permute";
    case Move::all_reduce:
      return "all_reduce";
    case Move::reduce_scatter:
      return "reduce_scatter";
  }
  return "";
}

double Resharder::price(const ReshardStep& step) {
  return step.communicates() ? step.bytes + kStart : kLocalStep;
}

const std::vector<ReshardStep>& Resharder::steps(const Dims& shape, std::int64_t element_bytes,
                                                 const Spec& from, const Spec& to) {
  const Key key{shape, element_bytes, from, to};
  const auto known = known_.find(key);
  if (known != known_.end()) return known->second;
  std::vector<ReshardStep> path;
  if (from != to) path = Search(mesh_, shape, element_bytes, from, to).run();
  return known_.emplace(key, std::move(path)).first->second;
}

}  // namespace dew
