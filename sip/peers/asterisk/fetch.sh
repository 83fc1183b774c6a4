#!/bin/bash
# fetch.sh [FOLDER]   Asterisk 22 of Debian sid, unpacked into a folder: no root, nothing installed, nothing of the machine changed.
#
# FOLDER defaults to ${XDG_CACHE_HOME:-~/.cache}/cc-tts/asterisk. What is there already is kept; remove it to fetch again. About 80 MB are
# downloaded and 250 MB kept. Needs apt-get and dpkg-deb, that is, Debian or Ubuntu. Packages are verified with Debian's keyring.
# CC_TTS_DEBIAN_MIRROR: another mirror than the machine's. CC_TTS_ASTERISK_SUITE: another suite than sid.
set -euo pipefail

folder=$(readlink -m "${1:-${XDG_CACHE_HOME:-$HOME/.cache}/cc-tts/asterisk}")
suite=${CC_TTS_ASTERISK_SUITE:-sid}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
max_kib=$((300 * 1024))  # of packages; more is not what was asked for
limit_s=300              # for each of the two steps over the network

say() { echo "asterisk: $*" >&2; }
fail() { say "$*"; exit 1; }

# the loader of the unpacked tree runs its programs with its own libraries, whatever the machine has
run_asterisk() {
    local loader
    loader=$(find "$1" -path '*/lib/*-linux-gnu*/ld-linux*.so.*' -print -quit)
    [ -n "$loader" ] || return 1
    "$loader" --library-path "$(dirname "$loader")" "$1/usr/sbin/asterisk" -V
}

if [ -x "$folder/usr/sbin/asterisk" ]; then
    say "$(run_asterisk "$folder") is in $folder"
    exit 0
fi
for tool in apt-get dpkg-deb timeout; do
    command -v "$tool" >/dev/null || fail "$tool is missing"
done
[ -r "$keyring" ] || fail "$keyring is missing: apt-get install debian-archive-keyring"
mirror=${CC_TTS_DEBIAN_MIRROR:-$(awk '/^URIs:/ {print $2; exit}' /etc/apt/sources.list.d/debian.sources 2>/dev/null || true)}
mirror=${mirror:-http://deb.debian.org/debian}
arch=$(dpkg --print-architecture)

mkdir -p "$(dirname "$folder")"
work=$(mktemp -d "$folder.part-XXXXXX")
trap 'rm -rf "$work"' EXIT
free_kib=$(df -Pk "$work" | awk 'NR == 2 {print $4}')
[ "$free_kib" -ge $((700 * 1024)) ] || fail "700 MB are needed in $(dirname "$folder"), $((free_kib / 1024)) MB are free"

# an apt of its own: its lists, its cache, no package installed, so that it names everything Asterisk depends on
mkdir -p "$work"/apt/{state/lists/partial,cache/archives/partial,etc/preferences.d,etc/apt.conf.d} "$work/tree"
: > "$work/apt/state/status"
echo "deb [arch=$arch signed-by=$keyring] $mirror $suite main" > "$work/apt/etc/sources.list"
cat > "$work/apt/apt.conf" <<CONF
Dir "$work/apt"; Dir::Etc "$work/apt/etc"; Dir::Etc::sourcelist "$work/apt/etc/sources.list"; Dir::Etc::sourceparts "-";
Dir::State "$work/apt/state"; Dir::State::status "$work/apt/state/status"; Dir::Cache "$work/apt/cache"; Dir::Log "$work/apt";
APT::Architecture "$arch"; APT::Architectures "$arch"; APT::Install-Recommends "false"; APT::Get::Assume-Yes "true";
APT::Sandbox::User ""; APT::Get::AllowUnauthenticated "false"; Debug::NoLocking "true";
Acquire::Check-Valid-Until "false"; Acquire::Languages "none"; Acquire::Retries "2"; Acquire::http::Timeout "20";
CONF
export APT_CONFIG="$work/apt/apt.conf"

say "reading the list of packages of $suite from $mirror"
timeout "$limit_s" apt-get -qq -o APT::Update::Error-Mode=any update || fail "the list of packages could not be read"
kib=$(apt-get -qq --print-uris install asterisk | awk '{sum += $3} END {print int(sum / 1024)}')
[ "$kib" -gt 0 ] && [ "$kib" -le "$max_kib" ] || fail "$kib KiB of packages: not what was expected"
say "downloading $((kib / 1024)) MB"
timeout "$limit_s" apt-get -qq --download-only install asterisk >/dev/null || fail "the download failed"
say "unpacking $(find "$work/apt/cache/archives" -maxdepth 1 -name '*.deb' | wc -l) packages"
for package in "$work"/apt/cache/archives/*.deb; do
    dpkg-deb -x "$package" "$work/tree"
done
rm -rf "$work"/tree/usr/share/{doc,man,locale,info}
version=$(run_asterisk "$work/tree") || fail "what was unpacked does not run"
[ ! -e "$folder" ] || rmdir "$folder" 2>/dev/null || fail "$folder is in the way"
chmod 755 "$work/tree"
mv -T "$work/tree" "$folder"
say "$version is in $folder"
