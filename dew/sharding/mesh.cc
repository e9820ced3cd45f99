#include "dew/sharding/mesh.h"

namespace dew {

std::string to_string(const Mesh& mesh) {
  std::string text;
  for (std::size_t a = 0; a < kMeshAxes.size(); ++a) {
    text +=
        (a == 0 ? "{'" : ", '") + std::string(kMeshAxes[a]) + "': " + std::to_string(mesh.sizes[a]);
  }
  return text + "}";
}

}  // namespace dew
