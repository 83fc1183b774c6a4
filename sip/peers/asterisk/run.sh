#!/bin/bash
# run.sh FOLDER   Asterisk with these files and dialplans/asterisk/ in FOLDER, in the foreground: no root, nothing outside FOLDER is written.
#
# ASTERISK_TREE  what fetch.sh unpacked; default ${XDG_CACHE_HOME:-~/.cache}/cc-tts/asterisk
# ASTERISK       its address, default 127.0.0.10:5060; every loopback address exists on Linux
# TTS_1, TTS_2   the nodes, default 127.0.0.11:5060 and 127.0.0.12:5060
# TLS_KEYS       folder with asterisk.pem, asterisk.key, ca.pem: the nodes are spoken to with TLS and SRTP, TTS_1 and TTS_2 are their TLS ports
# TLS_PORT       that of Asterisk, default 5061
# DIRECT_MEDIA   yes: phone and node send RTP to each other, as Asterisk has it by default; calls to 603 only
# TTS_WS, TTS_AUDIOSOCKET  where the first node takes calls without SIP, default 127.0.0.11:9091 and 127.0.0.11:9092
# AMI_PORT RTP_FIRST RTP_LAST   default 5038, 20000, 20998
# Options after FOLDER go to Asterisk. Another run.sh of the same FOLDER with -rx 'COMMAND' asks the one that runs.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[ $# -ge 1 ] || { sed -n '2,13s/^# \{0,1\}//p' "$0" >&2; exit 2; }
folder=$(readlink -m "$1")
shift
tree=$(readlink -m "${ASTERISK_TREE:-${XDG_CACHE_HOME:-$HOME/.cache}/cc-tts/asterisk}")
[ -x "$tree/usr/sbin/asterisk" ] || { echo "no Asterisk in $tree: run $here/fetch.sh" >&2; exit 1; }
case "$folder$tree" in *[\|\&\\]*) echo "no | & or \\ in the names of folders, please" >&2; exit 2 ;; esac
loader=$(find "$tree" -path '*/lib/*-linux-gnu*/ld-linux*.so.*' -print -quit)
modules=$(dirname "$(find "$tree/usr/lib" -name chan_pjsip.so -print -quit)")
asterisk=("$loader" --library-path "$(dirname "$loader")" "$tree/usr/sbin/asterisk" -C "$folder/etc/asterisk.conf")
if [ "${1:-}" = -rx ]; then exec "${asterisk[@]}" "$@"; fi

pbx=${ASTERISK:-127.0.0.10:5060}
first=${TTS_1:-127.0.0.11:5060}
second=${TTS_2:-127.0.0.12:5060}
mkdir -p "$folder"/{etc/cc-tts,lib/keys,lib/moh,spool/recordings,spool/monitor,run,log,cache}
cp "$here"/*.conf "$folder/etc/"
cp "$here"/../../../dialplans/asterisk/*.conf "$folder/etc/cc-tts/"
# files that modules insist on
for name in acl ccss chan_websocket cel confbridge features geolocation pjproject queuerules res_parking stasis udptl; do
    : > "$folder/etc/$name.conf"
done
printf '[general]\nenable=no\n' > "$folder/etc/cdr.conf"
printf '#include cc-tts/websocket_client.conf\n' > "$folder/etc/websocket_client.conf"
if [ -n "${TLS_KEYS:-}" ]; then
    mkdir -p "$folder/etc/keys"
    cp "$TLS_KEYS"/{asterisk.pem,asterisk.key,ca.pem} "$folder/etc/keys/"
    sed -i 's|^#include cc-tts/pjsip.conf|#include cc-tts/pjsip-tls.conf|' "$folder/etc/pjsip.conf"
fi
if [ "${DIRECT_MEDIA:-no}" = yes ]; then
    sed -i 's|^direct_media=no|direct_media=yes|' "$folder/etc/pjsip.conf" "$folder/etc/cc-tts/pjsip.conf"
    echo load=bridge_native_rtp.so >> "$folder/etc/modules.conf"
fi
head -c 160000 /dev/zero > "$folder/lib/moh/silence.sln"  # music on hold: ten seconds of nothing
sed -i \
    -e "s|10\.0\.0\.5:9091|${TTS_WS:-127.0.0.11:9091}|g" -e "s|10\.0\.0\.5:9092|${TTS_AUDIOSOCKET:-127.0.0.11:9092}|g" \
    -e "s|10\.0\.0\.5:50[67][01]|$first|g" -e "s|10\.0\.0\.5\b|${first%:*}|g" \
    -e "s|10\.0\.0\.6:50[67][01]|$second|g" -e "s|10\.0\.0\.6\b|${second%:*}|g" \
    -e "s|10\.0\.0\.2:5060|$pbx|g" -e "s|10\.0\.0\.2:5061|${pbx%:*}:${TLS_PORT:-5061}|g" -e "s|10\.0\.0\.2\b|${pbx%:*}|g" \
    -e "s|^port=5038|port=${AMI_PORT:-5038}|" \
    -e "s|^rtpstart=.*|rtpstart=${RTP_FIRST:-20000}|" -e "s|^rtpend=.*|rtpend=${RTP_LAST:-20998}|" \
    -e "s|/etc/asterisk|$folder/etc|" -e "s|/usr/lib/asterisk/modules|$modules|" -e "s|/usr/share/asterisk|$tree/usr/share/asterisk|" \
    -e "s|/var/lib/asterisk|$folder/lib|g" -e "s|/var/spool/asterisk|$folder/spool|g" -e "s|/var/run/asterisk|$folder/run|" \
    -e "s|/var/log/asterisk|$folder/log|" -e "s|/var/cache/asterisk|$folder/cache|" \
    "$folder"/etc/*.conf "$folder"/etc/cc-tts/*.conf
exec "${asterisk[@]}" -f -n "$@"
