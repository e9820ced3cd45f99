#include "dew/runtime/cpu/kernels/fused_program.h"

#include <algorithm>

#include "dew/base/format.h"

namespace dew::cpu {
namespace {

constexpr std::int64_t kTile = 1024;           // elements, where something is copied for each tile
constexpr std::int64_t kLongTile = 64 * 1024;  // where nothing is

// Elements in the innermost dimensions that every view walks with one stride.
std::int64_t common_run(const Dims& shape, const std::vector<View>& inputs,
                        const std::vector<View>& outputs) {
  std::int64_t run = 1;
  std::size_t inner = shape.size();  // the innermost dimension that is not 1
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] == 1) continue;
    if (inner == shape.size()) inner = d;
    const auto goes_on = [&](const View& v) {
      return d == inner || v.strides[d] == v.strides[inner] * run;
    };
    if (!std::all_of(inputs.begin(), inputs.end(), goes_on) ||
        !std::all_of(outputs.begin(), outputs.end(), goes_on))
      break;
    run *= shape[d];
  }
  return run;
}

// Values are numbered as in FusedGroup: inputs, then micro-ops. Time: micro-op t runs at 2t, what
// it allows to be stored follows at 2t + 1, and end() is behind all micro-ops.
class Builder {
 public:
  Builder(const Step& step, std::string& why_not)
      : step_(step), group_(step.group), why_not_(why_not) {}

  std::optional<FusedProgram> build() {
    p_.table = &code_table();
    p_.io = &range_io();
    if (!find_views() || !find_ops()) return std::nullopt;
    find_last_reads();
    choose_tile();
    find_sources();
    find_residents();
    find_store_times();
    make_rooms();
    emit_once();
    dry_ = true;  // first to see which values must be kept in memory, then for good
    emit_each();
    dry_ = false;
    emit_each();
    return complete_ ? std::optional(std::move(p_)) : std::nullopt;
  }

 private:
  // ---- what the group asks for ----
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }
  int ops() const { return static_cast<int>(group_.ops.size()); }
  int inputs() const { return static_cast<int>(group_.inputs.size()); }
  int outputs() const { return static_cast<int>(group_.outputs.size()); }
  int values() const { return inputs() + ops(); }
  int end() const { return 2 * ops() + 1; }
  bool is_input(int v) const { return v < inputs(); }
  int made_at(int v) const { return 2 * (v - inputs()); }
  DType dtype_of(int v) const {
    return is_input(v) ? group_.inputs[at(v)] : group_.ops[at(v - inputs())].dtype;
  }

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

  // Ops that leave bits as they are become other names of their operand.
  bool find_ops() {
    for (int v = 0; v < inputs(); ++v) root_.push_back(v);
    for (int t = 0; t < ops(); ++t) {
      const MicroOp& op = group_.ops[at(t)];
      if (op.registers.empty() || op.registers.size() > 3)
        return refuse(format("{} operands", op.registers.size()));
      const bool same = is_identity(op.op, dtype_of(op.registers[0]), op.dtype);
      root_.push_back(same ? root_[at(op.registers[0])] : inputs() + t);
    }
    return true;
  }

  bool runs(int t) const { return root_[at(inputs() + t)] == inputs() + t; }
  int operand(int t, std::size_t i) const { return root_[at(group_.ops[at(t)].registers[i])]; }
  std::size_t arity(int t) const { return group_.ops[at(t)].registers.size(); }
  int output_value(int o) const { return root_[at(group_.outputs[at(o)])]; }

  void find_last_reads() {
    last_.assign(at(values()), -1);
    for (int t = 0; t < ops(); ++t) {
      for (std::size_t i = 0; runs(t) && i < arity(t); ++i) last_[at(operand(t, i))] = 2 * t;
    }
    for (int o = 0; o < outputs(); ++o) {
      if (is_input(output_value(o))) last_[at(output_value(o))] = end();
    }
  }

  // ---- inputs ----
  void choose_tile() {
    const std::int64_t row =
        std::max<std::int64_t>(1, common_run(group_.shape, step_.inputs, step_.outputs));
    const auto in_place = [](const Strided& s) { return s.dense() || s.uniform(); };
    const bool copies = !std::all_of(p_.inputs.begin(), p_.inputs.end(), in_place) ||
                        !std::all_of(p_.outputs.begin(), p_.outputs.end(), in_place);
    std::int64_t tile = copies ? kTile : kLongTile;
    if (row < p_.elements && row <= kTile) {
      tile = kTile / row * row;
    } else if (row < p_.elements) {
      const auto block = static_cast<std::int64_t>(kBlock);
      const std::int64_t tiles = (row + kTile - 1) / kTile;
      tile = ((row + tiles - 1) / tiles + block - 1) / block * block;
      p_.row = row;
    }
    p_.tile = std::max<std::int64_t>(1, std::min(tile, p_.elements));
  }

  void find_sources() {
    for (const Strided& s : p_.inputs) {
      const bool whole_rows =
          p_.row == 0 && s.rank == 2 && s.strides[0] == 0 && p_.tile % s.inner() == 0;
      const bool points = s.step() == 1 && byte_size(s.dtype) == 4;
      Source source = Source::copied;
      if (s.uniform())
        source = Source::uniform;
      else if (s.dense())
        source = Source::in_place;
      else if (whole_rows)
        source = Source::periodic;
      else if (s.step() == 0 || points)
        source = Source::runs;
      p_.sources.push_back(source);
    }
  }

  // bf16 and pred as they lie in a buffer: only a load understands them.
  bool is_narrow(int v) const {
    return is_input(v) && p_.sources[at(v)] == Source::in_place &&
           byte_size(group_.inputs[at(v)]) < 4;
  }

  // Values that are the same for all tiles of a piece, made once.
  void find_residents() {
    resident_.assign(at(values()), false);
    uniform_.assign(at(values()), false);
    for (int v = 0; v < values(); ++v) {
      bool resident = true, uniform = true;
      if (is_input(v)) {
        uniform = p_.sources[at(v)] == Source::uniform;
        resident = uniform || p_.sources[at(v)] == Source::periodic;
      } else {
        for (std::size_t i = 0; i < arity(v - inputs()); ++i) {
          resident = resident && resident_[at(operand(v - inputs(), i))];
          uniform = uniform && uniform_[at(operand(v - inputs(), i))];
        }
      }
      resident_[at(v)] = resident;
      uniform_[at(v)] = uniform;
    }
  }

  // ---- outputs: not before the last read of an input that may be the same memory ----
  // Buffers do not tell: an input and an output of the program may be one array of the caller.
  bool overwrites(int output, int input) const {
    const View &in = step_.inputs[at(input)], &out = step_.outputs[at(output)];
    return byte_size(in.type.dtype) == byte_size(out.type.dtype) && in.strides == out.strides &&
           in.offset == out.offset && in.loop_stride == out.loop_stride;
  }

  void find_store_times() {
    for (int o = 0; o < outputs(); ++o) {
      const int v = output_value(o);
      int time = is_input(v) ? end() : made_at(v);
      for (int i = 0; i < inputs(); ++i) {
        if (overwrites(o, i)) time = std::max(time, last_[at(i)]);
      }
      store_time_.push_back(time | 1);
    }
    for (int o = 0; o < outputs(); ++o)
      last_[at(output_value(o))] = std::max(last_[at(output_value(o))], store_time_[at(o)]);
  }

  // ---- places ----
  int add_room(bool whole_tile) {
    p_.rooms.push_back({p_.floats, whole_tile});
    p_.floats += whole_tile ? p_.tile_floats() : kBlock;
    return static_cast<int>(p_.rooms.size()) - 1;
  }

  // Dense inputs and outputs have a block for what remains at the end of a tile.
  void make_rooms() {
    for (const Source source : p_.sources)
      add_room(source != Source::in_place && source != Source::uniform);
    for (const Strided& s : p_.outputs) add_room(!s.dense());
    home_.assign(at(values()), -1);
    for (int v = 0; v < inputs(); ++v) home_[at(v)] = v;
    for (int v = inputs(); v < values(); ++v) {
      if (resident_[at(v)] && runs(v - inputs())) home_[at(v)] = add_room(!uniform_[at(v)]);
    }
    // A value that is stored as it is made can be read again from there.
    for (int o = 0; o < outputs(); ++o) {
      const int v = output_value(o);
      const bool kept = p_.outputs[at(o)].dense32() && store_time_[at(o)] == (made_at(v) | 1);
      if (!is_input(v) && !resident_[at(v)] && kept) home_[at(v)] = inputs() + o;
    }
    kept_.assign(at(values()), false);
    for (int v = 0; v < inputs(); ++v) kept_[at(v)] = must_be_saved(v);
  }

  // An input that is also an output, while another output overwrites it.
  bool must_be_saved(int input) const {
    if (p_.sources[at(input)] != Source::in_place || last_[at(input)] != end()) return false;
    for (int o = 0; o < outputs(); ++o) {
      if (output_value(o) != input && overwrites(o, input)) return true;
    }
    return false;
  }

  // ---- code ----
  void code(CodeFn fn, int a = 0, int b = 0, double number = 0) {
    if (dry_) return;
    if (fn == nullptr) complete_ = false;
    string_->push_back({fn, a, b, number});
  }

  // Brings a value into the accumulator.
  void bring(int v) {
    if (acc_ == v) return;
    acc_ = v;
    if (!is_input(v)) kept_[at(v)] = true;
    const bool narrow = is_narrow(v) && home_[at(v)] == v;
    code(p_.table->load(narrow ? group_.inputs[at(v)] : DType::f32), home_[at(v)]);
  }

  // Where a code can read the value.
  int place(int v) {
    if (!is_input(v) || is_narrow(v)) kept_[at(v)] = true;
    return home_[at(v)];
  }

  int take_slot() {
    if (free_slots_.empty()) return add_room(false);
    const int slot = free_slots_.back();
    free_slots_.pop_back();
    return slot;
  }

  // The accumulator's value goes to a block of its own, if somebody reads it from memory and it is
  // not there anyway.
  void keep(int v) {
    if (dry_ || !kept_[at(v)] || (home_[at(v)] >= 0 && home_[at(v)] != v)) return;
    home_[at(v)] = take_slot();
    slots_.push_back(v);
    code(p_.table->store(DType::f32), home_[at(v)]);
  }

  void release(int time) {
    std::erase_if(slots_, [&](int v) {
      if (last_[at(v)] != time) return false;
      free_slots_.push_back(home_[at(v)]);
      return true;
    });
  }

  // Of the operands, the one that the accumulator shall hold: what it holds already, or what only a
  // load understands.
  std::size_t choose(int t) const {
    for (std::size_t i = 0; i < arity(t); ++i) {
      if (operand(t, i) == acc_) return i;
    }
    for (std::size_t i = 0; i < arity(t); ++i) {
      if (is_narrow(operand(t, i))) return i;
    }
    return 0;
  }

  void compute(int t) {
    const MicroOp& op = group_.ops[at(t)];
    const std::size_t k = choose(t);
    bring(operand(t, k));
    Form form = Form::unary;
    int a = 0, b = 0;
    if (arity(t) == 2) {
      const int other = operand(t, 1 - k);
      form = other == operand(t, k) ? Form::acc_acc : k == 0 ? Form::acc_mem : Form::mem_acc;
      if (form != Form::acc_acc) a = place(other);
    } else if (arity(t) == 3) {
      form = k == 0 ? Form::select_first : k == 1 ? Form::select_second : Form::select_third;
      a = place(operand(t, k == 0 ? 1 : 0));
      b = place(operand(t, k == 2 ? 1 : 2));
    }
    const DType dtype = dtype_of(op.registers.back());
    const auto* attrs = std::get_if<Number>(&op.attrs);
    const double number = attrs == nullptr ? 0 : attrs->value;
    const CodeFn fn = p_.table->find(op.op, number, dtype, op.dtype, form);
    if (fn == nullptr) refuse(format("no routine for {} of {}", op.op->name, name(dtype)));
    code(fn, a, b, number);
    acc_ = inputs() + t;
  }

  void store(int o) {
    bring(output_value(o));
    const Strided& s = p_.outputs[at(o)];
    code(p_.table->store(s.dense() ? s.dtype : DType::f32), inputs() + o);
  }

  void stores(int time) {
    const int first = acc_;
    for (const bool held : {true, false}) {
      for (int o = 0; o < outputs(); ++o) {
        if (store_time_[at(o)] == time && (output_value(o) == first) == held) store(o);
      }
    }
  }

  void emit_once() {
    string_ = &p_.once;
    for (int t = 0; t < ops(); ++t) {
      const int v = inputs() + t;
      if (!runs(t) || !resident_[at(v)]) continue;
      compute(t);
      code(p_.table->store(DType::f32), home_[at(v)]);
      p_.once_whole_tile = p_.once_whole_tile || !uniform_[at(v)];
    }
    if (!p_.once.empty()) code(p_.table->halt);
  }

  void emit_each() {
    string_ = &p_.each;
    acc_ = -1;
    for (int v = 0; v < inputs(); ++v) {
      if (!kept_[at(v)] || dry_) continue;
      bring(v);
      keep(v);
    }
    acc_ = -1;
    for (int t = 0; t < ops(); ++t) {
      if (runs(t) && !resident_[at(inputs() + t)]) {
        compute(t);
        release(2 * t);
        keep(inputs() + t);
      }
      stores(2 * t + 1);
      release(2 * t + 1);
    }
    stores(end());
    code(p_.table->halt);
  }

  const Step& step_;
  const FusedGroup& group_;
  std::string& why_not_;
  FusedProgram p_;
  std::vector<int> root_;        // of a value: the one whose bits it has
  std::vector<int> last_;        // time of its last read
  std::vector<int> store_time_;  // of outputs
  std::vector<int> home_;        // of a value: the place where it can be read
  std::vector<bool> resident_, uniform_, kept_;
  std::vector<int> slots_;       // values in blocks of their own
  std::vector<int> free_slots_;  // blocks that are free again
  std::vector<Code>* string_ = nullptr;
  int acc_ = -1;  // value in the accumulator
  bool dry_ = false, complete_ = true;
};

}  // namespace

std::optional<FusedProgram> fused_program(const Step& step, std::string& why_not) {
  return Builder(step, why_not).build();
}

}  // namespace dew::cpu
