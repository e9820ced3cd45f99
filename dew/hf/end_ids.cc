#include "dew/hf/end_ids.h"

#include <algorithm>

#include "dew/base/json.h"
#include "dew/hf/config_file.h"

namespace dew::hf {
namespace {

std::vector<std::int64_t> ids_of(const ConfigText& file) {
  return ConfigFile(file.text, file.where).ids("eos_token_id");
}

}  // namespace

std::vector<std::int64_t> end_ids(const ConfigText& config,
                                  const std::optional<ConfigText>& generation) {
  std::vector<std::int64_t> ids = ids_of(config);
  if (!generation) return ids;
  std::vector<std::int64_t> generating = ids_of(*generation);
  return generating.empty() ? ids : generating;
}

std::string with_end_id(const ConfigText& file, std::int64_t id) {
  std::vector<std::int64_t> ids = ids_of(file);
  if (std::ranges::find(ids, id) != ids.end()) return std::string(file.text);
  ids.insert(ids.begin(), id);
  OrderedJson json = OrderedJson::parse(file.text);
  json["eos_token_id"] = ids.size() == 1 ? OrderedJson(id) : OrderedJson(ids);
  return json.dump(2) + "\n";
}

}  // namespace dew::hf
