#!/bin/sh
# Tests of the launcher, ./workbook, on a small stand-in for the book in a temporary folder. Nothing is installed and
# nothing outside that folder is written: the package tools are stand-ins as well, which write down how they are called.
#
#     sh tests/launcher/test_launcher.sh [PATH_OF_WORKBOOK_SCRIPT]
#
# Prints `ok NAME`, `not ok NAME` or `skipped NAME` a line, and ends with 1 if anything failed.
set -u

launcher=${1:-$(dirname -- "$0")/../../workbook}
launcher=$(CDPATH='' cd -- "$(dirname -- "$launcher")" && pwd -P)/$(basename -- "$launcher")
presets=$(dirname -- "$launcher")/CMakePresets.json
if ! [ -f "$launcher" ] || ! [ -f "$presets" ]; then
  echo "not ok the launcher is there: no $launcher, or no CMakePresets.json beside it"
  exit 1
fi

unset CI CXX CMAKE_CXX_COMPILER_LAUNCHER CXXFLAGS LDFLAGS CDPATH
unset WORKBOOK_YES WORKBOOK_FETCH WORKBOOK_ROOT WORKBOOK_BUILD WORKBOOK_OS_RELEASE
work=$(mktemp -d) && work=$(CDPATH='' cd -P -- "$work" && pwd -P) || exit 1
trap 'rm -rf -- "$work"' EXIT
failed=0

# ---- Small helpers. ------------------------------------------------------------------------------------------------

run() {  # run COMMAND...: sets status; what it printed is in $work/out and $work/err
  "$@" >"$work/out" 2>"$work/err" </dev/null
  status=$?
}

report() {  # report NAME REASON: an empty reason is a pass
  if [ -z "$2" ]; then
    echo "ok $1"
  else
    echo "not ok $1: $2"
    sed 's/^/    out: /' "$work/out"
    sed 's/^/    err: /' "$work/err"
    failed=1
  fi
}

# Each of these prints what is wrong, or nothing.
expect_status() { [ "$status" = "$1" ] || echo "exit code $status instead of $1; "; }
expect_out() { [ "$(cat "$work/out")" = "$1" ] || echo "unexpected standard output; "; }
expect_quiet() { [ ! -s "$work/err" ] || echo "standard error is not empty; "; }
expect_err() { grep -qF -- "$1" "$work/err" || echo "standard error does not say '$1'; "; }
expect_no_err() { ! grep -qF -- "$1" "$work/err" || echo "standard error says '$1'; "; }
expect_same() { [ "$1" = "$2" ] || echo "got '$1' instead of '$2'; "; }

make_book() {  # make_book FOLDER: a project with the launcher, the presets and a command of a few lines
  mkdir -p -- "$1/common"
  cp -- "$launcher" "$presets" "$1/"
  cat >"$1/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(small_book LANGUAGES CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(WORKBOOK_FETCH AUTO CACHE STRING "")
if(WORKBOOK_FETCH STREQUAL "OFF" AND EXISTS ${CMAKE_SOURCE_DIR}/pretend-missing)
  file(COPY_FILE ${CMAKE_SOURCE_DIR}/pretend-missing ${CMAKE_BINARY_DIR}/missing-libraries.txt)
  message(FATAL_ERROR "Libraries missing")
endif()
file(REMOVE ${CMAKE_BINARY_DIR}/absent-packages.txt)
if(NOT EXISTS ${CMAKE_SOURCE_DIR}/optional.h)
  file(WRITE ${CMAKE_BINARY_DIR}/absent-packages.txt
       "libarchive-dev ${CMAKE_SOURCE_DIR}/optional.h\ncuda no-such-program\n")
endif()
add_custom_command(OUTPUT made.hpp COMMAND sh ${CMAKE_SOURCE_DIR}/make_header.sh ${CMAKE_SOURCE_DIR}
                   DEPENDS ${CMAKE_SOURCE_DIR}/common/header.txt VERBATIM)
add_executable(workbook_cli common/command.cpp made.hpp)
target_include_directories(workbook_cli PRIVATE ${CMAKE_BINARY_DIR})
END
  cat >"$1/make_header.sh" <<'END'
echo start >>"$1/builds.txt"
grep -q slow "$1/common/header.txt" && sleep 1
cp "$1/common/header.txt" made.hpp
echo end >>"$1/builds.txt"
END
  echo '// header' >"$1/common/header.txt"
  cat >"$1/common/command.cpp" <<'END'
#include <unistd.h>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include "made.hpp"
int main(int argc, char** argv) {
  if (argc == 3 && !std::strcmp(argv[1], "exit")) return std::atoi(argv[2]);
  if (argc == 3 && !std::strcmp(argv[1], "sleep")) return sleep(std::atoi(argv[2]));
  if (argc == 2 && !std::strcmp(argv[1], "where")) {
    char here[4096];
    std::printf("%s\n%s\n%s\n", getcwd(here, sizeof here), std::getenv("WORKBOOK_ROOT"), std::getenv("WORKBOOK_BUILD"));
    return 0;
  }
  for (int i = 1; i < argc; ++i) std::printf("[%s]", argv[i]);
  std::printf("\n");
}
END
}

# A folder of stand-ins to be the whole PATH: the usual small tools, and package tools that write down their calls.
# apt-get install "installs" the compiler, cmake and ninja by linking them there, if $1/installable exists.
make_bare_path() {
  mkdir -p -- "$1"
  for tool in sh cat cp mv ln sed awk dirname basename readlink mkdir rm find tail grep uname env touch tr tee flock sleep
  do
    found=$(command -v "$tool") && ln -s "$found" "$1/$tool"
  done
  for tool in g++ cmake ninja as ld ar ranlib; do
    printf '%s %s\n' "$tool" "$(command -v "$tool")" >>"$1/real-tools.txt"
  done
  printf '#!/bin/sh\necho 0\n' >"$1/id"
  printf '#!/bin/sh\nexit 1\n' >"$1/dpkg-query"
  printf "#!/bin/sh\necho \"folder='%s/apt/'\"\n" "$1" >"$1/apt-config"
  cat >"$1/apt-get" <<END
#!/bin/sh
echo "apt-get \$*" >>"$1/calls.txt"
echo "this is apt-get, noisy on standard output"
case " \$* " in
  *' install '*)
    if [ -f "$1/apt-fails" ]; then echo "E: Unable to locate package"; exit 100; fi
    rm -f "$1/../missing book/pretend-missing"
    while read -r tool real; do ln -sf "\$real" "$1/\$tool"; done <"$1/real-tools.txt" ;;
esac
END
  chmod +x "$1/id" "$1/dpkg-query" "$1/apt-config" "$1/apt-get"
  mkdir -p "$1/apt/sources.list.d"
  cat >"$1/apt/sources.list.d/debian.sources" <<'END'
# the machine's own
Types: deb
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
END
  printf 'deb [arch=amd64 signed-by=/k.gpg] http://other.example bookworm main\n' >"$1/apt/sources.list"
}
printf 'PRETTY_NAME="Debian 12"\nID=debian\nVERSION_CODENAME=bookworm\n' >"$work/bookworm"
printf 'PRETTY_NAME="Mint 22"\nID=linuxmint\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n' \
  >"$work/mint"
printf 'PRETTY_NAME="Ubuntu 22.04"\nID=ubuntu\nVERSION_CODENAME=jammy\n' >"$work/jammy"
printf 'PRETTY_NAME="Fedora 41"\nID=fedora\n' >"$work/fedora"

# ---- An ordinary call. ---------------------------------------------------------------------------------------------

book="$work/the book's \$ä"
make_book "$book"
run "$book/workbook" --json 'two words' ''
report "the first call builds and runs, under a path with spaces, a quote and non-ASCII letters" \
  "$(expect_status 0; expect_out '[--json][two words][]'; expect_quiet)"

run "$book/workbook" exit 41
report "the command's exit code is the launcher's" "$(expect_status 41; expect_quiet)"

run "$book/workbook" --yes --yes --help
report "--yes is the launcher's, everything else goes to the command" \
  "$(expect_status 0; expect_out '[--help]'; expect_quiet)"

mkdir "$work/here" && chmod 555 "$work/here"
run sh -c 'cd "$1" && "$2/workbook" where' sh "$work/here" "$book"
report "the command runs in the user's folder, be it read-only, and knows the book's" \
  "$(expect_status 0; expect_out "$work/here
$book
$book/build/default")"

mkdir "$work/bin" "$work/links"
ln -s "../links/second" "$work/bin/wb"
ln -s "$book/workbook" "$work/links/second"
run sh -c 'cd / && PATH="$1:$PATH" && wb linked' sh "$work/bin"
report "works through a chain of symbolic links on PATH" "$(expect_status 0; expect_out '[linked]'; expect_quiet)"

run sh -c 'cd "$1" && sh workbook inside' sh "$book"
report "works as sh workbook" "$(expect_status 0; expect_out '[inside]')"

run env -u HOME "$book/workbook" homeless
report "works without HOME" "$(expect_status 0; expect_out '[homeless]'; expect_quiet)"

mkdir "$work/spy"
printf '#!/bin/sh\ntouch "%s/looked"\nexec "%s" "$@"\n' "$work" "$(command -v uname)" >"$work/spy/uname"
chmod +x "$work/spy/uname"
run env "PATH=$work/spy:$PATH" CDPATH=/tmp "$book/workbook" again
report "a later call looks for nothing" \
  "$([ ! -e "$work/looked" ] || echo 'it did; '; expect_status 0; expect_out '[again]'; expect_quiet)"

touch "$book/optional.h"
run env "PATH=$work/spy:$PATH" "$book/workbook" came
report "an optional package that was installed later is looked for" \
  "$([ -e "$work/looked" ] || echo 'it was not; '; expect_status 0; expect_out '[came]'; expect_quiet)"
rm -f "$work/looked"
run env "PATH=$work/spy:$PATH" "$book/workbook" once
report "and only once" "$([ ! -e "$work/looked" ] || echo 'again; '; expect_status 0; expect_out '[once]')"

# ---- Changes. ------------------------------------------------------------------------------------------------------

echo '#error "this header is broken"' >"$book/common/header.txt"
run "$book/workbook" broken
report "a failed build says what failed and where the log is, and ends with 3" \
  "$(expect_status 3; expect_out ''; expect_err 'this header is broken'
    expect_err "$book/build/default/launcher.log")"
for shown in 'hint 1.1' 'status' 'bench --help'; do
  # shellcheck disable=SC2086  # words on purpose
  run "$book/workbook" $shown
  report "$shown waits for no build" \
    "$(expect_status 0; expect_quiet; expect_out "[$(printf '%s' "$shown" | sed 's/ /][/g')]")"
done
echo '// mended' >"$book/common/header.txt"
run "$book/workbook" mended
report "a change is built again" "$(expect_status 0; expect_out '[mended]'; expect_quiet)"

# Ninja is asked only after a change: a stand-in writes its calls down.
real_ninja=$(sed -n 4p "$book/build/default/.workbook-ready")
printf '#!/bin/sh\necho ninja >>"%s/ninja-calls"\nexec "%s" "$@"\n' "$work" "$real_ninja" >"$work/ninja"
chmod +x "$work/ninja"
sed "4s|.*|$work/ninja|" "$book/build/default/.workbook-ready" >"$work/ready"
cp "$work/ready" "$book/build/default/.workbook-ready"
ninja_calls() {  # ninja_calls: how often it was called in one run of the command
  : >"$work/ninja-calls"
  run "$book/workbook" counted
  grep -c ninja "$work/ninja-calls"
}
first=$(ninja_calls)
echo '// another' >"$book/common/header.txt"
second=$(ninja_calls)
third=$(ninja_calls)
: >"$book/common/new.cpp"
fourth=$(ninja_calls)
rm "$book/common/new.cpp"
fifth=$(ninja_calls)
rm "$book/build/default/bin/workbook_cli"
sixth=$(ninja_calls)
report "ninja is asked when something has changed, come or gone, and only then" \
  "$(expect_status 0; expect_out '[counted]'; expect_same "$first $second $third $fourth $fifth $sixth" '0 1 0 1 1 1')"
printf '%s\n' "$book" "$(sed -n 2p "$work/ready")" "$(sed -n 3p "$work/ready")" "$real_ninja" configured \
  >"$book/build/default/.workbook-ready"

cp "$book/CMakeLists.txt" "$work/keep"
echo 'message(FATAL_ERROR "no good")' >>"$book/CMakeLists.txt"
run "$book/workbook" broken
report "a failed configuration ends with 3 as well" "$(expect_status 3; expect_out ''; expect_err 'no good')"
cp "$work/keep" "$book/CMakeLists.txt"

mv "$book" "$work/moved book"
book="$work/moved book"
run "$book/workbook" where
report "a moved folder is configured afresh" \
  "$(expect_status 0; expect_quiet; expect_same "$(sed -n 2p "$work/out")" "$book")"

run env CXX=/nowhere/g++ "$book/workbook" x
report "a compiler that does not work is named" "$(expect_status 3; expect_out ''; expect_err 'CXX=/nowhere/g++')"

other_cxx=
for candidate in clang++ clang++-20 clang++-19 clang++-18 clang++-17 clang++-16; do
  major=$("$candidate" -dumpversion 2>/dev/null | sed 's/\..*//')
  if [ "${major:-0}" -ge 16 ]; then other_cxx=$candidate; fi
done
if [ -n "$other_cxx" ]; then
  run env "CXX=$other_cxx" "$book/workbook" other
  # shellcheck disable=SC2317  # it is called
  compiled_by() { sed -n 's/^CMAKE_CXX_COMPILER:[A-Z]*=.*\///p' "$book/build/default/CMakeCache.txt"; }
  first="$(expect_status 0; expect_out '[other]'; expect_same "$(compiled_by)" "$other_cxx")"
  run "$book/workbook" other
  report "another compiler is taken, and remembered" \
    "$first$(expect_status 0; expect_same "$(compiled_by)" "$other_cxx")"
else
  echo "skipped another compiler is taken, and remembered: no clang++ >= 16 here"
fi

run env WORKBOOK_FETCH=maybe "$book/workbook" x
report "a wrong WORKBOOK_FETCH is refused" "$(expect_status 3; expect_out ''; expect_err 'WORKBOOK_FETCH=maybe')"

# shellcheck disable=SC2016  # $0 is the inner shell's
run sh -c 'ulimit -n 20 && exec "$0" x' "$book/workbook"
report "too few open files are named" "$(expect_status 3; expect_out ''; expect_err 'ulimit -n = 20')"

make_book "$work/semi;colon"
run "$work/semi;colon/workbook" x
report "a folder name that CMake cannot handle is refused" \
  "$(expect_status 3; expect_out ''; expect_err 'CMake cannot handle')"

# ---- Missing tools and libraries. ----------------------------------------------------------------------------------

bare="$work/bare"
make_bare_path "$bare"
missing_book="$work/missing book"
make_book "$missing_book"
bookworm_packages='g++ cmake ninja-build libfmt-dev nlohmann-json3-dev libcli11-dev libtomlplusplus-dev'
bookworm_packages="$bookworm_packages catch2/bookworm-backports libboost-context-dev"

run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" x
report "without a terminal and without --yes it only says what to run, and ends with 3" \
  "$(expect_status 3; expect_out ''; expect_err "apt-get install --no-install-recommends $bookworm_packages"
    expect_err 'URIs: http://mirror.example/debian'; expect_err '--yes'; expect_err 'WORKBOOK_FETCH=1'
    [ ! -e "$bare/calls.txt" ] || echo 'it called apt-get; ')"

run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/fedora" "$missing_book/workbook" --yes x
report "on a system without apt it names what is missing" \
  "$(expect_status 3; expect_out ''; expect_err 'cmake >= 3.25'; expect_err 'ninja'; expect_no_err 'apt-get')"

run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/jammy" "$missing_book/workbook" --yes x
report "a release whose packages are too old is told so" \
  "$(expect_status 3; expect_err 'too old'; expect_no_err 'apt-get')"

run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/mint" "$missing_book/workbook" x
report "what derives from Ubuntu 24.04 gets its packages" \
  "$(expect_status 3; expect_err 'libtomlplusplus-dev catch2 libboost-context-dev'; expect_no_err 'backports')"

mkdir "$work/mac" && printf '#!/bin/sh\necho Darwin\n' >"$work/mac/uname" && chmod +x "$work/mac/uname"
run env "PATH=$work/mac:$bare" "$missing_book/workbook" --yes x
report "on macOS it points to the container" "$(expect_status 3; expect_err 'development container')"

if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
  rm -f "$bare/calls.txt"
  echo n | script -qec "env 'PATH=$bare' 'WORKBOOK_OS_RELEASE=$work/bookworm' '$missing_book/workbook' x" /dev/null \
    >"$work/out" 2>"$work/err"
  status=$?
  report "on a terminal it asks, and no means no" \
    "$(expect_status 3; grep -q 'Install now' "$work/out" || echo 'it did not ask; '
      [ ! -e "$bare/calls.txt" ] || echo 'it called apt-get; ')"

  touch "$bare/apt-fails"
  echo | script -qec "env 'PATH=$bare' 'WORKBOOK_OS_RELEASE=$work/bookworm' '$missing_book/workbook' x" /dev/null \
    >"$work/out" 2>"$work/err"
  report "on a terminal it asks, and Enter means yes" "$([ -e "$bare/calls.txt" ] || echo 'it did not call apt-get; ')"
else
  echo "skipped on a terminal it asks: script(1) gives no terminal here"
fi

touch "$bare/apt-fails"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" --yes x
report "a failed installation shows apt's words, takes its source back and ends with 3" \
  "$(expect_status 3; expect_out ''; expect_err 'Unable to locate package'; expect_err "launcher.log"
    [ ! -e "$bare/apt/sources.list.d/flashattention-workbook-backports.sources" ] || echo 'its source is left; ')"
rm "$bare/apt-fails" "$bare/calls.txt"

printf '#!/bin/sh\necho 1000\n' >"$bare/id"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" --yes x
report "without root and without sudo it says so" "$(expect_status 3; expect_out ''; expect_err 'no sudo')"
# shellcheck disable=SC2016  # for the stand-in to expand
printf '#!/bin/sh\necho "sudo $*" >>"%s/calls.txt"\n[ "$1" != -n ] || shift\nexec "$@"\n' "$bare" >"$bare/sudo"
chmod +x "$bare/sudo"

run env CI=true "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" installed
report "with CI=true it installs, then runs; standard output is the command's alone" \
  "$(expect_status 0; expect_out '[installed]'
    grep -q "^apt-get .* install -y --no-install-recommends $bookworm_packages\$" "$bare/calls.txt" ||
      echo 'wrong packages; '
    grep -q '^sudo -n tee ' "$bare/calls.txt" || echo 'no sudo; '
    expect_same "$(grep -v '^#' "$bare/apt/sources.list.d/flashattention-workbook-backports.sources")" \
      'Types: deb
Suites: bookworm-backports
Components: main
URIs: http://mirror.example/debian
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg')"

rm -f "$bare/calls.txt"
printf 'Catch2\n' >"$missing_book/pretend-missing"
touch "$missing_book/CMakeLists.txt"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" --yes one
report "a library that has gone is installed alone, from the backports source that is there" \
  "$(expect_status 0; expect_out '[one]'; expect_no_err 'create '; expect_no_err 'ninja-build'
    grep -q 'catch2/bookworm-backports' "$bare/calls.txt" || echo 'Catch2 was not installed; ')"

rm -f "$bare/calls.txt"
printf 'Catch2\n' >"$missing_book/pretend-missing"
touch "$missing_book/CMakeLists.txt"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" WORKBOOK_FETCH=1 "$missing_book/workbook" fetched
first="$(expect_status 0; expect_out '[fetched]'; expect_quiet)"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" fetched
report "WORKBOOK_FETCH=1 does without packages, and is remembered" \
  "$first$(expect_status 0; expect_out '[fetched]'; [ ! -e "$bare/calls.txt" ] || echo 'it called apt-get; ')"
rm -f "$missing_book/pretend-missing"

rm -f "$bare/calls.txt"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" grade
report "without a terminal grade offers nothing" \
  "$(expect_status 0; expect_out '[grade]'; [ ! -e "$bare/calls.txt" ] || echo 'it called apt-get; ')"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" --yes release all
report "release installs what it can use" \
  "$(expect_status 0; expect_out '[release][all]'
    grep -q 'install -y --no-install-recommends libarchive-dev libboost-context-dev$' "$bare/calls.txt" ||
      echo 'wrong packages; ')"
touch "$bare/apt-fails"
run env "PATH=$bare" "WORKBOOK_OS_RELEASE=$work/bookworm" "$missing_book/workbook" --yes grade
report "grade runs if they cannot be installed" "$(expect_status 0; expect_out '[grade]'; expect_err 'Unable to locate')"
rm "$bare/apt-fails"

# ---- One build at a time. ------------------------------------------------------------------------------------------

two_at_once() {  # two_at_once PATH: two calls that both find something to build
  : >"$missing_book/builds.txt"
  echo "// slow $1" >"$missing_book/common/header.txt"
  PATH=$1 "$missing_book/workbook" first >"$work/out1" 2>"$work/err1" &
  one=$!
  PATH=$1 "$missing_book/workbook" second >"$work/out2" 2>"$work/err2" &
  two=$!
  wait $one
  status=$?
  wait $two || status=$?
  cat "$work/out1" "$work/out2" >"$work/out"
  cat "$work/err1" "$work/err2" >"$work/err"
}
builds() { tr '\n' ' ' <"$missing_book/builds.txt"; }

two_at_once "$bare"
report "two calls do not build at the same time" \
  "$(expect_status 0; expect_out '[first]
[second]'; expect_err 'waiting for another build'; expect_same "$(builds)" 'start end ')"

rm "$bare/flock"
two_at_once "$bare"
report "nor without flock" \
  "$(expect_status 0; expect_out '[first]
[second]'; expect_err 'waiting for another build'; expect_same "$(builds)" 'start end ')"

mkdir "$missing_book/build/default/.lock.d" && sh -c 'echo $$' >"$missing_book/build/default/.lock.d/pid"
run env "PATH=$bare" "$missing_book/workbook" stale
report "a lock whose owner is gone is taken over" "$(expect_status 0; expect_out '[stale]'; expect_quiet)"

if command -v flock >/dev/null 2>&1; then
  flock "$book/build/default/.lock" sleep 1 &
  sleep 0.3
  run "$book/workbook" hint 1.2
  report "hint waits for nobody who builds" "$(expect_status 0; expect_out '[hint][1.2]'; expect_quiet)"
  run "$book/workbook" after
  report "waits for whoever else holds build/default/.lock" \
    "$(expect_status 0; expect_out '[after]'; expect_err 'waiting')"
  wait

  "$book/workbook" sleep 5 &
  sleeper=$!
  sleep 0.5
  run timeout 4 "$book/workbook" meanwhile
  report "the lock is free while a command runs" "$(expect_status 0; expect_out '[meanwhile]'; expect_quiet)"
  kill $sleeper
else
  echo "skipped the lock that the command shares: no flock(1) here"
fi

exit $failed
