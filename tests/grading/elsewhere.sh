#!/bin/sh
# tests/grading/elsewhere.sh: grades a right and an untouched submission of a chapter on the CPU (2) and of one on the
# simulator (4) as root in a container: in a chroot, with what Docker leaves it, which are its capabilities, no
# namespaces, no mounts. To be run as root, with the target grading_elsewhere built; the book and its build folder are
# copied, and stand in the original's place in a mount namespace of their own. (An ordinary user: tests_grade_chapters.
# A system with nothing but what setup.sh installs: image.sh.)
set -eu
book=$(cd "$(dirname "$0")/../.." && pwd)
here=$(mktemp -d /tmp/workbook-elsewhere-XXXXXX)
trap 'rm -rf "$here"' EXIT
chmod 711 "$here"
mkdir -p "$here/class/submissions"
for number in 2 4; do
  chapter=$(cd "$book/solutions" && ls -d 0${number}_*)
  mkdir -p "$here/class/submissions/right/chapters/$chapter" "$here/class/submissions/open/chapters/$chapter"
  cp "$book/solutions/$chapter/"* "$here/class/submissions/right/chapters/$chapter/"
  cp "$book/chapters/$chapter/"*.[ch]* "$here/class/submissions/open/chapters/$chapter/"
done
cat >"$here/class/assignment.toml" <<'TOML'
title = "Elsewhere"

[[exercise]]
id = "2.1"

[[exercise]]
id = "4.4"

[[chapter]]
number = 2
points = 2
TOML
grade="cd /tmp/class && WORKBOOK_ROOT='$book' WORKBOOK_BUILD='$book/build/default' \
  '$book/build/default/bin/workbook_course' grade --assignment assignment.toml --build-time 300 --time-limit 30 \
  --out graded submissions/right submissions/open && cat graded/class.csv"
copy="$here/copy" root="$here/root"
mkdir -p "$copy/book" "$copy/tmp" "$root"
cp -a "$book/." "$copy/book/"
cp -a "$here/class" "$copy/tmp/class"
chmod 1777 "$copy/tmp"
# What must stay hidden is closed to others.
chmod 700 "$copy/book/solutions" "$copy/book/tests" "$copy/tmp/class/submissions"
unshare -m -p -i -u -n -f sh -ec "
  mount -t tmpfs tmpfs '$root'
  for folder in /usr /bin /sbin /lib /lib64 /etc /opt; do
    [ -e \$folder ] || continue
    mkdir -p '$root'\$folder && mount --bind \$folder '$root'\$folder && mount -o remount,bind,ro '$root'\$folder
  done
  mkdir -p '$root/proc' '$root/dev' '$root/tmp' '$root$book'
  mount -t proc proc '$root/proc'
  mount -t tmpfs tmpfs '$root/dev'
  for device in null zero full random urandom; do touch '$root/dev/'\$device; mount --bind /dev/\$device '$root/dev/'\$device; done
  ln -s /proc/self/fd '$root/dev/fd'
  mkdir '$root/dev/shm' && mount -t tmpfs tmpfs '$root/dev/shm'
  mount --bind '$copy/book' '$root$book'
  mount --bind '$copy/tmp' '$root/tmp'
  exec chroot '$root' '$book/build/default/bin/grading_elsewhere' env HOME=/root sh -ec \"\$0\"" "$grade"
