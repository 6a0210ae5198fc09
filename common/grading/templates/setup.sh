#!/usr/bin/env bash
# Run once, when the image of the autograder is made: installs what the book needs and builds the harness.
set -euo pipefail
here=${AUTOGRADER:-/autograder}/source
cd "$here/book"
packages=""
for package in libseccomp-dev libarchive-dev; do
  dpkg-query -W -f='${db:Status-Abbrev}' "$package" 2>/dev/null | grep -q '^ii' || packages="$packages $package"
done
if [ -n "$packages" ]; then
  apt-get update
  # shellcheck disable=SC2086 # the list of packages
  DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends $packages
fi
chmod 755 workbook
arguments=(--assignment "$here/assignment.toml")
[ ! -d "$here/hidden" ] || arguments+=(--hidden "$here/hidden")
./workbook --yes grade --prepare "${arguments[@]}"
chmod -R go-rwx "$here" # the submission runs as another user
