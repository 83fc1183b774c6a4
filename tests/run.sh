#!/bin/sh
# The script runs pytest with its arguments. What failed beside other tests runs once more, one test at a time and up to the first
# failure: a test of sound or of a timeout may fail because the machine was busy. What fails alone too is a failure.
# The first run has printed what failed, and the last line counts what passed in the second. PYTEST: the program.
set -u
"${PYTEST:-.venv/bin/pytest}" "$@"
status=$?
[ "$status" -eq 1 ] || exit "$status"
echo "== once more, alone: what failed beside other tests"
exec env -u CC_TTS_LEAVE_OUT_PASSED "${PYTEST:-.venv/bin/pytest}" "$@" --last-failed --last-failed-no-failures none -x -n 0
