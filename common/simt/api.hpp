// What the simulator's shared library shows of itself.
#pragma once

#define SIMT_API __attribute__((visibility("default")))
