#!/bin/bash
# build.sh TARGET: the server build of pjsua2 into the folder TARGET: pjsua2.py, _pjsua2*.so and build.json, which says what
# it is. Four minutes on two cores; nothing when TARGET holds it already. PYTHON is the interpreter it is for. See README.md.
#
# Exit status 3: no source can be reached. 4: packages are missing; their names are printed.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
target=$(readlink -m "$1")
python=${PYTHON:-python3}
work=${PJPROJECT_WORK:-$(dirname "$(dirname "$here")")/build/pjproject}
jobs=${JOBS:-$(nproc)}
packages=(build-essential swig pkg-config curl xz-utils libssl-dev libsrtp2-dev libopus-dev libsamplerate0-dev uuid-dev)

begun=$SECONDS
say() { printf 'pjsua2: %3d s  %s\n' $((SECONDS - begun)) "$*"; }

step() { # NAME COMMAND…: quiet, with a log, and a sign of life every 15 s
    local name=$1 log=$work/log/$1.txt pid
    shift
    "$@" > "$log" 2>&1 &
    pid=$!
    local last=$SECONDS
    while kill -0 "$pid" 2>/dev/null; do
        sleep 0.2
        if [ $((SECONDS - last)) -ge 15 ]; then
            last=$SECONDS
            say "$name … $(grep -oE '[a-z0-9_]+\.(c|cpp)\b' "$log" | tail -1)"
        fi
    done
    wait "$pid" || { tail -30 "$log" >&2; say "$name failed; $log has all of it" >&2; exit 1; }
}

missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
header=$("$python" -c 'import sysconfig; print(sysconfig.get_path("include") + "/Python.h")')
[ -e "$header" ] || missing+=(python3-dev)
if [ "${#missing[@]}" -gt 0 ] && command -v dpkg-query >/dev/null; then
    echo "pjsua2: first: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 4
fi

# What the result depends on, besides the source: our files, the interpreter, the libraries it is linked with.
recipe=$({
    cat "$here"/config_site.h "$here"/build.sh "$here"/patches/*.patch
    "$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"), sysconfig.get_path("include"))'
    dpkg-query -W "${packages[@]}"
} | sha256sum | cut -c1-16)
given=""
[ -z "${PJPROJECT_TARBALL:-}" ] || given=$(sha256sum < "$PJPROJECT_TARBALL" | cut -d' ' -f1)
built() { "$python" -c 'import json, sys; print(json.load(open(sys.argv[1]))[sys.argv[2]])' "$target/build.json" "$1" 2>/dev/null; }
if [ "$(built recipe)" = "$recipe" ] && [[ $(built source) == *"$given"* ]]; then
    say "$target is up to date: pjproject $(built pjproject)"
    exit
fi

mkdir -p "$work/log"
if [ -n "$given" ] || ! [ -e "$work/pjproject.tar" ] || ! [ -e "$work/source.txt" ]; then
    bash "$here/source.sh" "$work" # a wheel keeps no mode of it
else
    say "source: $(cat "$work/source.txt") (kept in $work)"
fi

source=$work/source
rm -rf "$source"
mkdir -p "$source"
tar -xf "$work/pjproject.tar" -C "$source" --strip-components=1
cd "$source"
version=$(sed -n 's/^export PJ_VERSION_\(MAJOR\|MINOR\) *:= *//p' version.mak | paste -sd.)
[ "$(printf '%s\n' 2.17 "$version" | sort -V | head -1)" = 2.17 ] || { say "pjproject $version is older than 2.17" >&2; exit 1; }
say "pjproject $version: patches"
for patch in "$here"/patches/*.patch; do patch --silent --fuzz=0 -p1 < "$patch"; done
# Debian leaves this file out, and the makefile names it. Without a sound device it is empty anyway.
[ -e pjmedia/src/pjmedia-audiodev/bdimad_dev.c ] || : > pjmedia/src/pjmedia-audiodev/bdimad_dev.c
cp "$here/config_site.h" pjlib/include/pj/config_site.h

say "configuring"
export CFLAGS="-O2 -fPIC -DNDEBUG -fstack-protector-strong -D_FORTIFY_SOURCE=2" LDFLAGS=""
export CXXFLAGS=$CFLAGS
options=(--enable-epoll --enable-libsamplerate --with-external-srtp --disable-sound --disable-video --disable-upnp)
for each in sdl ffmpeg v4l2 openh264 vpx libyuv libwebrtc speex-aec speex-codec gsm-codec ilbc-codec g7221-codec \
    opencore-amr silk bcg729 lyra; do
    options+=("--disable-$each")
done
step configure ./aconfigure "${options[@]}"
for line in '/dev/epoll' 'SRTP devkit is installed... yes' 'OpenSSL library found' 'OPUS library found'; do
    grep -qF -- "$line" "$work/log/configure.txt" || { say "configure did not find: $line" >&2; exit 1; }
done

mkdir -p {pjlib,pjlib-util,pjnath,third_party,pjmedia,pjsip}/lib
binding=$source/pjsip-apps/src/swig/python
ask() { make -s --no-print-directory -C "$binding" -f helper.mak "$1"; }
mapfile -t flags < <(ask cflags)
mapfile -t linking < <(ask ldflags; ask libs | sed 's/^/-l/')
suffix=$("$python" -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
wrap() {
    make -s -C "$binding" PYTHON_EXE=true pjsua2_wrap.cpp
    g++ -I"$(dirname "$header")" "${flags[@]}" -O1 -c "$binding/pjsua2_wrap.cpp" -o "$binding/pjsua2_wrap.o"
}
say "compiling the libraries, and beside them the wrapper for Python"
wrap > "$work/log/wrapper.txt" 2>&1 &
wrapper=$!
trap 'kill "$wrapper" 2>/dev/null || true' EXIT
step libraries make -j"$jobs" lib
step wrapper-rest tail --pid="$wrapper" -f /dev/null
wait "$wrapper" || { say "the wrapper failed; $work/log/wrapper.txt has all of it" >&2; exit 1; }
trap - EXIT
# The message filter (cc_tts/ua/guard/message_filter.py) needs PJSIP's C functions, so no symbol is hidden.
step link g++ -shared "$binding/pjsua2_wrap.o" -o "$binding/_pjsua2$suffix" -Wl,-z,relro,-z,now "${linking[@]}"
cd "$binding"
strip --strip-debug "_pjsua2$suffix"

limits() { printf '%s\n' "$1" | cpp -P -include "$here/config_site.h" | tail -1; }
new=$target.new
rm -rf "$new"
mkdir -p "$new"
cp pjsua2.py "_pjsua2$suffix" "$new/"
"$python" - "$new/build.json" "$recipe" "$version" "$(cat "$work/source.txt")" \
    "$(limits PJSUA_MAX_CALLS)" "$(limits PJ_IOQUEUE_MAX_HANDLES)" "$(limits PJSIP_MAX_PKT_LEN)" <<'X'
import json, subprocess, sys
path, recipe, version, source, max_calls, max_handles, max_message = sys.argv[1:]
library = lambda name: subprocess.run(["pkg-config", "--modversion", name], capture_output=True, text=True).stdout.strip()
described = {
    "pjproject": version,
    "source": source,
    "recipe": recipe,
    "max_calls": int(max_calls),
    "max_ioqueue_handles": int(max_handles),
    "max_message_bytes": int(max_message),
    "openssl": library("openssl"),
    "libsrtp2": library("libsrtp2"),
    "opus": library("opus"),
}
with open(path, "w", encoding="utf-8") as file:
    file.write(json.dumps(described, indent=1) + "\n")
X
say "trying it"
cd "$new"
PYTHONPATH=$new "$python" -c '
import ctypes, os, pjsua2
assert os.path.samefile(os.path.dirname(pjsua2.__file__), os.environ["PYTHONPATH"]), pjsua2.__file__
library = ctypes.CDLL(pjsua2._pjsua2.__file__); library.pj_log_set_level(0)
endpoint = pjsua2.Endpoint(); endpoint.libCreate(); config = pjsua2.EpConfig(); config.logConfig.level = 0
config.uaConfig.maxCalls = 65536; endpoint.libInit(config)
for name in ("pjsip_endpt_register_module", "pjsip_endpt_respond_stateless", "pjsip_rx_data_get_info"): getattr(library, name)
print("pjsua2: pjproject", endpoint.libVersion().full, "with", library.pjsua_call_get_max_count(), "calls", flush=True)
endpoint.libDestroy()'
cd "$work"
rm -rf "$target" "$new/__pycache__"
mv "$new" "$target"
[ -n "${PJPROJECT_KEEP:-}" ] || rm -rf "$source"
say "done: $target"
