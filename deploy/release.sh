#!/bin/bash
# release.sh [--rehearse]   What a release consists of, into dist/: wheel, source distribution, chart, bill of materials, checksums.
#
# HEAD must carry the tag v$VERSION, nothing may be uncommitted, and the changelog must have a section for the version.
# --rehearse does everything without asking for tag and section. Nothing is uploaded. Needs make's .venv with the development
# tools; cyclonedx-py is installed into build/release from requirements/release.txt.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
rehearse=""
case "$*" in
    "") ;;
    --rehearse) rehearse=yes ;;
    *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
root=$PWD
python=.venv/bin/python

fail() { echo "release: $*" >&2; exit 1; }

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' cc_tts/__init__.py)
"$python" -c 'import hatchling' || fail "hatchling is missing: make check installs it"
[ -n "$version" ] || fail "cc_tts/__init__.py has no __version__"
grep -qx "version = \"$version\"" pyproject.toml || fail "pyproject.toml has another version than $version"
grep -qx "appVersion: $version" deploy/helm/cc-tts/Chart.yaml || fail "Chart.yaml has another appVersion than $version"
[ -z "$(git status --porcelain)" ] || fail "there are uncommitted changes"
if [ -z "$rehearse" ]; then
    git tag --points-at HEAD | grep -qx "v$version" || fail "HEAD does not carry the tag v$version"
    grep -qx "## $version" CHANGELOG.md || fail "CHANGELOG.md has no section for $version"
    if grep -qi '^## .*unreleased' CHANGELOG.md; then fail "CHANGELOG.md has a section that is not released"; fi
fi

# Of what is committed, and with the commit's time, so that the same commit gives the same bytes.
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
work=build/release
rm -rf "$work/tree" dist
mkdir -p "$work/tree" dist
git archive HEAD | tar -x -C "$work/tree"
(cd "$work/tree" && "$root/$python" -m hatchling build --target wheel --target sdist --directory "$root/dist" >/dev/null)
tar --create --gzip --dereference --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
    --file "dist/cc-tts-chart-$version.tgz" --directory "$work/tree/deploy/helm" cc-tts

[ -x "$work/venv/bin/cyclonedx-py" ] || python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
"$work/venv/bin/cyclonedx-py" requirements requirements/default.lock --pyproject pyproject.toml --output-reproducible \
    --short-PURLs --of JSON -o "dist/cc_tts-$version.cdx.json"

# The wheel by itself, in a folder without the source.
rm -rf "$work/wheel"
"$python" -m zipfile -e "dist/cc_tts-$version-py3-none-any.whl" "$work/wheel"
said=$(cd "$work/wheel" && PYTHONPATH=$PWD "$root/$python" -P -m cc_tts.cli --version)
[ "$said" = "cc-tts $version" ] || fail "the wheel calls itself $said"

(cd dist && sha256sum -- * > SHA256SUMS)
(cd dist && ls -l --time-style=+ && cat SHA256SUMS)
