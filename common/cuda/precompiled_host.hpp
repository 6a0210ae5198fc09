// What the chapters' files without kernels include: parsed once for all workers, as precompiled.hpp is for kernels.
#pragma once

#include "common/attention/setting.hpp"
#include "common/cuda/operations.hpp"
#include "common/cuda/todo.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>
