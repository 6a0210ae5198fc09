// Marks the symbols that the simulator's shared library exports.
#pragma once

#define SIMT_API __attribute__((visibility("default")))
