#!/bin/sh
# Renews the lock files for every supported Python and platform, with hashes and without naming an index.
set -eu
uv=${1:-uv}
cd "$(dirname "$0")/.."
common="--universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate --no-header --quiet --index-strategy first-index"
printf 'editables\nhatchling\n' > requirements/build.in
$uv pip compile $common pyproject.toml requirements/build.in -o requirements/default.lock
$uv pip compile $common pyproject.toml requirements/build.in --group dev -c requirements/default.lock -o requirements/dev.lock
# Extras with a file of their own, whose first line says what they are for.
for extra in kokoro otel remote ray; do
    says=$(head -n 1 "requirements/$extra.txt")
    python3 -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['project']['optional-dependencies']['$extra'], sep='\\n')" |
        $uv pip compile $common -c requirements/dev.lock -o "requirements/$extra.new" -
    { echo "$says"; grep -v '^--' "requirements/$extra.new"; } > "requirements/$extra.txt"
    rm "requirements/$extra.new"
done
# What is installed for one purpose only: NAME.in says what, and in its first lines what for. Those of the first three go where
# the development tools are.
for purpose in charts intelligibility browser release clients fuzz docs languages; do
    case $purpose in
        charts | intelligibility | browser) beside="-c requirements/dev.lock" ;;
        languages) beside="--no-deps" ;;
        *) beside="" ;;
    esac
    $uv pip compile $common $beside "requirements/$purpose.in" -o "requirements/$purpose.new"
    { grep '^#' "requirements/$purpose.in"; grep -v '^--' "requirements/$purpose.new"; } > "requirements/$purpose.txt"
    rm "requirements/$purpose.new"
done
# What the image runtime-gpu has beside that; its base is Debian's Python on x86-64.
for lock in gpu gpu-cuda12; do
    says=$(head -n 1 "requirements/$lock.lock")
    case $lock in gpu) overrides="" ;; *) overrides="--overrides requirements/$lock.in" ;; esac
    $uv pip compile $(echo "$common" | sed 's/--universal //') --python-platform x86_64-manylinux_2_28 -c requirements/default.lock $overrides \
        requirements/gpu.txt requirements/ray.txt -o requirements/gpu.new
    { echo "$says"; grep -v '^--' requirements/gpu.new; } > "requirements/$lock.lock"
    rm requirements/gpu.new
done
# The lock names packages and hashes; which index serves them is the machine's own setting.
sed -i '/^--extra-index-url/d;/^--find-links/d;/^--index-url/d' requirements/default.lock requirements/dev.lock
