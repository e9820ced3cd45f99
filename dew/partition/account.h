// What one device of a mesh would hold.
#pragma once

#include "dew/ir/program.h"

namespace dew {

// A program of one device without its communication, for planning its memory: what a device
// receives is made from what it has, in buffers of the same sizes and lifetimes. The numbers that
// it would compute mean nothing.
Program memory_stand_in(const Program& device_program);

}  // namespace dew
