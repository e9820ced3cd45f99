// What each device of a mesh holds of an array, and the whole again: for the judge of partition(),
// lockstep_test_support.h.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "dew/base/error.h"
#include "dew/ir/interpret.h"
#include "dew/sharding/mesh.h"
#include "dew/sharding/spec.h"

namespace dew::lockstep {

using PerDevice = std::vector<Array>;

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

// One dimension of an array as (outer, size, inner).
struct Strips {
  std::int64_t outer = 1, size = 1, inner = 1;
  Strips(const Dims& shape, std::int64_t dim) : size(shape[at(dim)]) {
    for (std::size_t d = 0; d < shape.size(); ++d)
      (static_cast<std::int64_t>(d) < dim ? outer : inner) *=
          static_cast<std::int64_t>(d) == dim ? 1 : shape[d];
  }
};

inline Array cut(const Array& x, std::int64_t dim, std::int64_t parts, std::int64_t part) {
  const Strips s(x.shape, dim);
  Dims shape = x.shape;
  shape[at(dim)] /= parts;
  Array out(shape);
  const std::int64_t n = s.size / parts;
  for (std::int64_t o = 0; o < s.outer; ++o) {
    std::copy_n(x.data.begin() + (o * s.size + part * n) * s.inner, n * s.inner,
                out.data.begin() + o * n * s.inner);
  }
  return out;
}

inline Array join(const std::vector<const Array*>& parts, std::int64_t dim) {
  const Strips s(parts[0]->shape, dim);
  Dims shape = parts[0]->shape;
  shape[at(dim)] *= static_cast<std::int64_t>(parts.size());
  Array out(shape);
  auto to = out.data.begin();
  for (std::int64_t o = 0; o < s.outer; ++o) {
    for (const Array* p : parts) {
      const std::int64_t n = s.size * s.inner;
      to = std::copy_n(p->data.begin() + o * n, n, to);
    }
  }
  return out;
}

class Devices {
 public:
  explicit Devices(const Mesh& mesh) : mesh_(mesh) {
    for (std::int64_t d = 0; d < mesh.devices(); ++d) places_.push_back(mesh.coordinates(d));
  }

  std::size_t count() const { return places_.size(); }
  const Mesh& mesh() const { return mesh_; }

  template <class Atoms>
  std::int64_t number(std::size_t device, const Atoms& atoms) const {
    std::int64_t n = 0;
    for (const auto a : atoms) n = n * mesh_.atoms[at(a)].size + places_[device][at(a)];
    return n;
  }

  // The device that stands as this one does but for the places along `atoms`, which are those of
  // member `number`.
  std::size_t member(std::size_t device, const Dims& atoms, std::int64_t number) const {
    std::vector<std::int64_t> place = places_[device];
    for (std::size_t i = atoms.size(); i-- > 0;) {
      const std::int64_t size = mesh_.atoms[at(atoms[i])].size;
      place[at(atoms[i])] = number % size;
      number /= size;
    }
    return at(std::ranges::find(places_, place) - places_.begin());
  }

  // Whole array to what each device holds; partial sums are on first members.
  PerDevice split(const Array& whole, const Spec& spec) const {
    PerDevice out;
    for (std::size_t d = 0; d < count(); ++d) {
      Array x = whole;
      for (std::size_t dim = 0; dim < spec.dims.size(); ++dim) {
        x = cut(x, static_cast<std::int64_t>(dim), mesh_.product(spec.dims[dim]),
                number(d, spec.dims[dim]));
      }
      for (int a = 0; spec.partial >> a != 0; ++a) {
        if (has(spec.partial, a) && places_[d][at(a)] != 0) std::ranges::fill(x.data, 0.0);
      }
      out.push_back(std::move(x));
    }
    return out;
  }

  Array whole(const PerDevice& parts, const Spec& spec, const Dims& shape) const {
    Array out(shape);
    const Dims strides = row_major_strides(shape);
    for (std::size_t d = 0; d < count(); ++d) {
      if (!first_replica(d, spec)) continue;
      std::size_t i = 0;
      for_each_index(parts[d].shape, [&](const Dims& index) {
        std::int64_t to = 0;
        for (std::size_t dim = 0; dim < index.size(); ++dim) {
          to += (number(d, spec.dims[dim]) * parts[d].shape[dim] + index[dim]) * strides[dim];
        }
        out.data[at(to)] += parts[d].data[i++];
      });
    }
    return out;
  }

  void check_replicas(const PerDevice& parts, const Dims& shards, const std::string& what) const {
    std::map<std::int64_t, std::size_t> first;
    for (std::size_t d = 0; d < count(); ++d) {
      const auto found = first.emplace(number(d, shards), d).first->second;
      DEW_CHECK(same(parts[found], parts[d]), what + ": replicas differ");
    }
  }

 private:
  static bool same(const Array& a, const Array& b) {
    return a.shape == b.shape && std::ranges::equal(a.data, b.data, [](double x, double y) {
             return x == y || (x != x && y != y);
           });
  }

  bool first_replica(std::size_t d, const Spec& spec) const {
    const AtomMask distinct = atoms_in(spec.dims) | spec.partial;
    for (std::size_t a = 0; a < mesh_.atoms.size(); ++a) {
      if (!has(distinct, static_cast<int>(a)) && places_[d][a] != 0) return false;
    }
    return true;
  }

  Mesh mesh_;
  std::vector<std::vector<std::int64_t>> places_;
};

}  // namespace dew::lockstep
