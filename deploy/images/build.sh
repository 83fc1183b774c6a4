#!/bin/bash
# build.sh [TARGET]   An image of the Dockerfile without Docker and without a registry: "runtime" unless another stage is named.
#
# Needs Debian and root, and: apt-get install --no-install-recommends buildah mmdebstrap. The base image is made of the packages
# that the machine's own apt sources offer, so it is not the pinned one of the Dockerfile. Images are kept in IMAGE_STORE,
# build/images unless that is set; remove the folder to begin again. The name of the image is the last line of the output.
# Exit status 3: a tool is missing, this is not Debian bookworm, or nothing can be mounted here.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
target=${1:-runtime}
. deploy/images/store.sh

begun=$SECONDS
say() { printf 'image: %3d s  %s\n' $((SECONDS - begun)) "$*" >&2; }

for tool in buildah mmdebstrap; do
    command -v "$tool" >/dev/null || { say "$tool is missing: apt-get install --no-install-recommends $tool"; exit 3; }
done
grep -qx 'VERSION_CODENAME=bookworm' /etc/os-release || { say "this is not Debian bookworm, whose packages the image is made of"; exit 3; }
probe=$(store from scratch)
store mount "$probe" >/dev/null || { say "buildah cannot mount here"; exit 3; }
store rm "$probe" >/dev/null
base=localhost/debian:bookworm
if ! store images --quiet "$base" >/dev/null 2>&1; then
    say "making a base of Debian bookworm"
    sources=/etc/apt/sources.list.d/debian.sources
    [ -e "$sources" ] || sources=/etc/apt/sources.list
    mmdebstrap --quiet --variant=apt --include=ca-certificates bookworm "$image_store/base.tar" "$sources"
    container=$(store from scratch)
    tree=$(store mount "$container")
    tar -xf "$image_store/base.tar" -C "$tree" --exclude=./dev
    rm -f "$image_store/base.tar"
    cp /etc/resolv.conf /etc/hosts "$tree/etc/"
    if [ -n "${SSL_CERT_FILE:-}" ]; then # a CA of the machine's own; update-ca-certificates in a stage would drop it
        cp "$SSL_CERT_FILE" "$tree/etc/local-ca.pem"
        printf '[global]\ncert = /etc/local-ca.pem\n' > "$tree/etc/pip.conf"
    fi
    store umount "$container" >/dev/null
    store commit --quiet "$container" "$base" >/dev/null
    store rm "$container" >/dev/null
fi
say "building --target $target"
certificates=()
[ -z "${SSL_CERT_FILE:-}" ] || certificates=(--env SSL_CERT_FILE=/etc/local-ca.pem)
name=localhost/cc-tts:$target
revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
# The format of OCI has no place for HEALTHCHECK.
store bud --format docker --pull-never --network host "${certificates[@]}" --build-arg "REVISION=$revision" --build-arg "DEBIAN=$base" --target "$target" -t "$name" . >&2
say "$name: $(($(du -sm "$image_store/storage" | cut -f1))) MiB on disk with its base"
echo "$name"
