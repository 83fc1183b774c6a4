#!/bin/bash
# source.sh FOLDER: puts the source of pjproject into FOLDER/pjproject.tar and says in FOLDER/source.txt where it comes from.
#
# In this order: PJPROJECT_TARBALL=FILE, whatever it is; the upstream release, of which the checksum is pinned here; Debian's
# source package. A wrong checksum ends the script; only what cannot be reached is passed over.
# PJPROJECT_SOURCE=upstream or debian allows only that one.
set -euo pipefail
folder=$(readlink -m "$1")
wanted=${PJPROJECT_SOURCE:-any}
mkdir -p "$folder"

release=2.17
upstream=https://github.com/pjsip/pjproject/archive/refs/tags/$release.tar.gz
# Of the tar inside: the release's archive is packed anew for each download, and only the packing may differ.
upstream_tar_sha256=a56dd79d978ce8d796969ee3f43b6e9e586d38aec7328645504f5b4e6255ad2c
# pjproject is a component of Debian's source package of asterisk; this is 2.17 in 22.10.1+dfsg+~cs6.17.60671434.
debian_sha256=6860c2f7604b4eee75f38151a9ef69774eb3f0c5286fc1d14bc1db2dc5a9e8aa
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

say() { echo "pjproject: $*"; }

keep() { # FILE, origin
    case $(file_kind "$1") in
        gzip) gzip -dc "$1" ;;
        xz) xz -dc "$1" ;;
        bzip2) bzip2 -dc "$1" ;;
        *) cat "$1" ;;
    esac > "$folder/pjproject.tar.part"
    mv "$folder/pjproject.tar.part" "$folder/pjproject.tar"
    echo "$2" > "$folder/source.txt"
    say "source: $2"
}

file_kind() {
    case $(head -c 6 "$1" | od -An -tx1 | tr -d ' \n') in
        1f8b*) echo gzip ;;
        fd377a585a00) echo xz ;;
        425a68*) echo bzip2 ;;
        *) echo tar ;;
    esac
}

from_upstream() {
    command -v curl >/dev/null || { say "no curl: upstream passed over"; return 1; }
    say "asking upstream for the release $release"
    curl --fail --silent --show-error --location --proto '=https' --proto-redir '=https' --connect-timeout 10 --max-time 300 \
        --output "$folder/upstream.tar.gz" "$upstream" || { say "upstream cannot be reached"; return 1; }
    found=$(gzip -dc "$folder/upstream.tar.gz" | sha256sum | cut -d' ' -f1)
    if [ "$found" != "$upstream_tar_sha256" ]; then
        say "the upstream release has the checksum $found, not $upstream_tar_sha256" >&2
        exit 1
    fi
    keep "$folder/upstream.tar.gz" "upstream release $release, tar $upstream_tar_sha256"
    rm "$folder/upstream.tar.gz"
}

mirror() { # where this machine gets its Debian from
    {
        awk '/^URIs:/ { print $2 }' /etc/apt/sources.list.d/*.sources 2>/dev/null || true
        awk '$1 == "deb" { for (i = 2; i <= NF; i++) if ($i ~ /^http/) print $i }' /etc/apt/sources.list 2>/dev/null || true
        echo http://deb.debian.org/debian
    } | grep -E '/debian/?$' | head -1
}

# apt with a state of its own: it checks the index's signature with the keyring, and each file against the index.
from_debian() {
    [ -x /usr/lib/apt/apt-helper ] && [ -e "$keyring" ] || { say "no apt with Debian's keyring here"; return 1; }
    say "asking Debian for the source of asterisk in sid"
    apt=$folder/apt
    rm -rf "$apt"
    mkdir -p "$apt"/{state/lists/partial,cache/archives/partial,etc/preferences.d,etc/apt.conf.d}
    : > "$apt/state/status"
    echo "deb-src [signed-by=$keyring] $(mirror) sid main" > "$apt/etc/sources.list"
    cat > "$apt/apt.conf" <<X
Dir "$apt"; Dir::Etc "$apt/etc"; Dir::Etc::sourcelist "$apt/etc/sources.list"; Dir::Etc::sourceparts "-";
Dir::State "$apt/state"; Dir::State::status "$apt/state/status"; Dir::Cache "$apt/cache"; Dir::Log "$apt";
APT::Sandbox::User ""; Acquire::Languages "none"; Acquire::Retries "2"; Acquire::http::Timeout "20"; Debug::NoLocking "true";
X
    export APT_CONFIG=$apt/apt.conf
    fresh=yes
    if ! apt-get -qq -o APT::Update::Error-Mode=any update 2>"$apt/errors"; then
        # an index past its date proves less: it will do only for the very file whose checksum stands above
        fresh=no
        apt-get -qq -o APT::Update::Error-Mode=any -o Acquire::Check-Valid-Until=false update 2>"$apt/errors" \
            || { sed 's/^/  /' "$apt/errors" >&2; say "Debian's archive cannot be reached, or its signature is wrong"; return 1; }
    fi
    line=$(apt-get -qq source --print-uris --only-source asterisk 2>/dev/null | grep -E "orig-Xpjproject\.tar\.[a-z0-9]+'? " | head -1)
    read -r uri name _ hash <<< "$line"
    [ "${hash%%:*}" = SHA256 ] || { say "asterisk in sid has no pjproject component any more" >&2; return 1; }
    if [ "${hash#SHA256:}" != "$debian_sha256" ] && [ "$fresh" = no ]; then
        say "the archive's index is past its date, and $name is not the file that was tested" >&2
        exit 1
    fi
    [ "${hash#SHA256:}" = "$debian_sha256" ] || say "note: $name is newer than the one that was tested; its signature is good"
    /usr/lib/apt/apt-helper -qq download-file "${uri//\'/}" "$folder/debian.tar" "$hash"
    keep "$folder/debian.tar" "Debian sid, $name, $hash"
    rm -rf "$folder/debian.tar" "$apt"
}

rm -f "$folder/pjproject.tar" "$folder/source.txt"
if [ -n "${PJPROJECT_TARBALL:-}" ]; then
    [ -r "$PJPROJECT_TARBALL" ] || { say "PJPROJECT_TARBALL: $PJPROJECT_TARBALL cannot be read" >&2; exit 1; }
    keep "$PJPROJECT_TARBALL" "given tarball, sha256 $(sha256sum < "$PJPROJECT_TARBALL" | cut -d' ' -f1)"
    exit
fi
case $wanted in
    any) from_upstream || from_debian || { say "no source: give one with PJPROJECT_TARBALL=FILE" >&2; exit 3; } ;;
    upstream) from_upstream || exit 3 ;;
    debian) from_debian || exit 3 ;;
    *) say "PJPROJECT_SOURCE is upstream or debian, not $wanted" >&2; exit 1 ;;
esac
