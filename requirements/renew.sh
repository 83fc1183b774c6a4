#!/bin/sh
# Renews the lock files for every supported Python and platform, with hashes and without naming an index.
set -eu
uv=${1:-uv}
cd "$(dirname "$0")/.."
common="--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet --index-strategy first-index"
printf 'editables\nhatchling\n' > requirements/build.in
$uv pip compile $common pyproject.toml requirements/build.in -o requirements/default.lock
$uv pip compile $common pyproject.toml requirements/build.in --group dev -c requirements/default.lock -o requirements/dev.lock
# The lock names packages and hashes; which index serves them is the machine's own setting.
sed -i '/^--extra-index-url/d;/^--find-links/d;/^--index-url/d' requirements/default.lock requirements/dev.lock
