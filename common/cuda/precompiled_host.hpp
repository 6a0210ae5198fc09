// The precompiled header of the chapters' files without kernels; see precompiled.hpp.
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
