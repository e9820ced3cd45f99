#include "dew/sharding/vote.h"

#include <algorithm>
#include <tuple>

#include "dew/base/error.h"

namespace dew {
namespace {

// Where a tensor holds an atom: a factor, kNowhere (on a dimension, but on none of its factors), or
// kAbsent.
constexpr int kAbsent = -1, kNowhere = -2;
// What an atom may choose besides a factor.
constexpr int kPass = -3, kNone = -4;

using Places = std::vector<int>;  // of each atom

bool lists(const std::vector<int>& numbers, std::size_t number) {
  return std::ranges::find(numbers, static_cast<int>(number)) != numbers.end();
}

class Vote {
 public:
  Vote(const Mesh& mesh, const FactorRule& rule, std::span<const OperandVote> operands,
       std::span<const ResultWish> results)
      : mesh_(mesh), rule_(rule), operands_(operands), results_(results) {
    for (std::size_t i = 0; i < operands.size(); ++i)
      held_.push_back(project(rule.operands[i], operands[i].spec.dims));
    for (std::size_t i = 0; i < results.size(); ++i) {
      wished_.push_back(results[i].dims ? project(rule.results[i], *results[i].dims)
                                        : Places(mesh.atoms.size(), kAbsent));
    }
    out_.factors.resize(rule.sizes.size());
  }

  Assignment run() {
    for (int a = 0; a < static_cast<int>(mesh_.atoms.size()); ++a) {
      if (takes_part(a)) place(a);
    }
    for (std::size_t f = 0; f < out_.factors.size(); ++f) put_in_order(static_cast<int>(f));
    return std::move(out_);
  }

 private:
  // Number of results and operands that must communicate; then a split before a pass before
  // nothing; then those of them that are no weights.
  using Score = std::tuple<int, int, int>;

  std::int64_t size(int factor) const { return rule_.sizes[static_cast<std::size_t>(factor)]; }
  std::int64_t atom_size(int atom) const {
    return mesh_.atoms[static_cast<std::size_t>(atom)].size;
  }
  std::int64_t placed(int factor) const {
    return mesh_.product(out_.factors[static_cast<std::size_t>(factor)]);
  }

  // A dimension's atoms fill its factors from the major one on.
  Places project(const FactorRule::DimFactors& factors, const DimAtoms& dims) const {
    Places places(mesh_.atoms.size(), kAbsent);
    for (std::size_t d = 0; d < dims.size(); ++d) {
      std::size_t f = 0;
      std::int64_t used = 1;
      for (const int a : dims[d]) {
        while (f + 1 < factors[d].size() && used == size(factors[d][f])) {
          ++f;
          used = 1;
        }
        const bool fits = f < factors[d].size() && size(factors[d][f]) % (used * atom_size(a)) == 0;
        places[static_cast<std::size_t>(a)] = fits ? factors[d][f] : kNowhere;
        used *= fits ? atom_size(a) : 1;
      }
    }
    return places;
  }

  static int at(const Places& places, int atom) { return places[static_cast<std::size_t>(atom)]; }
  bool partial(std::size_t operand, int atom) const {
    return has(operands_[operand].spec.partial, atom);
  }

  bool takes_part(int atom) const {
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (at(held_[i], atom) != kAbsent || partial(i, atom)) return true;
    }
    return std::ranges::any_of(wished_, [&](const Places& p) { return at(p, atom) != kAbsent; });
  }

  bool proposed(int factor, int atom) const {
    const auto here = [&](const Places& p) { return at(p, atom) == factor; };
    return std::ranges::any_of(held_, here) || std::ranges::any_of(wished_, here);
  }

  // The minor part of a dimension may be split only when all parts before it are.
  bool fits(int factor, int atom) const {
    if (lists(rule_.norep, static_cast<std::size_t>(factor))) return false;
    if (size(factor) % (placed(factor) * atom_size(atom)) != 0) return false;
    for (const auto* side : {&rule_.operands, &rule_.results}) {
      for (const FactorRule::DimFactors& dims : *side) {
        for (const std::vector<int>& dim : dims) {
          const auto mine = std::ranges::find(dim, factor);
          if (mine == dim.end()) continue;
          for (auto major = dim.begin(); major != mine; ++major) {
            if (placed(*major) != size(*major)) return false;
          }
        }
      }
    }
    return true;
  }

  // May partial sums over the atom go through the op?
  bool can_pass(int atom) const {
    int holders = 0;
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      if (!partial(i, atom)) continue;
      if (!lists(rule_.linear, i)) return false;
      ++holders;
    }
    return holders > 0 && (rule_.mode == FactorRule::LinearMode::all || holders == 1);
  }

  void place(int atom) {
    int best = kNone;
    Score least = score(atom, kNone);
    const auto consider = [&](int choice) {
      if (const Score s = score(atom, choice); s < least) {
        least = s;
        best = choice;
      }
    };
    if (can_pass(atom)) consider(kPass);
    // Last to first: of equal scores the first factor stays.
    for (int f = static_cast<int>(rule_.sizes.size()); f-- > 0;) {
      if (!proposed(f, atom) || !fits(f, atom)) continue;
      if (const Score s = score(atom, f); s <= least) {
        least = s;
        best = f;
      }
    }
    if (best == kPass) {
      out_.partial |= bit(atom);
    } else if (best != kNone) {
      out_.factors[static_cast<std::size_t>(best)].push_back(atom);
    }
  }

  Score score(int atom, int choice) const {
    int moves = 0, activations = 0;
    const auto move = [&](bool weight) {
      ++moves;
      activations += weight ? 0 : 1;
    };
    for (std::size_t i = 0; i < operands_.size(); ++i) {
      const int held = at(held_[i], atom);
      if ((held != kAbsent && held != choice) || (partial(i, atom) && choice != kPass))
        move(operands_[i].weight);
    }
    // A sum without dimensions is a few bytes: it has no say.
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (!rule_.results[i].empty() && comes_out_wrong(atom, choice, i)) move(results_[i].weight);
    }
    return {moves, choice == kNone ? 2 : choice == kPass ? 1 : 0, activations};
  }

  bool comes_out_wrong(int atom, int choice, std::size_t i) const {
    if (choice == kPass) return true;  // somebody must reduce it
    if (choice == kNone) return false;
    const auto result = static_cast<int>(i);
    if (rule_.result_has(result, choice))
      return results_[i].dims.has_value() && at(wished_[i], atom) != choice;
    return !rule_.is_inner(choice, result);
  }

  // As in the operand or wish that has most of a factor's atoms there.
  void put_in_order(int factor) {
    std::vector<int>& atoms = out_.factors[static_cast<std::size_t>(factor)];
    if (atoms.size() < 2) return;
    std::vector<int> longest;
    const auto look = [&](const DimAtoms& dims, const Places& places) {
      std::vector<int> here;
      for (const std::vector<int>& dim : dims) {
        for (const int a : dim) {
          if (at(places, a) == factor && std::ranges::find(atoms, a) != atoms.end())
            here.push_back(a);
        }
      }
      if (here.size() > longest.size()) longest = here;
    };
    for (std::size_t i = 0; i < operands_.size(); ++i) look(operands_[i].spec.dims, held_[i]);
    for (std::size_t i = 0; i < results_.size(); ++i) {
      if (results_[i].dims) look(*results_[i].dims, wished_[i]);
    }
    for (const int a : atoms) {
      if (std::ranges::find(longest, a) == longest.end()) longest.push_back(a);
    }
    atoms = longest;
  }

  const Mesh& mesh_;
  const FactorRule& rule_;
  std::span<const OperandVote> operands_;
  std::span<const ResultWish> results_;
  std::vector<Places> held_, wished_;
  Assignment out_;
};

DimAtoms dims_of(const FactorRule::DimFactors& factors, const Assignment& assignment) {
  DimAtoms dims(factors.size());
  for (std::size_t d = 0; d < factors.size(); ++d) {
    for (const int f : factors[d]) {
      const std::vector<int>& atoms = assignment.factors[static_cast<std::size_t>(f)];
      dims[d].insert(dims[d].end(), atoms.begin(), atoms.end());
    }
  }
  return dims;
}

}  // namespace

Assignment assign(const Mesh& mesh, const FactorRule& rule, std::span<const OperandVote> operands,
                  std::span<const ResultWish> results) {
  return Vote(mesh, rule, operands, results).run();
}

Spec operand_spec(const FactorRule& rule, const Assignment& assignment, std::size_t i,
                  const Spec& now) {
  Spec spec{dims_of(rule.operands[i], assignment), 0};
  const bool sum = rule.mode == FactorRule::LinearMode::all && lists(rule.linear, i);
  spec.partial = sum ? assignment.partial : assignment.partial & now.partial;
  if (lists(rule.once, i)) {
    // Added to a sum over parts: it must count once.
    const AtomMask summed = result_spec(rule, assignment, 0).partial;
    spec.partial |= summed & ~atoms_in(spec.dims);
  }
  return spec;
}

Spec result_spec(const FactorRule& rule, const Assignment& assignment, std::size_t i) {
  Spec spec{dims_of(rule.results[i], assignment), assignment.partial};
  const auto result = static_cast<int>(i);
  for (std::size_t f = 0; f < rule.sizes.size(); ++f) {
    const auto factor = static_cast<int>(f);
    if (rule.result_has(result, factor) || rule.is_inner(factor, result)) continue;
    for (const int a : assignment.factors[f]) spec.partial |= bit(a);
  }
  return spec;
}

}  // namespace dew
