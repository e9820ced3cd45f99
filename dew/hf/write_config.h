// config.json of our models, for the families that between them have every option.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "dew/nn/transformer.h"

namespace dew::hf {

// What the family `model_type` would say of the model, which is not checked here: reading it again
// tells whether that is all. REQUIRES: resolved. None for a family that says nothing the others
// could not.
std::optional<std::string> write_config(std::string_view model_type,
                                        const models::TransformerConfig& config);

}  // namespace dew::hf
