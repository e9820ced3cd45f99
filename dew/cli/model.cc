#include "dew/cli/model.h"

#include "dew/base/format.h"
#include "dew/checkpoint/directory.h"
#include "dew/cli/cli.h"

namespace dew::cli {

Path find_checkpoint(const Path& model, const std::string& command) {
  if (file_kind(model / "config.json", ErrorCode::checkpoint) == FileKind::regular) {
    refuse_unbuilt(format("{} of a Hugging Face directory ('{}')", command, model.string()));
  }
  return resolve_checkpoint(model);
}

TrainConfig config_of(const CheckpointReader& reader) {
  try {
    return parse_config(reader.info().config, reader.path().string());
  } catch (const Error& error) {
    fail(ErrorCode::checkpoint, error.what(), error.hint());
  }
}

}  // namespace dew::cli
