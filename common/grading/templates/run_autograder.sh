#!/usr/bin/env bash
# Run for each submission: reads /autograder/submission, writes /autograder/results/results.json.
base=${AUTOGRADER:-/autograder}
here=$base/source
arguments=(--assignment "$here/assignment.toml" --results "$base/results/results.json")
[ ! -d "$here/hidden" ] || arguments+=(--hidden "$here/hidden")
mkdir -p "$base/results"
# The submission's compiler and program run as another user, which must not read other files of the submission.
chmod -R go-rwx "$base/submission"
exec "$here/book/workbook" --yes grade "${arguments[@]}" "$base/submission"
