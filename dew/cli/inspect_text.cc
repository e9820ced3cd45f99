#include "dew/cli/inspect_text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "dew/base/digest.h"
#include "dew/base/format.h"
#include "dew/base/text.h"
#include "dew/train/config.h"
#include "dew/train/console.h"
#include "dew/train/registers.h"

namespace dew::cli {
namespace {

std::string bytes_text(std::int64_t bytes) {
  if (bytes < 1000) return format("{} B", bytes);
  const std::string text = short_number(static_cast<double>(bytes));
  return format("{} {}B", text.substr(0, text.size() - 1), text.back());
}

// 1,234,567
std::string count_text(std::int64_t count) {
  const std::string digits = format("{}", count);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// ---- tables

// Columns as wide as their longest cell, two blanks between; `right` says which end on the right.
class Table {
 public:
  explicit Table(std::vector<bool> right) : right_(std::move(right)), widths_(right_.size(), 0) {}

  void add(std::vector<std::string> row) {
    for (std::size_t i = 0; i < row.size(); ++i) widths_[i] = std::max(widths_[i], row[i].size());
    rows_.push_back(std::move(row));
  }

  std::string text() const {
    std::string out;
    for (const auto& row : rows_) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        line += right_[i] ? format("  {:>{}}", row[i], widths_[i])
                          : format("  {:<{}}", row[i], widths_[i]);
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  std::vector<bool> right_;
  std::vector<std::size_t> widths_;
  std::vector<std::vector<std::string>> rows_;
};

// ---- arrays

// A name around the number of its layer: "layers_", 3, "/mlp/up_proj/kernel".
struct LayerName {
  std::string before, after;
  std::int64_t layer = 0;
};
std::optional<LayerName> layer_name(const std::string& name) {
  const std::size_t slash = name.find('/');
  const std::size_t bar = name.rfind('_', slash);
  if (slash == name.npos || bar == name.npos) return std::nullopt;
  LayerName parts = {name.substr(0, bar + 1), name.substr(slash)};
  const char* end = name.data() + slash;
  const auto [stop, error] = std::from_chars(name.data() + bar + 1, end, parts.layer);
  return error == std::errc() && stop == end ? std::optional(parts) : std::nullopt;
}

// Lines of a group, names without its prefix.
using Lines = std::vector<ArrayLine>;

bool like(const ArrayLine& a, const ArrayLine& b) {
  return a.shape == b.shape && a.dtype == b.dtype && a.axes == b.axes && a.spec == b.spec;
}

// Is b the layer after a, and otherwise the same array?
bool follows(const ArrayLine& a, const ArrayLine& b) {
  const auto x = layer_name(a.name), y = layer_name(b.name);
  return x && y && x->before == y->before && x->after == y->after && x->layer + 1 == y->layer &&
         like(a, b);
}

std::string shape_text(const Dims& shape) { return format("[{}]", fmt::join(shape, ", ")); }

std::string axes_text(const std::vector<std::string>& axes) {
  std::vector<std::string> shown;
  for (const std::string& axis : axes) shown.push_back(axis.empty() ? "-" : axis);
  return format("{}", fmt::join(shown, " "));
}

// How much of a group is shown.
struct Detail {
  bool all = false, placed = false;
};

// Arrays [first, last] of a group, which are like layers.
void add_row(Table& table, std::span<const ArrayLine> layers, const Detail& detail) {
  const ArrayLine& first = layers.front();
  std::string name = first.name;
  if (layers.size() > 1) {
    const LayerName from = *layer_name(first.name);
    name = format("{}{}..{}{}", from.before, from.layer, layer_name(layers.back().name)->layer,
                  from.after);
  }
  std::vector<std::string> row = {std::move(name), shape_text(first.shape), axes_text(first.axes),
                                  first.dtype, bytes_text(first.bytes)};
  if (detail.placed) {
    row.push_back(first.spec);
    row.push_back(bytes_text(first.bytes_per_device) + " a device");
  }
  row.push_back(layers.size() > 1 ? format("x {}", layers.size()) : "");
  row.push_back(first.digest);
  table.add(std::move(row));
}

std::string table_text(const Lines& lines, const Detail& detail) {
  std::vector<bool> right = {false, false, false, false, true};
  if (detail.placed) right.insert(right.end(), {false, true});
  right.insert(right.end(), {false, false});
  Table table(std::move(right));
  for (std::size_t first = 0; first < lines.size();) {
    std::size_t last = first;
    while (!detail.all && last + 1 < lines.size() && follows(lines[last], lines[last + 1])) ++last;
    add_row(table, std::span(lines).subspan(first, last - first + 1), detail);
    first = last + 1;
  }
  return table.text();
}

bool same_arrays(const Lines& a, const Lines& b) {
  return std::ranges::equal(
      a, b, [](const ArrayLine& x, const ArrayLine& y) { return x.name == y.name && like(x, y); });
}

std::string group_text(const std::string& group, const Lines& lines, const Lines& params,
                       const Detail& detail) {
  std::int64_t elements = 0, bytes = 0, on_device = 0;
  for (const ArrayLine& line : lines) {
    elements += line.elements();
    bytes += line.bytes;
    on_device += line.bytes_per_device;
  }
  std::string head = format("{:<8}  {} elements in {} arrays, {}", group, count_text(elements),
                            count_text(std::ssize(lines)), bytes_text(bytes));
  if (detail.placed) head += format(", {} a device", bytes_text(on_device));
  if (!detail.all && group != registers::kParameter && same_arrays(lines, params)) {
    return head + ", as " + registers::kParameter + "\n";
  }
  return head + "\n" + table_text(lines, detail);
}

// ---- a checkpoint

std::string model_text(const models::TransformerConfig& m) {
  const std::string kv =
      m.num_kv_heads == m.num_heads ? "" : format(" ({} of keys)", m.num_kv_heads);
  return format("{} layers of {} features, {} heads{} of {}, {} of {}, vocabulary {}", m.num_layers,
                m.emb_features, m.num_heads, kv, m.head_dim, m.mlp, m.mlp_features, m.vocab_size);
}

std::string data_text(const DataState& d) {
  if (d.records == 0) return "";
  const double epoch = static_cast<double>(d.position) / static_cast<double>(d.records);
  return format(
      "position {} in epochs of {} records ({:.2f} epochs); {} tokens a record, stride "
      "{}, {}, seed {}, fingerprint {}",
      count_text(d.position), count_text(d.records), epoch, d.seq_len, d.stride,
      d.shuffle ? "shuffled" : "in order", d.seed, digest_text(d.corpus));
}

std::string files_text(const Manifest& manifest) {
  std::int64_t bytes = 0;
  std::vector<std::string> extra;
  for (const ShardFile& shard : manifest.shards) bytes += shard.bytes;
  for (const ExtraFile& file : manifest.files) {
    bytes += file.bytes;
    extra.push_back(", " + file.name);
  }
  return format("{} in {} shard(s){}, {}", bytes_text(bytes), manifest.shards.size(),
                fmt::join(extra, ""), kManifestName);
}

}  // namespace

std::string group_of(const std::string& name) {
  for (const char* prefix : {registers::kParameter, registers::kFirstMoment,
                             registers::kSecondMoment, registers::kAverage}) {
    if (name.starts_with(prefix)) return prefix;
  }
  return name.substr(0, name.find('/') + 1);
}

ArrayTotals totals_of(std::span<const ArrayLine> lines) {
  ArrayTotals totals;
  for (const ArrayLine& line : lines) {
    totals.bytes += line.bytes;
    if (line.name.starts_with(registers::kParameter)) totals.parameters += line.elements();
  }
  return totals;
}

std::string checkpoint_text(const CheckpointReader& reader, std::span<const ArrayLine> lines) {
  const CheckpointInfo& info = reader.info();
  const Clocks& c = info.clocks;
  const ArrayTotals totals = totals_of(lines);
  Table table({false, false});
  const auto add = [&](const char* what, const std::string& text) {
    if (!text.empty()) table.add({what, text});
  };
  add("parameters", count_text(totals.parameters));
  add("state", format("{} in {} arrays", bytes_text(totals.bytes), count_text(std::ssize(lines))));
  add("step", format("{} ({} updates, {} skipped, {} tokens)", count_text(c.step),
                     count_text(c.updates), count_text(c.skipped), count_text(c.tokens)));
  add("model", model_text(parse_model(info.model, reader.path().string())));
  add("data", data_text(info.data));
  add("tokenizer", info.tokenizer.name);
  add("evaluation", info.eval_loss ? format("loss {:.4f}", *info.eval_loss) : "");
  add("run", format("{}, seed {}", info.run, info.seed));
  add("written by",
      info.processor.empty() ? info.program : format("{} on {}", info.program, info.processor));
  add("files", files_text(reader.manifest()));
  return reader.path().string() + "\n" + table.text();
}

std::string hugging_face_text(const hf::Model& model, std::span<const ArrayLine> lines) {
  const ArrayTotals totals = totals_of(lines);
  Table table({false, false});
  table.add({"family", std::string(model.family().name)});
  table.add({"parameters", count_text(totals.parameters)});
  table.add({"state", format("{} in {} arrays, as f32", bytes_text(totals.bytes),
                             count_text(std::ssize(lines)))});
  table.add({"model", model_text(model.config())});
  return model.path().string() + "\n" + table.text();
}

std::string arrays_text(std::span<const ArrayLine> lines, bool all, bool placed) {
  std::vector<std::pair<std::string, Lines>> groups;
  for (const ArrayLine& line : lines) {
    const std::string group = group_of(line.name);
    if (groups.empty() || groups.back().first != group) groups.push_back({group, {}});
    groups.back().second.push_back(line);
    groups.back().second.back().name.erase(0, group.size());
  }
  const auto params =
      std::ranges::find(groups, registers::kParameter, &std::pair<std::string, Lines>::first);
  std::string text;
  for (const auto& [group, members] : groups) {
    text += group_text(group, members, params != groups.end() ? params->second : Lines(),
                       {.all = all, .placed = placed});
  }
  return text;
}

// ---- calls

std::vector<CallMemory> calls_of(const Executable& executable) {
  const Module& module = executable.module();
  const auto bytes = [&](int reg, bool sliced) {
    const Type& type = module.registers[static_cast<std::size_t>(reg)].type;
    return sliced ? type.bytes() / type.shape[0] : type.bytes();
  };
  std::vector<CallMemory> calls;
  for (const CallList& list : module.lists) {
    for (const Call& call : list.calls) {
      CallMemory c = {.list = list.name,
                      .program = module.programs[static_cast<std::size_t>(call.program)].name(),
                      .arena = executable.arena_bytes(call.program)};
      for (std::size_t i = 0; i < call.inputs.size(); ++i)
        c.inputs += bytes(call.inputs[i], call.sliced[i]);
      for (const int reg : call.outputs) c.outputs += bytes(reg, false);
      calls.push_back(std::move(c));
    }
  }
  return calls;
}

std::string plan_text(const Executable& executable, std::span<const CallMemory> calls) {
  std::int64_t registers = 0, arena = 0;
  for (const Register& r : executable.module().registers) registers += r.type.bytes();
  for (const CallMemory& call : calls) arena = std::max(arena, call.arena);
  const std::int64_t peak = executable.planned_bytes();
  std::string text = format("peak memory {}: registers {}, arena {}, constants and scratch {}\n\n",
                            bytes_text(peak), bytes_text(registers), bytes_text(arena),
                            bytes_text(peak - registers - arena));
  Table table({false, false, true, true, true});
  table.add({"list", "call", "reads", "writes", "arena"});
  for (const CallMemory& call : calls) {
    table.add({call.list, call.program, bytes_text(call.inputs), bytes_text(call.outputs),
               bytes_text(call.arena)});
  }
  return text + table.text() + "\n" + executable.describe();
}

}  // namespace dew::cli
