// Building new programs from old ones.
#pragma once

#include <vector>

#include "dew/ir/program.h"

namespace dew {

// Copies nodes of one program into another, with values replaced. Annotations go along; `like` and
// `hint` are translated at finish(), where their values were copied too.
class Cloner {
 public:
  Cloner(const Program& from, Program& to);

  // `id` of the old program is `value` of the new one from now on.
  void map(int id, Value value);
  bool has(int id) const { return map_[static_cast<std::size_t>(id)].valid(); }
  Value operator[](int id) const;

  void clone_input(int id);
  // Copies a node whose operands are all mapped, and maps its results.
  void clone_node(const Node& node);
  void clone_annotations(int id);

  // Translates likes and hints of everything cloned; to be called last.
  void finish();

 private:
  const Program& from_;
  Program& to_;
  std::vector<Value> map_;
  std::vector<int> cloned_;
};

// The same program without nodes that no output needs. Inputs stay.
Program without_dead_code(const Program& program);

// The same program with equal nodes (same row, operands and attributes) made once, and with a scan
// replaced by a later one that runs the same body on the same operands and returns more of its
// values. Nodes without operands are left alone, so that uses of a constant do not tie each other.
Program without_duplicates(const Program& program);

}  // namespace dew
