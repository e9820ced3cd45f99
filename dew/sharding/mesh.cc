#include "dew/sharding/mesh.h"

#include <algorithm>
#include <charconv>
#include <numeric>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/base/nearest.h"

namespace dew {
namespace {

using Sizes = std::array<std::int64_t, kMeshAxes.size()>;

Mesh mesh_of_sizes(const Sizes& sizes) {
  Mesh mesh;
  mesh.sizes = sizes;
  for (int a = 0; a < static_cast<int>(kMeshAxes.size()); ++a) {
    const std::int64_t size = sizes[static_cast<std::size_t>(a)];
    if (size > 1) mesh.atoms.push_back({a, size, kMeshAxes[static_cast<std::size_t>(a)]});
  }
  return mesh;
}

// A whole number of at least 1.
std::optional<std::int64_t> parse_positive(std::string_view text) {
  std::int64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end || number < 1) return std::nullopt;
  return number;
}

std::int64_t parse_size(std::string_view axis, std::string_view text) {
  if (const std::optional<std::int64_t> size = parse_positive(text)) return *size;
  fail(ErrorCode::usage,
       format("mesh {} = '{}', but it must be a whole number of at least 1", axis, text));
}

// By axis; 0 where `text` does not say.
Sizes parse_axes(std::string_view text) {
  Sizes sizes{};
  std::int64_t devices = 1;
  const std::string_view all = text;
  while (!text.empty()) {
    const std::string_view part = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    const std::size_t equals = part.find('=');
    if (equals == part.npos || (text.empty() && all.ends_with(','))) {
      fail(ErrorCode::usage, format("mesh '{}' is not of the form fsdp=16,tensor=16", all));
    }
    const std::string_view name = part.substr(0, equals);
    std::int64_t& size = sizes[static_cast<std::size_t>(parse_axis(name, "mesh: "))];
    if (size != 0) fail(ErrorCode::usage, format("mesh '{}' has {} twice", all, name));
    size = parse_size(name, part.substr(equals + 1));
    if (__builtin_mul_overflow(devices, size, &devices))
      fail(ErrorCode::usage, format("mesh '{}' has 2^63 devices or more", all));
  }
  return sizes;
}

std::int64_t or_one(std::int64_t size) { return size == 0 ? 1 : size; }

}  // namespace

MeshAxis parse_axis(std::string_view name, std::string_view where) {
  const auto found = std::ranges::find(kMeshAxes, name);
  if (found != kMeshAxes.end()) return static_cast<MeshAxis>(found - kMeshAxes.begin());
  const std::vector<std::string_view> names(kMeshAxes.begin(), kMeshAxes.end());
  fail(ErrorCode::usage, format("{}'{}' is no mesh axis, the nearest is '{}'; there are {}", where,
                                name, nearest(name, names), fmt::join(kMeshAxes, ", ")));
}

std::int64_t Mesh::devices() const {
  std::int64_t n = 1;
  for (const std::int64_t size : sizes) n *= size;
  return n;
}

std::int64_t Mesh::product(std::span<const int> atoms_of) const {
  std::int64_t n = 1;
  for (const int a : atoms_of) n *= atoms[static_cast<std::size_t>(a)].size;
  return n;
}

std::vector<int> Mesh::atoms_of(MeshAxis axis) const {
  std::vector<int> out;
  for (std::size_t a = 0; a < atoms.size(); ++a) {
    if (atoms[a].axis == axis) out.push_back(static_cast<int>(a));
  }
  return out;
}

std::vector<std::int64_t> Mesh::coordinates(std::int64_t device) const {
  std::vector<std::int64_t> out(atoms.size());
  for (std::size_t a = atoms.size(); a-- > 0;) {
    out[a] = device % atoms[a].size;
    device /= atoms[a].size;
  }
  return out;
}

std::int64_t Mesh::block(std::span<const int> atoms_of, std::int64_t device) const {
  const std::vector<std::int64_t> at = coordinates(device);
  std::int64_t out = 0;
  for (const int a : atoms_of) {
    out = out * atoms[static_cast<std::size_t>(a)].size + at[static_cast<std::size_t>(a)];
  }
  return out;
}

Mesh build_mesh(const MeshSpec& spec, std::int64_t devices) {
  const std::int64_t given[] = {spec.expert, spec.fsdp, spec.tensor, spec.sequence, spec.stage};
  std::int64_t rest = std::max<std::int64_t>(devices, 0);
  bool fits = devices >= 1;
  for (const std::int64_t n : given) {
    fits = fits && n >= 1 && rest % n == 0;
    rest = fits ? rest / n : rest;
  }
  if (!fits) {
    fail(ErrorCode::layout_refused,
         format("mesh expert={}, fsdp={}, tensor={}, sequence={}, stage={} does not divide {} "
                "device{}",
                spec.expert, spec.fsdp, spec.tensor, spec.sequence, spec.stage, devices,
                devices == 1 ? "" : "s"),
         "every factor is at least 1 and their product divides the number of devices; data takes "
         "what is left");
  }
  if (spec.replicas < 1 || rest % spec.replicas != 0) {
    fail(ErrorCode::layout_refused,
         format("replicas = {} does not divide the data axis, which has size {} ({} devices)",
                spec.replicas, rest, devices));
  }
  return mesh_of_sizes({rest, spec.expert, spec.fsdp, spec.tensor, spec.sequence, spec.stage});
}

MeshSpec parse_mesh(std::string_view text) {
  const Sizes sizes = parse_axes(text);
  if (sizes[kData] != 0) {
    fail(ErrorCode::usage,
         format("mesh '{}' gives data, which takes the devices that are left", text),
         "leave data out");
  }
  return {.fsdp = or_one(sizes[kFsdp]),
          .expert = or_one(sizes[kExpert]),
          .tensor = or_one(sizes[kTensor]),
          .sequence = or_one(sizes[kSequence]),
          .stage = or_one(sizes[kStage])};
}

Mesh parse_sizes(std::string_view text) {
  Sizes sizes = parse_axes(text);
  std::ranges::transform(sizes, sizes.begin(), or_one);
  return mesh_of_sizes(sizes);
}

std::optional<std::int64_t> parse_devices(std::string_view text) {
  if (text == "cpu") return 1;
  if (!text.starts_with("cpu:")) return std::nullopt;
  return parse_positive(text.substr(4));
}

std::vector<std::int64_t> device_order(const Mesh& mesh, std::int64_t replicas,
                                       std::span<const std::int64_t> hosts) {
  const std::int64_t devices = mesh.devices();
  DEW_CHECK(std::ssize(hosts) == devices, format("{} of {} devices", hosts.size(), devices));
  std::vector<std::int64_t> order(hosts.size());
  std::iota(order.begin(), order.end(), 0);
  std::vector<std::int64_t> names(hosts.begin(), hosts.end());
  std::ranges::sort(names);
  names.erase(std::ranges::unique(names).begin(), names.end());
  if (replicas == 1 || names.size() == 1) return order;

  const std::int64_t all_hosts = std::ssize(names);
  if (all_hosts % replicas != 0) {
    fail(ErrorCode::layout_refused,
         format("replicas = {} does not divide {} hosts", replicas, all_hosts),
         "a replica is a group of whole hosts");
  }
  const auto group = [&](std::int64_t device) {
    const auto host = std::ranges::lower_bound(names, hosts[static_cast<std::size_t>(device)]);
    return (host - names.begin()) / (all_hosts / replicas);
  };
  std::ranges::stable_sort(order, {}, group);
  for (std::int64_t g = 0; g < replicas; ++g) {
    const auto held = std::ranges::count(order, g, group);
    if (held * replicas == devices) continue;
    fail(ErrorCode::layout_refused,
         format("replicas = {} on {} hosts: group {} has {} devices, each needs {}", replicas,
                all_hosts, g, held, devices / replicas),
         "a replica is a group of whole hosts, and all have as many devices");
  }
  return order;
}

Mesh split_axis(const Mesh& mesh, MeshAxis axis, std::int64_t major) {
  const std::vector<int> whole = mesh.atoms_of(axis);
  DEW_CHECK(whole.size() == 1, "an axis is split once, where its size is above 1");
  const std::int64_t size = mesh.size(axis);
  DEW_CHECK(major >= 1 && size % major == 0, "the major part divides the axis");
  if (major == 1 || major == size) return mesh;
  Mesh out = mesh;
  const std::string name = kMeshAxes[static_cast<std::size_t>(axis)];
  const auto at = out.atoms.begin() + whole.front();
  *at = {axis, major, name + ".0"};
  out.atoms.insert(at + 1, {axis, size / major, name + ".1"});
  return out;
}

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (std::size_t a = 0; a < kMeshAxes.size(); ++a) {
    text +=
        (a == 0 ? "{'" : ", '") + std::string(kMeshAxes[a]) + "': " + std::to_string(mesh.sizes[a]);
  }
  return text + "}";
}

}  // namespace dew
