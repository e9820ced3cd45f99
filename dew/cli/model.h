// MODEL on the command line: a run directory, or a checkpoint directory inside it.
#pragma once

#include <string>

#include "dew/base/file.h"
#include "dew/checkpoint/reader.h"
#include "dew/train/config.h"

namespace dew::cli {

// How --help describes it.
inline constexpr const char* kModelHelp = "a run directory, or a checkpoint directory inside it";

// The checkpoint that is meant; `command` ("dew eval") for what is not built yet.
Path find_checkpoint(const Path& model, const std::string& command);

// The config that a checkpoint carries. What is wrong with it is wrong with the checkpoint.
TrainConfig config_of(const CheckpointReader& reader);

}  // namespace dew::cli
