#!/bin/bash
# release.sh [--rehearse] [--without STEP,…] --sign TOOL:KEY | --unsigned   What a release consists of, into dist/.
#
#   wheel    the wheel and the source distribution
#   chart    the Helm chart
#   sbom     the bill of materials, CycloneDX, from the lock file
#   pjsua2   a wheel of the server build of pjsua2 for each Python at hand (PYTHONS="python3.11 …": for these), and its source
#   image    the image `runtime` as an archive, and its bill of materials
#   deb      a package for this Debian, with all that it needs of PyPI
#
# At the end come SHA256SUMS and its signature: --sign ssh:FILE, gpg:ID or minisign:FILE, with a key of yours.
#
# HEAD must carry the tag v$VERSION, nothing may be uncommitted, and the changelog must have a section for the version.
# --rehearse does without these three; only what is committed is built. Nothing is uploaded. A missing tool ends the script
# before anything is built, and says what to install. Needs make's .venv with the development tools.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/.."
steps=(wheel chart sbom pjsua2 image deb)
usage() { sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p}' "$0" >&2; exit 2; }
fail() { echo "release: $*" >&2; exit 1; }
say() { printf 'release: %4d s  %s\n' "$SECONDS" "$*"; }

rehearse="" unsigned="" signer="" key="" without=" "
while [ $# -gt 0 ]; do
    case $1 in
        --rehearse) rehearse=yes ;;
        --unsigned) unsigned=yes ;;
        --without | --sign)
            [ $# -ge 2 ] || usage
            if [ "$1" = --sign ]; then signer=${2%%:*} key=${2#*:}; else without+="${2//,/ } "; fi
            shift
            ;;
        *) usage ;;
    esac
    shift
done
for name in $without; do [[ " ${steps[*]} " == *" $name "* ]] || fail "there is no step $name, but: ${steps[*]}"; done
wants() { [[ $without != *" $1 "* ]]; }
made=()
for name in "${steps[@]}"; do ! wants "$name" || made+=("$name"); done
[ "${#made[@]}" -gt 0 ] || fail "no step is left of: ${steps[*]}"
needs() { # STEP COMMAND ADVICE
    ! wants "$1" || command -v "$2" >/dev/null || fail "$1 needs $2: $3, or --without $1"
}

root=$PWD
python=.venv/bin/python
work=build/release
tree=$work/tree

version=$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' cc_tts/__init__.py)
[ -n "$version" ] || fail "cc_tts/__init__.py has no __version__"
grep -qx "appVersion: $version" deploy/helm/cc-tts/Chart.yaml || fail "Chart.yaml has another appVersion than $version"
if [ -z "$rehearse" ]; then
    [ -z "$(git status --porcelain)" ] || fail "there are uncommitted changes"
    git tag --points-at HEAD | grep -qx "v$version" || fail "HEAD does not carry the tag v$version"
    grep -qx "## $version" CHANGELOG.md || fail "CHANGELOG.md has no section for $version"
    if grep -qi '^## .*unreleased' CHANGELOG.md; then fail "CHANGELOG.md has a section that is not released"; fi
fi

# --- what is missing is told before anything is built
if [ -n "$signer" ]; then
    case $signer in
        ssh) command -v ssh-keygen >/dev/null || fail "--sign ssh needs ssh-keygen: apt-get install openssh-client" ;;
        minisign) command -v minisign >/dev/null || fail "--sign minisign needs it: apt-get install minisign" ;;
        gpg) command -v gpg >/dev/null || fail "--sign gpg needs it: apt-get install gnupg"
            gpg --list-secret-keys -- "$key" >/dev/null 2>&1 || fail "gpg has no secret key $key" ;;
        *) fail "--sign is ssh:FILE, gpg:ID or minisign:FILE" ;;
    esac
    [ "$signer" = gpg ] || [ -r "$key" ] || fail "the key $key cannot be read"
    [ "$signer" = gpg ] || key=$(readlink -f "$key")
elif [ -z "$unsigned" ]; then
    fail "no key: --sign TOOL:KEY, or --unsigned for a release that nobody can tell from a forged one"
fi
wants wheel || ! wants deb || fail "deb is made of the wheel: --without wheel,deb"
! wants wheel || "$python" -c 'import hatchling' || fail "wheel needs hatchling: make check installs it, or --without wheel,deb"
needs deb dpkg-shlibdeps "apt-get install --no-install-recommends dpkg-dev"
! wants deb || /usr/bin/python3 -c 'import ensurepip' 2>/dev/null || fail "deb needs Debian's own venv: apt-get install --no-install-recommends python3-venv, or --without deb"
tag_of() { "$1" -c 'import sys; print("cp%d%d" % sys.version_info[:2])' 2>/dev/null; }
declare -A interpreters=()
if wants pjsua2; then
    for each in ${PYTHONS:-$python python3 python3.11 python3.12 python3.13 python3.14 /usr/bin/python3}; do
        tag=$(tag_of "$each") || { [ -z "${PYTHONS:-}" ] || fail "$each of PYTHONS does not run"; continue; }
        header=$("$each" -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
        path=$(command -v "$each")
        [[ $path == /* ]] || path=$root/$path
        [ ! -e "$header" ] || [ -n "${interpreters[$tag]:-}" ] || interpreters[$tag]=$path
    done
    [ "${#interpreters[@]}" -gt 0 ] || fail "pjsua2 needs a Python with Python.h: apt-get install python3-dev, or --without pjsua2"
    ! wants deb || [ -n "${interpreters[$(tag_of /usr/bin/python3)]:-}" ] || fail "deb needs a pjsua2 for /usr/bin/python3: apt-get install python3-dev, or --without deb"
    for tool in gcc swig pkg-config; do
        needs pjsua2 "$tool" "apt-get install --no-install-recommends build-essential swig pkg-config curl xz-utils libssl-dev libsrtp2-dev libopus-dev libsamplerate0-dev uuid-dev"
    done
fi
engine=""
if wants image; then
    if timeout 20 docker info >/dev/null 2>&1; then engine=docker
    elif command -v podman >/dev/null; then engine=podman
    elif [ "$(id -u)" -eq 0 ] && command -v buildah >/dev/null && command -v mmdebstrap >/dev/null; then engine=buildah
    else fail "image needs a Docker engine, podman, or as root: apt-get install --no-install-recommends buildah mmdebstrap crun, or --without image"
    fi
fi

# --- the steps. Everything is made of what is committed, with the commit's time, so that the same commit gives the same bytes
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
rm -rf "$tree" dist
mkdir -p "$tree" dist
git archive HEAD | tar -x -C "$tree"
[ -z "$(git status --porcelain)" ] || say "note: uncommitted changes are not in it"

make_wheel() {
    (cd "$tree" && "$root/$python" -m hatchling build --target wheel --target sdist --directory "$root/dist" >/dev/null)
    # By itself, in a folder without the source.
    rm -rf "$work/wheel"
    "$python" -m zipfile -e "dist/cc_tts-$version-py3-none-any.whl" "$work/wheel"
    said=$(cd "$work/wheel" && PYTHONPATH=$PWD "$root/$python" -P -m cc_tts.cli --version)
    [ "$said" = "cc-tts $version" ] || fail "the wheel calls itself $said"
}

make_chart() {
    tar --create --gzip --dereference --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner \
        --file "dist/cc-tts-chart-$version.tgz" --directory "$tree/deploy/helm" cc-tts
}

make_sbom() {
    [ -x "$work/venv/bin/cyclonedx-py" ] || "$python" -m venv "$work/venv"
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check --require-hashes -r requirements/release.txt
    sed "s/^dynamic = \[\"version\"\]/version = \"$version\"/" "$tree/pyproject.toml" > "$work/pyproject.toml"
    "$work/venv/bin/cyclonedx-py" requirements "$tree/requirements/default.lock" --pyproject "$work/pyproject.toml" \
        --output-reproducible --short-PURLs --of JSON -o "dist/cc_tts-$version.cdx.json"
}

make_pjsua2() {
    local tag build own
    export PJPROJECT_WORK=$root/build/pjproject
    own=$(tag_of "$python")
    for tag in "${!interpreters[@]}"; do
        build=$root/build/pjsua2/$tag
        if [ "$tag" = "$own" ] && [ ! -e "$build" ] && [ -d .venv/pjsua2-server ]; then # of make pjsua2: taken if nothing has changed
            mkdir -p build/pjsua2
            cp -a .venv/pjsua2-server "$build"
        fi
        PYTHON=${interpreters[$tag]} "$tree/sip/pjproject/build.sh" "$build"
        "${interpreters[$tag]}" "$tree/deploy/pjsua2_wheel.py" "$build" "$version" dist
    done
    [ -e "$PJPROJECT_WORK/pjproject.tar" ] || "$tree/sip/pjproject/source.sh" "$PJPROJECT_WORK"
    gzip -n < "$PJPROJECT_WORK/pjproject.tar" > "dist/pjproject-$(sed -n 's/^ "pjproject": "\(.*\)",$/\1/p' "$build/build.json").tar.gz"
}

make_image() {
    local archive=dist/cc-tts-image-$version.tar container name=cc-tts:$version bill=dist/cc-tts-image-$version.cdx.json
    local listing=(python3 - --system cc-tts-image "$version")
    if [ "$engine" = buildah ]; then
        IMAGE_STORE=$root/build/images
        . deploy/images/store.sh
        name=$(IMAGE_STORE=$image_store "$tree/deploy/images/build.sh" runtime | tail -1)
        store push --quiet "$name" "docker-archive:$archive:cc-tts:$version"
        container=$(store from --pull-never "$name")
        store run "$container" -- "${listing[@]}" < "$tree/deploy/bill_of_materials.py" > "$bill"
        store rm "$container" >/dev/null
    else
        "$engine" build --build-arg "REVISION=$(git rev-parse HEAD)" --target runtime --tag "$name" "$tree"
        "$engine" save --output "$archive" "$name"
        "$engine" run --rm --interactive --entrypoint "${listing[0]}" "$name" "${listing[@]:1}" < "$tree/deploy/bill_of_materials.py" > "$bill"
    fi
    gzip -n "$archive"
}

make_deb() {
    local pjsua2=()
    if wants pjsua2; then pjsua2=("$root"/dist/cc_tts_pjsua2-"$version"-"$(tag_of /usr/bin/python3)"-*.whl); fi
    "$tree/deploy/deb/build.sh" "dist/cc_tts-$version-py3-none-any.whl" dist "${pjsua2[@]}"
}

step() { # NAME WHAT
    local started=$SECONDS
    if ! wants "$1"; then say "$1: left out"; return; fi
    say "$1: $2"
    "make_$1"
    say "$1: done, $((SECONDS - started)) s"
}
step wheel "wheel and source distribution of $(git rev-parse --short HEAD), and the wheel started once"
step chart "the Helm chart"
step sbom "the bill of materials of requirements/default.lock"
step pjsua2 "the server build for ${!interpreters[*]}, four minutes each unless it is there"
step image "the image with $engine, five to ten minutes"
step deb "the package for $(dpkg --print-architecture 2>/dev/null || echo none), one to two minutes"

cd dist
find . -type f ! -name SHA256SUMS -printf '%P\n' | LC_ALL=C sort | xargs sha256sum > SHA256SUMS
case $signer in
    ssh) ssh-keygen -q -Y sign -f "$key" -n cc-tts SHA256SUMS ;;
    gpg) gpg --batch --local-user "$key" --armor --detach-sign SHA256SUMS ;;
    minisign) minisign -S -s "$key" -m SHA256SUMS ;;
    *) say "unsigned" ;;
esac
ls -l --time-style=+
cat SHA256SUMS
