#include "dew/ir/print.h"

#include "dew/base/format.h"

namespace dew {
namespace {

std::string quote(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + '"';
}

std::string field_text(const Dims& v) { return "[" + join(v) + "]"; }
std::string field_text(std::int64_t v) { return std::to_string(v); }
std::string field_text(double v) { return format("{}", v); }
std::string field_text(bool v) { return v ? "true" : "false"; }
std::string field_text(DType v) { return std::string(name(v)); }
std::string field_text(const Type& v) { return to_string(v); }
std::string field_text(const std::string& v) { return quote(v); }

std::string attrs_text(const Attrs& attrs) {
  std::string text;
  std::visit(
      [&](const auto& a) {
        std::remove_cvref_t<decltype(a)>::fields(a, [&](const char* key, const auto& value) {
          text += format("{}{}={}", text.empty() ? "" : ", ", key, field_text(value));
        });
      },
      attrs);
  return text.empty() ? text : " {" + text + "}";
}

std::string annotations(const ValueInfo& info) {
  std::string text;
  if (!info.pin.empty()) {
    std::string names;
    for (const std::string& n : info.pin.front()) names += (names.empty() ? "" : ", ") + quote(n);
    text += " pin=[" + names + "]";
  }
  if (info.like >= 0) text += format(" like=%{}", info.like);
  if (info.hint >= 0) text += format(" hint=%{}", info.hint);
  if (info.node >= 0 && !info.name.empty()) text += " name=" + quote(info.name);
  if (!info.shards.empty()) text += format(" shards=[{}]", join(info.shards));
  if (info.stacked) text += " stacked";
  return text;
}

class Printer {
 public:
  explicit Printer(const ValueNote& note) : note_(note) {}

  // Inputs may be declared between nodes; values print in order of number.
  void program(const Program& p, const std::string& indent) {
    out_ += format("{}program {}{}\n", indent, quote(p.name()),
                   p.likes_of().empty() ? "" : " likes_of " + quote(p.likes_of()));
    const std::string inner = indent + "  ";
    for (int id = 0; id < static_cast<int>(p.values().size()); ++id) {
      const ValueInfo& info = p.values()[static_cast<std::size_t>(id)];
      if (info.node < 0) {
        out_ += format("{}%{} = input {}{} : {}{}{}\n", inner, id, quote(info.name),
                       info.weight ? " weight" : "", to_string(info.type), annotations(info),
                       notes(p, id, 1));
      } else if (info.result == 0) {
        node(p, p.nodes()[static_cast<std::size_t>(info.node)], inner);
      }
    }
    for (const Output& o : p.outputs())
      out_ += format("{}output {} = %{}\n", inner, quote(o.name), o.value);
    out_ += indent + "end\n";
  }

  std::string take() { return std::move(out_); }

 private:
  void node(const Program& p, const Node& node, const std::string& indent) {
    std::string results, operands, types;
    for (int i = 0; i < node.result_count; ++i) {
      const int id = node.first_result + i;
      const ValueInfo& info = p.values()[static_cast<std::size_t>(id)];
      results += format("{}%{}", i == 0 ? "" : ", ", id);
      types += (i == 0 ? "" : ", ") + to_string(info.type) + annotations(info);
    }
    for (const int id : node.operands)
      operands += format("{}%{}", operands.empty() ? "" : ", ", id);
    out_ += format("{}{} = {}({}){} : {}{}\n", indent, results, node.op->name, operands,
                   attrs_text(node.attrs), types, notes(p, node.first_result, node.result_count));
    if (const auto* scan = std::get_if<ScanAttrs>(&node.attrs)) program(*scan->body, indent + "  ");
  }

  std::string notes(const Program& p, int first, int count) const {
    std::string text;
    for (int id = first; note_ && id < first + count; ++id)
      text += (text.empty() ? "  # " : "; ") + note_(p, id);
    return text;
  }

  const ValueNote& note_;
  std::string out_;
};

}  // namespace

std::string print(const Program& program, const ValueNote& note) {
  Printer printer(note);
  printer.program(program, "");
  return printer.take();
}

std::string print(const Program& program) { return print(program, {}); }

}  // namespace dew
