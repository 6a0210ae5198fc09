#!/bin/sh
# tests/grading/image.sh IMAGE [EXERCISES]: Gradescope's way from end to end, in an image like one of its own. IMAGE is
# the root of a system with nothing but its base: of Debian 12 (debootstrap --variant=minbase bookworm IMAGE) or of
# Ubuntu 24.04, as Gradescope's are (debootstrap --variant=minbase --components=main,universe noble IMAGE). The
# autograder's zip of a release (EXERCISES: 2.1,4.4) is unpacked there; its setup.sh installs and builds with the
# network, as when an image is made; then run_autograder grades the solutions and the untouched files, each in a network
# namespace of its own. All of it as root in a chroot, with what Docker leaves to a container: its capabilities, no user
# namespaces, no mounts. To be run as root, with the targets grading_elsewhere
# and workbook_course built, and unzip in the PATH. Prints the points of each. What was built stays in IMAGE.
set -eu
book=$(cd "$(dirname "$0")/../.." && pwd)
bin="$book/build/default/bin"
image=$(cd "$1" && pwd)
exercises=${2:-2.1,4.4}
here=$(mktemp -d /tmp/workbook-image-XXXXXX)
trap 'rm -rf "$here"' EXIT

# inside NETWORK COMMAND…: in the image. NETWORK: -n without the network, or nothing.
inside() {
  network=$1
  shift
  # shellcheck disable=SC2016,SC2086 # expanded by the shell inside; no word where there is a network
  unshare -m -p -i -u $network -f sh -ec '
    image=$1; shift
    mount --bind "$image" "$image"
    mount -t proc proc "$image/proc"
    mount -t tmpfs tmpfs "$image/dev"
    for device in null zero full random urandom; do
      touch "$image/dev/$device"; mount --bind "/dev/$device" "$image/dev/$device"
    done
    ln -s /proc/self/fd "$image/dev/fd"
    mkdir "$image/dev/shm"; mount -t tmpfs tmpfs "$image/dev/shm"
    exec chroot "$image" /usr/local/bin/grading_elsewhere env -i HOME=/root \
      PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"' inside "$image" "$@"
}

cp "$bin/grading_elsewhere" "$image/usr/local/bin/"
[ -x "$image/autograder/source/setup.sh" ] || {
  (cd "$here" && WORKBOOK_ROOT="$book" WORKBOOK_BUILD="$book/build/default" "$bin/workbook_course" release --exercises \
    "$exercises" --no-verify --gradescope --hidden "$book/tests/grading/hidden" --out a1)
  mkdir -p "$image/autograder/source"
  unzip -q -d "$image/autograder/source" "$here/a1-autograder.zip"
  chmod 755 "$image/autograder/source/setup.sh" "$image/autograder/source/run_autograder"
  cp /etc/resolv.conf "$image/etc/resolv.conf"
}
inside "" bash /autograder/source/setup.sh
for what in solved untouched; do
  rm -rf "$image/autograder/submission" "$image/autograder/results"
  mkdir -p "$image/autograder/submission" "$image/autograder/results"
  for number in $(echo "$exercises" | tr ',' '\n' | cut -d. -f1 | sort -u); do
    chapter=$(basename "$book/solutions/$(printf %02d "$number")"_*)
    from="$book/solutions/$chapter"
    [ $what = solved ] || from="$book/chapters/$chapter"
    mkdir -p "$image/autograder/submission/chapters/$chapter"
    cp "$from"/*.[ch]* "$image/autograder/submission/chapters/$chapter/"
  done
  inside -n bash /autograder/source/run_autograder
  echo "== $what"
  grep -E '"(name|score|max_score)":|"layers"|user id' "$image/autograder/results/results.json"
done
