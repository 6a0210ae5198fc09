#!/bin/sh
# tests/grading/class_time.sh [JOBS]: what hostile submissions cost a class. Grades 60 right submissions of chapter 2
# alone, and again with every hostile sample of samples.cpp in turn with them, and compares: the tables with what each
# must be given, and the time. Then each of the three samples that took longest is graded with the 60. Fails where a
# sample gains a point, where a right one loses one, or where one sample makes the class of 60 take more than a fifth
# longer. To be run on a machine that does nothing else, as who may isolate, with the targets grading_class and
# workbook_course built. Ten class times, about.
#
# Processor time is that of the grader and all that it has started and waited for.
set -eu
book=$(cd "$(dirname "$0")/../.." && pwd)
bin="$book/build/default/bin"
jobs=${1:-$(nproc)}
here=$(mktemp -d /tmp/workbook-class-XXXXXX)
# What differs can be looked at: the folder stays where it fails.
trap '[ $? -ne 0 ] || rm -rf "$here"' EXIT
"$bin/grading_class" "$here" beside
cd "$here"
set -- submissions/*hostile*
hostile=$#

# grade NAME SUBMISSION…: into NAME; "wall cpu", in seconds, into NAME.time.
grade() {
  name=$1
  shift
  from=$(date +%s.%N)
  (
    WORKBOOK_ROOT="$book" WORKBOOK_BUILD="$book/build/default" "$bin/workbook_course" grade --assignment assignment.toml \
      --jobs "$jobs" --out "$name" "$@" >"$name.log" || echo "grade ended with $?" >&2
    times >"$name.times"
  )
  until=$(date +%s.%N)
  # The last line of times: of children, "1m2.5s 0m3.25s".
  tail -1 "$name.times" | tr 'ms' '  ' | awk -v wall="$(echo "$until $from" | awk '{print $1 - $2}')" \
    '{print wall, 60 * $1 + $2 + 60 * $3 + $4}' >"$name.time"
}
# seconds NAME PATTERN: "seconds student" of each submission, the longest first.
seconds() {
  for record in "$1"/$2/record.json; do
    echo "$(sed -n 's/^  "seconds": \([0-9.e-]*\),*$/\1/p' "$record") $(basename "$(dirname "$record")")"
  done | sort -rn
}
median() { awk '{all[NR] = $1} END {print all[int((NR + 1) / 2)]}'; }

grade alone submissions/*_solved
grade beside submissions/*
failed=0
grep -e '^student' -e '_solved' expected.csv | cmp - alone/class.csv || failed=1
cmp expected.csv beside/class.csv || failed=1
read -r wall cpu <alone.time
read -r wall_beside cpu_beside <beside.time
printf '60 right submissions, %s at a time: %.0f s, %.0f s of processor time; each %.2f s (median)\n' \
  "$jobs" "$wall" "$cpu" "$(seconds alone '*' | median)"
printf 'the same in turn with %s hostile ones: %.0f s, %.0f s of processor time; each right one %.2f s (median)\n' \
  "$hostile" "$wall_beside" "$cpu_beside" "$(seconds beside '*_solved' | median)"
echo "the hostile ones that take longest:"
seconds beside '*hostile*' | head -5
# Each of the three longest in the class of 60, alone with it.
for sample in $(seconds beside '*hostile*' | head -3 | cut -d' ' -f2); do
  grade "with_$sample" submissions/*_solved "submissions/$sample"
  read -r wall_with cpu_with <"with_$sample.time"
  echo "$sample: the 60 and it take $wall_with s, $cpu_with s of processor time"
  echo "$wall $wall_with" | awk '$2 > 1.2 * $1 {print "more than a fifth longer than the 60 alone"; exit 1}' || failed=1
done
exit $failed
