# The libraries: the distribution's packages where there are any, otherwise pinned releases that CMake downloads.
#
#   WORKBOOK_FETCH=AUTO  take packages, download what has none (the default of a plain `cmake --preset default`)
#   WORKBOOK_FETCH=OFF   take packages, download nothing; what is missing is listed in missing-libraries.txt in the
#                        build folder, where `./workbook` reads it to offer the packages
#   WORKBOOK_FETCH=ON    download everything, packages or not
#
# A folder that already holds a library's source is taken with FETCHCONTENT_SOURCE_DIR_FMT, _NLOHMANN_JSON, _CLI11,
# _TOMLPLUSPLUS, _CATCH2 and _BOOST (with WORKBOOK_FETCH=ON, or where there is no package).

set(WORKBOOK_FETCH "AUTO" CACHE STRING "Download libraries: AUTO (those without a package), ON (all), OFF (none)")
set_property(CACHE WORKBOOK_FETCH PROPERTY STRINGS AUTO ON OFF)

include(FetchContent)
find_package(Threads REQUIRED)

# Debian's packages lie in lib/x86_64-linux-gnu. CMake looks there if the compiler does; one that is installed elsewhere
# need not.
if(NOT CMAKE_LIBRARY_ARCHITECTURE AND IS_DIRECTORY /usr/lib/${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
  set(CMAKE_LIBRARY_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
endif()

# Downloads one library and adds it to the build. A function, so that what it switches off stays off in here.
function(workbook_fetch name url sha256)
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)      # the library's own options obey the variables below
  set(CMAKE_POLICY_VERSION_MINIMUM 3.5)      # CMake 4 refuses libraries that still name an older version
  set(CMAKE_COMPILE_WARNING_AS_ERROR OFF)
  set(CMAKE_CXX_CLANG_TIDY "")
  set(CMAKE_EXPORT_COMPILE_COMMANDS OFF)
  set(CMAKE_POSITION_INDEPENDENT_CODE ON)    # the simulator is a shared library
  set(BUILD_SHARED_LIBS OFF)
  set(BUILD_TESTING OFF)
  set(FMT_DOC OFF)
  set(FMT_INSTALL OFF)
  set(FMT_TEST OFF)
  set(JSON_BuildTests OFF)
  set(JSON_Install OFF)
  set(CLI11_BUILD_DOCS OFF)
  set(CLI11_BUILD_EXAMPLES OFF)
  set(CLI11_BUILD_TESTS OFF)
  set(CLI11_INSTALL OFF)
  set(CATCH_INSTALL_DOCS OFF)
  set(CATCH_INSTALL_EXTRAS OFF)
  set(BOOST_INCLUDE_LIBRARIES context)
  message(STATUS "${name}: from ${url}, or its FETCHCONTENT_SOURCE_DIR")
  FetchContent_Declare(${name} URL ${url} URL_HASH SHA256=${sha256} SYSTEM)
  FetchContent_MakeAvailable(${name})
endfunction()

# workbook_dependency(NAME OLDEST_VERSION URL SHA256). A macro: what a package's configuration sets (Catch2 extends
# CMAKE_MODULE_PATH) has to reach this file.
set(workbook_missing "")
macro(workbook_dependency name oldest url sha256)
  set(${name}_FOUND FALSE)
  if(NOT WORKBOOK_FETCH STREQUAL "ON")
    find_package(${name} ${oldest} QUIET)
  endif()
  if(NOT ${name}_FOUND)
    if(WORKBOOK_FETCH STREQUAL "OFF")
      list(APPEND workbook_missing ${name})
    else()
      workbook_fetch(${name} ${url} ${sha256})
    endif()
  endif()
endmacro()

workbook_dependency(fmt 9.1
  https://github.com/fmtlib/fmt/releases/download/10.2.1/fmt-10.2.1.zip
  312151a2d13c8327f5c9c586ac6cf7cddc1658e8f53edae0ec56509c8fa516c9)
workbook_dependency(nlohmann_json 3.11
  https://github.com/nlohmann/json/releases/download/v3.11.3/json.tar.xz
  d6c65aca6b1ed68e7a182f4757257b107ae403032760ed6ef121c9d55e81757d)
workbook_dependency(CLI11 2.1
  https://github.com/CLIUtils/CLI11/archive/refs/tags/v2.4.1.tar.gz
  73b7ec52261ce8fe980a29df6b4ceb66243bb0b779451dbd3d014cfec9fdbb58)
workbook_dependency(tomlplusplus 3.3
  https://github.com/marzer/tomlplusplus/archive/refs/tags/v3.4.0.tar.gz
  8517f65938a4faae9ccf8ebb36631a38c1cadfb5efa85d9a72e15b9e97d25155)
workbook_dependency(Catch2 3.4
  https://github.com/catchorg/Catch2/archive/refs/tags/v3.7.1.tar.gz
  c991b247a1a0d7bb9c39aa35faf0fe9e19764213f28ffba3109388e62ee0269c)

# For the simulator. Where nothing is downloaded the book does without, and says what that means (common/simt).
if(NOT WORKBOOK_FETCH STREQUAL "ON")
  find_package(Boost CONFIG QUIET COMPONENTS context)
endif()
if(NOT TARGET Boost::context AND NOT WORKBOOK_FETCH STREQUAL "OFF")
  workbook_fetch(Boost https://github.com/boostorg/boost/releases/download/boost-1.84.0/boost-1.84.0.tar.xz
    2e64e5d79a738d0fa6fb546c6e5c2bd28f88d268a2a080546f74e5ff98f29d0e)
endif()

if(workbook_missing)
  list(JOIN workbook_missing "\n" workbook_lines)
  file(WRITE ${CMAKE_BINARY_DIR}/missing-libraries.txt "${workbook_lines}\n")
  list(JOIN workbook_missing ", " workbook_names)
  message(FATAL_ERROR "Libraries missing: ${workbook_names}.\n"
                      "Install them (notes/installing.md), or configure with -DWORKBOOK_FETCH=AUTO to download them.")
endif()
file(REMOVE ${CMAKE_BINARY_DIR}/missing-libraries.txt)

if(NOT Catch2_FOUND)  # downloaded: catch_discover_tests() lies in its source
  FetchContent_GetProperties(Catch2 SOURCE_DIR workbook_catch2_source)
  list(APPEND CMAKE_MODULE_PATH ${workbook_catch2_source}/extras)
endif()
include(Catch)

# For grading, and nothing else: without libarchive, no archives are read or written; without libseccomp, submissions
# cannot be isolated, and `grade` says so. Both come from packages only.
find_package(LibArchive QUIET)
find_path(SECCOMP_INCLUDE_DIR seccomp.h)
find_library(SECCOMP_LIBRARY seccomp)
find_package(CUDAToolkit 12 QUIET)

# Optional packages that are absent, each with files or programs by which `./workbook` notices that it was installed.
# What exists already and was not accepted (an nvcc of version 11) is not listed.
set(workbook_absent "")
function(workbook_absent found package)
  if(NOT found)
    foreach(path ${ARGN})
      find_program(WORKBOOK_PROGRAM ${path} NO_CACHE)
      if(NOT EXISTS ${path} AND NOT WORKBOOK_PROGRAM)
        string(APPEND workbook_absent "${package} ${path}\n")
      endif()
      unset(WORKBOOK_PROGRAM)
    endforeach()
    set(workbook_absent "${workbook_absent}" PARENT_SCOPE)
  endif()
endfunction()
workbook_absent("${LibArchive_FOUND}" libarchive-dev /usr/include/archive.h /usr/local/include/archive.h)
workbook_absent("${SECCOMP_LIBRARY}" libseccomp-dev /usr/include/seccomp.h /usr/local/include/seccomp.h)
if(NOT TARGET Boost::context)
  workbook_absent("" libboost-context-dev /usr/include/boost/context /usr/local/include/boost/context)
endif()
workbook_absent("${CUDAToolkit_NVCC_EXECUTABLE}" nvidia-cuda-toolkit nvcc /usr/local/cuda/bin/nvcc)
file(WRITE ${CMAKE_BINARY_DIR}/absent-packages.txt "${workbook_absent}")
