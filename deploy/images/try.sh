#!/bin/bash
# try.sh IMAGE   Serve from an image that build.sh made, by its own command as its own user, and let one call be greeted.
# Loopback only.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")/../.."
image=$1
. deploy/images/store.sh

sip_port=${SIP_PORT:-25460}
http_port=${HTTP_PORT:-28480}
start_limit_s=60
log=$image_store/serve.log

# One for the server and one for everything else: with chroot isolation the mounts of a container are made and removed by each run.
server=$(store from --pull-never "$image")
client=$(store from --pull-never "$image")
serving=""
finish() {
    [ -z "$serving" ] || kill "$serving" 2>/dev/null || true
    [ -z "$serving" ] || wait "$serving" || true
    store rm "$server" "$client" >/dev/null
}
trap finish EXIT
run() { store run --network host "$client" -- "$@"; }

echo "image: user $(run id -u), $(run cc-tts --version)"
healthcheck=$(store inspect --format '{{.Docker.Config.Healthcheck.Test}}' "$image")
[ "$healthcheck" = '[CMD cc-tts health]' ] || { echo "image: its health check is $healthcheck" >&2; exit 1; }
# The command of the image, as `docker run` has it, on ports of this script.
command=$(store inspect --format '{{range .Docker.Config.Cmd}}{{.}} {{end}}' "$image")
settings=(--set sip.host=127.0.0.1 --set "sip.port=$sip_port" --set "http.port=$http_port" --set 'routes.*.then=hangup')
# shellcheck disable=SC2086
store run --network host "$server" -- cc-tts $command "${settings[@]}" > "$log" 2>&1 &
serving=$!
begun=$SECONDS
until run python3 -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$http_port/readyz', timeout=4)" 2>/dev/null; do
    if ! kill -0 "$serving" 2>/dev/null || [ $((SECONDS - begun)) -gt "$start_limit_s" ]; then
        tail -20 "$log" >&2
        exit 1
    fi
    sleep 1
done
run cc-tts health --set "http.port=$http_port"
run cc-tts call "sip:hello@127.0.0.1:$sip_port" --duration 30 --quiet | tee "$image_store/call.txt"
grep -q '^ending  *completed, they hung up, 200' "$image_store/call.txt"
grep -q '^200 to first speech  *[0-9.]* ms' "$image_store/call.txt"
run cc-tts drain "${settings[@]:2:4}"
status=0
wait "$serving" || status=$?
[ "$status" -eq 0 ] || { echo "image: cc-tts serve ended with $status" >&2; tail -5 "$log" >&2; exit 1; }
serving=""
echo "image: $image answered a call, was heard, and drained"
