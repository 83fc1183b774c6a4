#!/bin/bash
# try.sh PACKAGE   Install a package of build.sh below a folder, have it greet a call, upgrade, remove and purge it. Loopback only.
#
# Needs root, as dpkg does. Its dependencies have to be on this machine; services of the machine are not touched.
set -euo pipefail
package=$(readlink -f "$1")
root=$(mktemp -d)
serving=""
finish() {
    [ -z "$serving" ] || kill "$serving" 2>/dev/null || true
    rm -rf "$root"
}
trap finish EXIT
fail() { echo "deb: $*" >&2; exit 1; }
mkdir -p "$root"/var/lib/dpkg/{info,updates,triggers} "$root/etc"
touch "$root/var/lib/dpkg/status"
dpkg_here() { dpkg --root="$root" --force-script-chrootless --force-depends --force-unsafe-io --log="$root/dpkg.log" "$@" 2>"$root/dpkg.errors" >/dev/null || { cat "$root/dpkg.errors" >&2; exit 1; }; }
cc_tts() { "$root/opt/cc-tts/bin/python" -m cc_tts.cli "$@"; }
config=$root/etc/cc-tts/cc_tts.toml

dpkg_here --install "$package"
grep -q '^cc-tts:' "$root/etc/passwd" || fail "it makes no user"
grep -qx Group=cc-tts "$root/usr/lib/systemd/system/cc-tts.service" || fail "its service may not read its configuration"
[ "$(stat -c %a "$config")" = 640 ] || fail "the mode of its configuration is $(stat -c %a "$config")"
[[ $(head -1 "$root/opt/cc-tts/bin/cc-tts") == "#!/opt/cc-tts/bin/python"* ]] || fail "its command begins with $(head -1 "$root/opt/cc-tts/bin/cc-tts")"
! grep -rqI -- /build/deb/ "$root/opt/cc-tts/bin" "$root/opt/cc-tts/pyvenv.cfg" || fail "it names the folder that it was made in"
echo "deb: $(cc_tts --version), $(du -sm "$root/opt" | cut -f1) MiB"

settings=(--config "$config" --set sip.host=127.0.0.1 --set "sip.port=${SIP_PORT:-25462}" --set "http.port=${HTTP_PORT:-28482}" --set 'routes.*.then=hangup' --set 'routes.*.greeting=Installed.')
cc_tts check-config "${settings[@]}" > /dev/null
cc_tts say 'Installed.' -o "$root/said.wav"
[ "$(stat -c %s "$root/said.wav")" -gt 8000 ] || fail "say wrote $(stat -c %s "$root/said.wav") bytes"
cc_tts serve "${settings[@]}" > "$root/serve.log" 2>&1 &
serving=$!
for _ in $(seq 240); do
    ! cc_tts health --ready "${settings[@]}" >/dev/null 2>&1 || break
    kill -0 "$serving" 2>/dev/null || { tail -20 "$root/serve.log" >&2; fail "the server ended"; }
    sleep 0.25
done
cc_tts call "sip:hello@127.0.0.1:${SIP_PORT:-25462}" --duration 30 --quiet | tee "$root/call.txt"
grep -q '^ending  *completed, they hung up, 200' "$root/call.txt"
grep -q '^200 to first speech  *[0-9.]* ms' "$root/call.txt"
cc_tts drain "${settings[@]}"
wait "$serving" || fail "cc-tts serve ended with $?"
serving=""

echo '# mine' >> "$config"
chmod 750 "$root/etc/cc-tts"
DPKG_ROOT=$root DPKG_MAINTSCRIPT_PACKAGE=cc-tts "$root/var/lib/dpkg/info/cc-tts.postinst" configure 0.0.1 # as an upgrade does
[ "$(tail -1 "$config")" = "# mine" ] || fail "an upgrade changed the configuration"
[ "$(stat -c %a "$root/etc/cc-tts")" = 750 ] || fail "an upgrade opened the folder of the configuration"
dpkg_here --purge cc-tts
left=$(find "$root" ! -type d \( -path '*/opt/*' -o -path '*/usr/*' \) | head -3)
[ -z "$left" ] || fail "a purge left $left"
[ "$(tail -1 "$config")" = "# mine" ] || fail "a purge took the configuration"
echo "deb: installed, greeted a call, upgraded, removed; the configuration stayed"
