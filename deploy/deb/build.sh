#!/bin/bash
# build.sh WHEEL FOLDER [PJSUA2_WHEEL]   A package of the wheel for this Debian, into FOLDER.
#
# Below /opt/cc-tts it has a virtual environment of the system's Python with everything of PyPI that the image has, so that an
# installation needs Debian's packages alone. PJSUA2_WHEEL is what deploy/pjsua2_wheel.py makes; without it the package has
# PyPI's pjsua2, for four calls. DEBFULLNAME and DEBEMAIL are its maintainer. Needs dpkg-dev, python3-venv and PyPI, no root.
set -euo pipefail
umask 022
wheel=$(readlink -f "$1") folder=$(readlink -f "$2") pjsua2=${3:-}
[ -z "$pjsua2" ] || pjsua2=$(readlink -f "$pjsua2")
cd "$(dirname "$(readlink -f "$0")")/../.."
: "${SOURCE_DATE_EPOCH:=$(date +%s)}"
export SOURCE_DATE_EPOCH
work=$PWD/build/deb
staged=$work/root
opt=$staged/opt/cc-tts
version=$(basename "$wheel" | cut -d- -f2)
rm -rf "$work"
mkdir -p "$staged/DEBIAN"

/usr/bin/python3 -m venv "$opt"
pip() { "$opt/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"; }
locks=()
for name in default.lock vad.txt remote.txt kokoro.txt otel.txt; do locks+=(-r "requirements/$name"); done
pip install --no-compile --require-hashes "${locks[@]}"
[ -z "$pjsua2" ] || ! "$opt/bin/python" -c 'import pjsua2' 2>/dev/null || pip uninstall --yes pjsua2-python
pip install --no-compile --no-deps "$wheel" ${pjsua2:+"$pjsua2"}
"$opt/bin/python" -c 'from cc_tts.ua import pjsua2_build; pjsua2_build.chosen({})'

# Nothing in it names the folder that it was made in.
find "$opt" -name direct_url.json -delete
grep -rlI -- "$staged" "$opt/bin" "$opt/pyvenv.cfg" | xargs sed -i "s|$staged||g"
# The service cannot write here, so it is compiled now; a date in the compiled files is that of their source.
find "$opt" -name __pycache__ -prune -exec rm -rf {} +
find "$opt" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
"$opt/bin/python" -m compileall -q -j 0 -s "$staged" --invalidation-mode timestamp "$opt/lib" ${pjsua2:+"$opt/pjsua2-server"}

install -d "$staged"/usr/{bin,lib/systemd/system,lib/sysusers.d,share/bash-completion/completions,share/doc/cc-tts}
ln -s /opt/cc-tts/bin/cc-tts "$staged/usr/bin/cc-tts"
# A user cc-tts that was there may have another group than that of the configuration.
sed 's/^DynamicUser=.*/Group=cc-tts/; /^# A user of that name/d' deploy/systemd/cc-tts.service > "$staged/usr/lib/systemd/system/cc-tts.service"
echo 'u cc-tts - "speech server" /nonexistent' > "$staged/usr/lib/sysusers.d/cc-tts.conf"
"$opt/bin/python" -m cc_tts.cli completion bash > "$staged/usr/share/bash-completion/completions/cc-tts"
cp LICENSE "$staged/usr/share/doc/cc-tts/copyright"
env -u CC_TTS_PJSUA2 "$opt/bin/python" deploy/bill_of_materials.py cc-tts "$version" > "$staged/usr/share/doc/cc-tts/cc-tts.cdx.json"

# The libraries that the user agent is linked with, by the names and versions of this Debian.
mkdir -p "$work/shlibs/debian"
printf 'Source: cc-tts\n\nPackage: cc-tts\nArchitecture: any\n' > "$work/shlibs/debian/control"
libraries="libc6, libstdc++6"
if [ -n "$pjsua2" ]; then
    libraries=$(cd "$work/shlibs" && dpkg-shlibdeps -O "$opt"/pjsua2-server/*.so | sed 's/^shlibs:Depends=//')
else
    echo "deb: with PyPI's pjsua2, for four calls"
fi
minor=$("$opt/bin/python" -c 'import sys; print(sys.version_info[1])')
cat > "$staged/DEBIAN/control" <<X
Package: cc-tts
Version: $(echo "$version" | sed -E 's/(a|b|rc|\.dev)([0-9]+)$/~\1\2/')
Architecture: $(dpkg --print-architecture)
Maintainer: ${DEBFULLNAME:-cc-tts} <${DEBEMAIL:-root@localhost}>
Installed-Size: $(du -sk --apparent-size "$staged" | cut -f1)
Depends: python3 (>= 3.$minor), python3 (<< 3.$((minor + 1))~), $libraries, zlib1g, ca-certificates, init-system-helpers, systemd | systemd-standalone-sysusers
Section: comm
Priority: optional
Description: SIP speech server for call centers
 It speaks text into calls, as REST, a dialplan or a language model says it,
 and listens to keys and speech meanwhile. Python packages are below /opt/cc-tts.
X
install -m 755 deploy/deb/{postinst,prerm,postrm} "$staged/DEBIAN/"
dpkg-deb --root-owner-group -Zzstd -z6 --build "$staged" "$folder" >/dev/null
rm -rf "$work"
