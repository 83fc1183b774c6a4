#!/bin/bash
# fetch.sh [FOLDER]   Debian's kamailio, unpacked into a folder: no root, nothing installed, nothing of the machine changed.
#
# FOLDER defaults to ${XDG_CACHE_HOME:-~/.cache}/cc-tts/kamailio. What is there already is kept; remove it to fetch again. About 9 MB
# are downloaded and 40 MB kept. Needs apt-get and dpkg-deb, that is, Debian or Ubuntu; apt verifies the package. Its libraries
# (libpcre3, libreadline8, libstdc++6) are the machine's.
set -euo pipefail

folder=$(readlink -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/cc-tts/kamailio}")
max_kib=$((40 * 1024))  # of the package; more is not what was asked for
limit_s=120             # for the download

say() { echo "kamailio: $*" >&2; }
fail() { say "$*"; exit 1; }

run_kamailio() {
    local libraries
    libraries=$(echo "$1"/usr/lib/*-linux-gnu*/kamailio)
    LD_LIBRARY_PATH=$libraries "$1/usr/sbin/kamailio" -L "$libraries/modules" -v | head -n 1
}

if [ -x "$folder/usr/sbin/kamailio" ]; then
    say "$(run_kamailio "$folder") is in $folder"
    exit 0
fi
for tool in apt-get dpkg-deb timeout; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.part-XXXXXX")
trap 'rm -rf "$work"' EXIT
mkdir "$work/tree"
cd "$work"
bytes=$(apt-get -qq --print-uris download kamailio | awk 'NR == 1 {print $3}')
[ -n "$bytes" ] || fail "apt knows no kamailio: apt-get update"
[ "$bytes" -le $((max_kib * 1024)) ] || fail "a package of $bytes bytes is not what was expected"
say "downloading $((bytes / 1024)) KiB"
timeout "$limit_s" apt-get -qq -o APT::Sandbox::User="" -o Acquire::Retries=2 download kamailio || fail "the download failed"
dpkg-deb -x ./kamailio_*.deb tree
rm -rf tree/usr/share/{doc,man,locale}
version=$(run_kamailio "$work/tree") || fail "what was unpacked does not run: $(ldd tree/usr/sbin/kamailio | grep 'not found' || true)"
[ ! -e "$folder" ] || rmdir "$folder" 2>/dev/null || fail "$folder is in the way"
chmod 755 tree
mv -T tree "$folder"
say "$version is in $folder"
