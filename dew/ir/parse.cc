#include <charconv>
#include <cmath>
#include <limits>

#include "dew/base/error.h"
#include "dew/base/format.h"
#include "dew/ir/program.h"

namespace dew {
namespace {

// A cursor over the text. Every read skips blanks and remarks first; newlines are blanks, since
// each construct begins with a word or %.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}

  [[noreturn]] void error(const std::string& what) const {
    std::size_t line = 1, column = 1;
    for (std::size_t i = 0; i < std::min(pos_, text_.size()); ++i) {
      column = text_[i] == '\n' ? 1 : column + 1;
      line += text_[i] == '\n' ? 1 : 0;
    }
    fail(ErrorCode::usage, format("program text, line {}, column {}: {}", line, column, what));
  }

  bool at_end() {
    skip();
    return pos_ == text_.size();
  }

  bool accept(std::string_view token) {
    skip();
    if (text_.substr(pos_, token.size()) != token) return false;
    pos_ += token.size();
    return true;
  }
  void expect(std::string_view token) {
    if (!accept(token)) error(format("expected '{}'", token));
  }

  std::string word() {
    skip();
    const std::size_t first = pos_;
    while (pos_ < text_.size() &&
           (std::isalnum(static_cast<unsigned char>(text_[pos_])) || text_[pos_] == '_'))
      ++pos_;
    if (pos_ == first) error("expected a word");
    return std::string(text_.substr(first, pos_ - first));
  }

  std::string quoted() {
    expect("\"");
    std::string out;
    while (pos_ < text_.size() && text_[pos_] != '"') {
      if (text_[pos_] == '\\' && pos_ + 1 < text_.size()) ++pos_;
      if (static_cast<unsigned char>(text_[pos_]) < 0x20 || text_[pos_] == 0x7f)
        error("a control character in a name");  // it would break the lines of messages
      out += text_[pos_++];
    }
    if (pos_ == text_.size()) error("a quoted name does not end");
    ++pos_;
    return out;
  }

  template <class T>
  T number() {
    skip();
    T value{};
    const auto [end, code] =
        std::from_chars(text_.data() + pos_, text_.data() + text_.size(), value);
    if (code != std::errc{}) error("expected a number");
    pos_ = static_cast<std::size_t>(end - text_.data());
    return value;
  }

  Dims dims() {
    Dims out;
    expect("[");
    while (!accept("]")) {
      if (!out.empty()) expect(",");
      out.push_back(number<std::int64_t>());
    }
    return out;
  }

  DType dtype() {
    const std::string text = word();
    const auto t = parse_dtype(text);
    if (!t) error(format("{} is no element type", text));
    return *t;
  }

  // Small enough that neither its elements nor its bytes overflow.
  Type type() {
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max() / 16;
    Type out{dtype(), dims()};
    std::int64_t elements = 1;
    for (const std::int64_t size : out.shape) {
      if (size < 0) error(format("a size of {}", size));
      if (size > 0 && elements > kMost / size) error(format("[{}] elements", join(out.shape)));
      elements *= std::max<std::int64_t>(size, 1);
    }
    return out;
  }

 private:
  // Blanks, and remarks from # to the end of the line.
  void skip() {
    while (pos_ < text_.size()) {
      if (text_[pos_] == '#') {
        pos_ = std::min(text_.find('\n', pos_), text_.size());
      } else if (std::isspace(static_cast<unsigned char>(text_[pos_]))) {
        ++pos_;
      } else {
        return;
      }
    }
  }

  std::string_view text_;
  std::size_t pos_ = 0;
};

void read_field(Reader& r, Dims& v) { v = r.dims(); }
void read_field(Reader& r, std::int64_t& v) { v = r.number<std::int64_t>(); }
void read_field(Reader& r, double& v) { v = r.number<double>(); }
void read_field(Reader& r, DType& v) { v = r.dtype(); }
void read_field(Reader& r, Type& v) { v = r.type(); }
void read_field(Reader& r, std::string& v) { v = r.quoted(); }
void read_field(Reader& r, bool& v) {
  const std::string text = r.word();
  if (text != "true" && text != "false") r.error("expected true or false");
  v = text == "true";
}

// Reads "{key=value, ...}" as the attribute struct `A` if its first key is A's first field; fields
// are in order.
template <class A>
bool read_attrs_as(Reader& r, Attrs& out) {
  Reader ahead = r;
  A attrs;
  bool matches = true, first = true;
  A::fields(attrs, [&](const char* key, auto& value) {
    if (!matches) return;
    if (!first && !ahead.accept(",")) matches = false;
    if (!matches || !ahead.accept(key) || !ahead.accept("=")) {
      matches = false;
      return;
    }
    first = false;
    read_field(ahead, value);
  });
  if (!matches || !ahead.accept("}")) return false;
  r = ahead;
  out = attrs;
  return true;
}

template <std::size_t I = 1>
void read_attrs(Reader& r, Attrs& out) {
  if constexpr (I < std::variant_size_v<Attrs>) {
    // A struct whose fields begin like another's must not swallow errors of that one: try each,
    // then complain once.
    Reader here = r;
    bool done = false;
    try {
      done = read_attrs_as<std::variant_alternative_t<I, Attrs>>(here, out);
    } catch (const Error&) {
      done = false;
    }
    if (done) {
      r = here;
    } else {
      read_attrs<I + 1>(r, out);
    }
  } else {
    r.error("unknown attributes");
  }
}

class Parser {
 public:
  static constexpr int kMaxDepth = 16;

  Parser(Reader& reader, std::span<const OpDef* const> ops, int depth = 0)
      : r_(reader), ops_(ops), depth_(depth) {}

  Program program() {
    if (depth_ > kMaxDepth) r_.error(format("scans nested more than {} deep", kMaxDepth));
    r_.expect("program");
    Program p(r_.quoted());
    if (r_.accept("likes_of")) p.set_likes_of(r_.quoted());
    ids_seen_ = 0;
    while (!r_.accept("end")) {
      if (r_.accept("output")) {
        std::string output = r_.quoted();
        r_.expect("=");
        if (p.find_output(output).valid()) r_.error(format("output \"{}\" twice", output));
        p.output(std::move(output), value(p));
      } else {
        definition(p);
      }
    }
    check_likes(p);
    return p;
  }

 private:
  Value checked(Program& p, int id) {
    if (id < 0 || id >= static_cast<int>(p.values().size()))
      r_.error(format("%{} is not defined", id));
    return p.value(id);
  }

  // Each may name a value that is defined later.
  void check_likes(const Program& p) const {
    if (!p.likes_of().empty()) return;  // they are values of another program
    for (const ValueInfo& info : p.values()) {
      for (const int other : {info.like, info.hint}) {
        if (other < 0) continue;
        const auto i = static_cast<std::size_t>(other);
        if (i < p.values().size() && p.values()[i].type.shape == info.type.shape) continue;
        r_.error(
            format("like or hint %{} is no value of the shape [{}]", other, join(info.type.shape)));
      }
    }
  }

  int id() {
    r_.expect("%");
    return r_.number<int>();
  }

  Value value(Program& p) { return checked(p, id()); }

  void definition(Program& p) {
    std::vector<int> ids{id()};
    while (r_.accept(",")) ids.push_back(id());
    for (const int i : ids) {
      if (i != ids_seen_++)
        r_.error(format("values are numbered in order: %{} here", ids_seen_ - 1));
    }
    r_.expect("=");
    const std::string op = r_.word();
    op == "input" ? input(p) : node(p, op, ids.size());
  }

  void input(Program& p) {
    std::string input_name = r_.quoted();
    if (p.find_input(input_name).valid()) r_.error(format("input \"{}\" twice", input_name));
    const bool weight = r_.accept("weight");
    r_.expect(":");
    const Value v = p.input(std::move(input_name), r_.type(), weight);
    annotations(p, v);
  }

  void node(Program& p, const std::string& op_name, std::size_t results) {
    const OpDef* op = find(op_name);
    std::vector<Value> operands;
    r_.expect("(");
    while (!r_.accept(")")) {
      if (!operands.empty()) r_.expect(",");
      operands.push_back(value(p));
    }
    Attrs attrs = NoAttrs{};
    if (r_.accept("{")) read_attrs(r_, attrs);
    r_.expect(":");
    std::vector<std::pair<Type, std::vector<Annotation>>> types;
    do types.push_back({r_.type(), read_annotations()});
    while (r_.accept(","));
    if (types.size() != results) r_.error(format("{} results but {} types", results, types.size()));
    if (auto* scan = std::get_if<ScanAttrs>(&attrs)) {
      scan->body = std::make_shared<const Program>(Parser(r_, ops_, depth_ + 1).program());
    }
    std::vector<Value> made;
    try {
      made = p.add(*op, operands, std::move(attrs));
    } catch (const Error& e) {
      r_.error(e.what());
    }
    if (made.size() != results) r_.error(format("{} has {} results", op_name, made.size()));
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (made[i].type() != types[i].first) {
        r_.error(format("{} gives {}, not {}", op_name, to_string(made[i].type()),
                        to_string(types[i].first)));
      }
      apply(p, made[i], types[i].second);
    }
  }

  struct Annotation {
    std::string kind;
    int id = -1;
    std::string text;
    AxisNames names;
    Dims atoms = {};
  };

  std::vector<Annotation> read_annotations() {
    std::vector<Annotation> out;
    for (;;) {
      if (r_.accept("pin=[")) {
        Annotation a{.kind = "pin", .id = -1, .text = {}, .names = {}};
        while (!r_.accept("]")) {
          if (!a.names.empty()) r_.expect(",");
          a.names.push_back(r_.quoted());
        }
        out.push_back(std::move(a));
      } else if (r_.accept("like=")) {
        out.push_back({"like", id(), {}, {}});
      } else if (r_.accept("hint=")) {
        out.push_back({"hint", id(), {}, {}});
      } else if (r_.accept("name=")) {
        out.push_back({"name", -1, r_.quoted(), {}});
      } else if (r_.accept("shards=")) {
        out.push_back({"shards", -1, {}, {}, r_.dims()});
      } else if (r_.accept("stacked")) {
        out.push_back({"stacked", -1, {}, {}});
      } else {
        return out;
      }
    }
  }

  void apply(Program& p, Value v, const std::vector<Annotation>& annotations) {
    for (const Annotation& a : annotations) {
      if (a.kind == "pin" && a.names.size() != v.shape().size()) r_.error("pin of another rank");
      if (a.kind == "pin") p.pin(v, a.names);
      if (a.kind == "name") p.set_name(v, a.text);
      if (a.kind == "like") p.set_like(v, a.id);
      if (a.kind == "hint") p.set_hint(v, a.id);
      if (a.kind == "shards") p.set_shards(v, a.atoms, p.info(v).stacked);
      if (a.kind == "stacked") p.set_shards(v, p.info(v).shards, true);
    }
  }

  void annotations(Program& p, Value v) { apply(p, v, read_annotations()); }

  const OpDef* find(const std::string& op_name) const {
    for (const OpDef* op : ops_) {
      if (op_name == op->name) return op;
    }
    r_.error(format("no op named {}", op_name));
  }

  Reader& r_;
  std::span<const OpDef* const> ops_;
  int depth_ = 0;  // bodies around this one
  int ids_seen_ = 0;
};

}  // namespace

Program parse(std::string_view text, std::span<const OpDef* const> ops) {
  Reader reader(text);
  Program program = Parser(reader, ops).program();
  if (!reader.at_end()) reader.error("something follows the program");
  return program;
}

}  // namespace dew
