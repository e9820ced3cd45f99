#include "dew/runtime/cpu/kernels/fused_program.h"

#include <algorithm>

#include "dew/base/format.h"

namespace dew::cpu {
namespace {

// What the tiles of all registers that live at once may take of L1 (32 KiB on most processors).
constexpr std::int64_t kTileBytes = 24 * 1024;
constexpr std::int64_t kShortestTile = 256, kLongestTile = 2048;

// Elements in the innermost dimensions that every view walks with one stride.
std::int64_t common_run(const Dims& shape, const std::vector<View>& inputs, const std::vector<View>& outputs) {
  std::int64_t run = 1;
  std::size_t outer = shape.size();
  const auto extends = [&](const View& v, std::size_t d, std::size_t inner) {
    return v.strides[d] == v.strides[inner] * run;
  };
  std::size_t inner = shape.size();  // the innermost dimension that is not 1
  while (outer > 0) {
    --outer;
    if (shape[outer] == 1) continue;
    if (inner == shape.size()) {
      inner = outer;
    } else {
      const auto ok = [&](const View& v) { return extends(v, outer, inner); };
      if (!std::all_of(inputs.begin(), inputs.end(), ok) || !std::all_of(outputs.begin(), outputs.end(), ok)) break;
    }
    run *= shape[outer];
  }
  return run;
}

class Builder {
 public:
  Builder(const Step& step, std::string& why_not) : step_(step), group_(step.group), why_not_(why_not) {}

  std::optional<FusedProgram> build() {
    if (!find_views() || !find_ops()) return std::nullopt;
    find_lifetimes();
    choose_tile();
    find_sources();
    place_outputs();
    emit();
    return std::move(p_);
  }

 private:
  // Time: micro-op t runs at 2t, what it allows to be stored follows at 2t + 1, all stores are done at 2 ops().
  int ops() const { return static_cast<int>(group_.ops.size()); }
  int end() const { return 2 * ops() + 1; }
  int inputs() const { return static_cast<int>(group_.inputs.size()); }
  bool is_input(int r) const { return r < inputs(); }
  int made_at(int r) const { return 2 * (r - inputs()); }

  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  bool refuse(std::string reason) {
    why_not_ = std::move(reason);
    return false;
  }

  bool find_views() {
    const auto add = [&](const View& view, std::vector<Strided>& to) {
      auto s = strided(group_.shape, view.strides, view.type.dtype);
      if (!s) return refuse(format("more than {} dimensions", kMaxRank));
      if (s->dtype == DType::f64) return refuse("no f64");
      to.push_back(*s);
      return true;
    };
    for (const View& view : step_.inputs) {
      if (!add(view, p_.inputs)) return false;
    }
    for (const View& view : step_.outputs) {
      if (!add(view, p_.outputs)) return false;
    }
    p_.elements = element_count(group_.shape);
    return true;
  }

  // Ops that leave bits as they are become other names of their operand's register.
  bool find_ops() {
    std::vector<DType> dtypes = group_.inputs;
    for (int r = 0; r < inputs(); ++r) root_.push_back(r);
    for (const MicroOp& op : group_.ops) {
      std::vector<DType> operands;
      for (int r : op.registers) operands.push_back(dtypes[at(r)]);
      const int r = static_cast<int>(root_.size());
      root_.push_back(is_identity(op.op, operands[0], op.dtype) ? root_[at(op.registers[0])] : r);
      dtypes.push_back(op.dtype);
      Compute c{.to = r, .count = static_cast<int>(op.registers.size())};
      if (root_.back() == r) {
        c.fn = find_micro(op.op, op.attrs, operands, op.dtype);
        if (c.fn == nullptr) return refuse(format("no routine for {} of {}", op.op->name, name(operands[0])));
        if (const auto* number = std::get_if<Number>(&op.attrs)) c.number = number->value;
        for (std::size_t i = 0; i < operands.size(); ++i) c.operands[i] = root_[at(op.registers[i])];
      }
      p_.computes.push_back(c);
    }
    for (int r : group_.outputs) p_.output_registers.push_back(root_[at(r)]);
    p_.registers.resize(root_.size());
    return true;
  }

  bool runs(int t) const { return p_.computes[at(t)].fn != nullptr; }

  void find_lifetimes() {
    last_.assign(root_.size(), -1);
    for (int t = 0; t < ops(); ++t) {
      const Compute& c = p_.computes[at(t)];
      if (!runs(t)) continue;
      last_[at(c.to)] = 2 * t;
      for (int i = 0; i < c.count; ++i) last_[at(c.operands[i])] = 2 * t;
    }
    for (int r : p_.output_registers) {
      if (is_input(r)) last_[at(r)] = end();
    }
  }

  void choose_tile() {
    std::int64_t most = 1;
    for (int t = 0; t <= end(); t += 2) {
      std::int64_t live = 0;
      for (int r = 0; r < static_cast<int>(root_.size()); ++r) live += made_at(r) <= t && last_[at(r)] >= t ? 1 : 0;
      most = std::max(most, live);
    }
    std::int64_t tile = std::clamp(kTileBytes / 4 / most / 64 * 64, kShortestTile, kLongestTile);
    const std::int64_t row = std::max<std::int64_t>(1, common_run(group_.shape, step_.inputs, step_.outputs));
    if (row < p_.elements) {
      if (row <= tile) {
        tile = tile / row * row;
      } else {
        const std::int64_t tiles = (row + tile - 1) / tile;
        tile = ((row + tiles - 1) / tiles + 15) / 16 * 16;
        p_.row = row;
      }
    }
    p_.tile = std::max<std::int64_t>(1, std::min(tile, p_.elements));
  }

  // An input that is also an output, while another output overwrites it, is saved before anything is stored.
  bool needs_copy(int input) const {
    if (last_[at(input)] != end()) return false;
    const auto same = [&](const View& v) { return v.buffer == step_.inputs[at(input)].buffer; };
    return std::any_of(step_.outputs.begin(), step_.outputs.end(), same);
  }

  Source source_of(int input) const {
    const Strided& s = p_.inputs[at(input)];
    if (s.uniform()) return Source::uniform;
    if (needs_copy(input)) return Source::copied;
    if (s.dense32()) return Source::in_place;
    const bool whole_rows = p_.row == 0 && s.rank == 2 && s.strides[0] == 0 && p_.tile % s.inner() == 0;
    if (whole_rows) return Source::periodic;
    if (s.step() == 0 || (s.step() == 1 && byte_size(s.dtype) == 4)) return Source::runs;
    return Source::copied;
  }

  void find_sources() {
    for (int i = 0; i < inputs(); ++i) {
      const Source source = source_of(i);
      p_.sources.push_back(source);
      Register& r = p_.registers[at(i)];
      r.resident = source == Source::uniform || source == Source::periodic;
      if (source == Source::uniform) r.splat = p_.splats++;
    }
    for (int t = 0; t < ops(); ++t) {
      const Compute& c = p_.computes[at(t)];
      if (!runs(t)) continue;
      bool resident = true, splat = true;
      for (int i = 0; i < c.count; ++i) {
        resident = resident && p_.registers[at(c.operands[i])].resident;
        splat = splat && p_.registers[at(c.operands[i])].splat >= 0;
      }
      p_.registers[at(c.to)].resident = resident;
      if (splat) p_.registers[at(c.to)].splat = p_.splats++;
    }
  }

  // When an output may be written: not before the last read of an input that lies in the same buffer.
  int free_at(std::size_t output) const {
    int time = -1;
    for (int i = 0; i < inputs(); ++i) {
      const bool same = step_.inputs[at(i)].buffer == step_.outputs[output].buffer;
      if (same) time = std::max(time, last_[at(i)]);
    }
    return time;
  }

  void place_outputs() {
    std::vector<bool> taken(root_.size(), false);
    for (std::size_t o = 0; o < p_.outputs.size(); ++o) {
      const int r = p_.output_registers[o];
      const bool in_place = !is_input(r) && !p_.registers[at(r)].resident && p_.outputs[o].dense32() && !taken[at(r)] &&
                            free_at(o) <= made_at(r);
      if (in_place) taken[at(r)] = true;
      p_.in_place.push_back(in_place);
      store_time_.push_back(is_input(r) ? end() : std::max(made_at(r), free_at(o)) | 1);
      last_[at(r)] = std::max(last_[at(r)], store_time_.back());
    }
    points_into_output_ = std::move(taken);
  }

  // What stays for a whole piece gets a slot that nothing else uses.
  int take_slot(bool resident) {
    if (resident || free_slots_.empty()) return p_.slots++;
    const int slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  void give_slot_back(int r) {
    const Register& reg = p_.registers[at(r)];
    if (reg.slot >= 0 && !reg.resident) free_slots_.push_back(reg.slot);
  }

  void load(int input) {
    if (loaded_.empty()) loaded_.assign(at(inputs()), false);
    if (loaded_[at(input)]) return;
    loaded_[at(input)] = true;
    Register& reg = p_.registers[at(input)];
    if (reg.splat < 0 && p_.sources[at(input)] != Source::in_place) reg.slot = take_slot(reg.resident);
    (reg.resident ? p_.once : p_.each).push_back({TileStep::load, input});
  }

  // The result may take the place of an operand that is read here for the last time, but not of one that may be a vector
  // standing for many elements.
  void compute(int t) {
    const Compute& c = p_.computes[at(t)];
    std::vector<int> dying;
    for (int i = 0; i < c.count; ++i) {
      const int r = c.operands[i];
      if (is_input(r)) load(r);
      if (last_[at(r)] == 2 * t && std::find(dying.begin(), dying.end(), r) == dying.end()) dying.push_back(r);
    }
    const auto is_tile = [&](int r) { return !is_input(r) || p_.sources[at(r)] != Source::runs; };
    Register& to = p_.registers[at(c.to)];
    for (int r : dying) {
      if (!to.resident && is_tile(r)) give_slot_back(r);
    }
    if (to.splat < 0 && !points_into_output_[at(c.to)]) to.slot = take_slot(to.resident);
    for (int r : dying) {
      if (to.resident || !is_tile(r)) give_slot_back(r);
    }
    if (last_[at(c.to)] == 2 * t) give_slot_back(c.to);  // nobody reads it
    (to.resident ? p_.once : p_.each).push_back({TileStep::compute, t});
  }

  void stores(int time) {
    for (std::size_t o = 0; o < p_.outputs.size(); ++o) {
      if (store_time_[o] == time && is_input(p_.output_registers[o])) load(p_.output_registers[o]);
    }
    for (std::size_t o = 0; o < p_.outputs.size(); ++o) {
      if (store_time_[o] != time || p_.in_place[o]) continue;
      p_.each.push_back({TileStep::store, static_cast<int>(o)});
    }
  }

  void emit() {
    for (int t = 0; t <= ops(); ++t) {
      if (t < ops() && runs(t)) compute(t);
      stores(2 * t + 1);
      for (int r = 0; r < static_cast<int>(root_.size()); ++r) {
        if (last_[at(r)] == 2 * t + 1) give_slot_back(r);
      }
    }
  }

  const Step& step_;
  const FusedGroup& group_;
  std::string& why_not_;
  FusedProgram p_;
  std::vector<int> root_, last_, store_time_, free_slots_;
  std::vector<bool> points_into_output_, loaded_;
};

}  // namespace

std::optional<FusedProgram> fused_program(const Step& step, std::string& why_not) { return Builder(step, why_not).build(); }

}  // namespace dew::cpu
