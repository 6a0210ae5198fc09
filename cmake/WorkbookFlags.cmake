# The flags of the book's own code, in one place. The flags of the reader's code are in common/worker/CMakeLists.txt.

add_library(workbook_flags INTERFACE)
target_include_directories(workbook_flags INTERFACE ${CMAKE_SOURCE_DIR})
target_compile_options(workbook_flags INTERFACE -Wall -Wextra $<$<BOOL:${WORKBOOK_WERROR}>:-Werror>
                       # What is built is the same wherever the book lies, so clones can share a compiler cache.
                       -ffile-prefix-map=${CMAKE_SOURCE_DIR}/=)
if(WORKBOOK_SANITIZE)
  target_compile_options(workbook_flags INTERFACE -fsanitize=${WORKBOOK_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer -g1  # lines for reports; all of -g takes half as long again
                         # g++ 12 with sanitizers warns falsely within the standard library: in regular expressions,
                         # and where a text is added to a literal (its bug 105651); at -O3 within fmt's parser too.
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>
                         $<$<CXX_COMPILER_ID:GNU>:-Wno-stringop-overflow>)
  target_link_options(workbook_flags INTERFACE -fsanitize=${WORKBOOK_SANITIZE})
endif()

# workbook_library(NAME SOURCES... [LINK libraries...])
function(workbook_library name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC workbook_flags ${ARG_LINK})
endfunction()

# workbook_program(NAME SOURCES... [LINK libraries...])
function(workbook_program name)
  cmake_parse_arguments(ARG "" "" "LINK" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE workbook_flags ${ARG_LINK})
endfunction()

# workbook_quick(TARGET...): code that waits for files, processes and people. -O1 compiles it in two thirds of the time,
# and a reader's first call waits for all of it.
function(workbook_quick)
  workbook_lightly(-O1 worker ${ARGN})
endfunction()

# workbook_quick_tests(TARGET...): the same for tests of the book's own parts, which are compiled to run once: -O0 takes
# two thirds of -O1's time. (Chapters' tests run for each mutant, and take up to a quarter longer with it.)
function(workbook_quick_tests)
  workbook_lightly(-O0 test_outcome ${ARGN})
endfunction()

# workbook_lightly(LEVEL OWNER TARGET...): the compiler's LEVEL. What nearly every file includes is parsed once, for the
# library OWNER (its own flags: fmt's definitions are among them), where no cache of compilations does better: ccache
# knows nothing of precompiled headers. (g++ 12 crashes where they are used with another -O than they were made with.)
function(workbook_lightly level owner)
  foreach(target ${ARGN})
    target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:${level}>)
    if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU" OR CMAKE_CXX_COMPILER_LAUNCHER)
      continue()
    elseif(target STREQUAL owner)
      target_precompile_headers(${owner} PRIVATE <fmt/format.h> <algorithm> <filesystem> <fstream> <functional> <map>
                                <nlohmann/json.hpp> <optional> <set> <sstream> <string> <vector>
                                $<$<STREQUAL:${owner},test_outcome>:<catch2/catch_test_macros.hpp$<ANGLE-R>>)
    else()
      target_precompile_headers(${target} REUSE_FROM ${owner})
    endif()
  endforeach()
endfunction()

# workbook_together(TARGET...): libraries and programs whose files are compiled eight at a time, so that a build from
# nothing parses their headers and instantiates their templates once: tests take half of the time. Who works on the book
# itself and has a cache of compilations (a launcher) compiles them one by one.
function(workbook_together)
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set_target_properties(${ARGN} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
  endif()
endfunction()

# workbook_tests(NAME LABEL SOURCES... [LONG | GRADED] [NUMERIC] [LINK libraries...]): a Catch2 program of the
# book's own parts, known to CTest. LONG: it takes minutes; `check` leaves it to `check --full`. GRADED: as LONG, by a
# gate of its own. NUMERIC: it computes much by itself.
function(workbook_tests name label)
  cmake_parse_arguments(ARG "LONG;GRADED;NUMERIC" "" "LINK" ${ARGN})
  workbook_program(${name} ${ARG_UNPARSED_ARGUMENTS} LINK ${ARG_LINK} test_outcome Catch2::Catch2WithMain)
  workbook_together(${name})
  if(NOT ARG_NUMERIC)
    workbook_quick_tests(${name})
  endif()
  set(list part)
  if(ARG_LONG)
    set(list long)
  elseif(ARG_GRADED)
    set(list graded)
  endif()
  set_property(GLOBAL APPEND PROPERTY WORKBOOK_${list}_TESTS ${name})
  catch_discover_tests(${name} TEST_PREFIX "${label}: " PROPERTIES LABELS ${label} TIMEOUT 300)
endfunction()
