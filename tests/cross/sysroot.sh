#!/bin/sh
# Debian's packages of another architecture, unpacked into a directory: a root to compile and link against and, with an
# emulator, to run programs in. The system itself stays as it is; root's rights are not needed.
#
#     sysroot.sh ARCHITECTURE DIRECTORY PACKAGE…
set -eu
architecture=$1
directory=$2
shift 2
if [ -f "$directory/.packages" ] && [ "$(cat "$directory/.packages")" = "$architecture $*" ]; then
    exit 0
fi
rm -rf "$directory"
mkdir -p "$directory/.apt/lists/partial" "$directory/.apt/archives/partial"
directory=$(cd "$directory" && pwd)
: >"$directory/.apt/status"

# apt with a state of its own: it knows of no installed package, and of this architecture alone.
apt() {
    apt-get -q -y -o APT::Architecture="$architecture" -o APT::Architectures="$architecture" -o APT::Install-Recommends=false \
        -o Dir::State="$directory/.apt" -o Dir::State::status="$directory/.apt/status" -o Dir::Cache="$directory/.apt" \
        -o Debug::NoLocking=true -o APT::Sandbox::User="" "$@"
}
apt update || true # without one of several lists, what the others have will do; what is missing then, the next line says
apt --download-only install "$@"
for package in "$directory"/.apt/archives/*.deb; do
    dpkg-deb -x "$package" "$directory"
done
# An absolute link would lead out of here, into the system's own root.
find "$directory" -type l -lname '/*' | while read -r link; do
    ln -sfn "$directory$(readlink "$link")" "$link"
done
rm -rf "$directory/.apt"
echo "$architecture $*" >"$directory/.packages"
