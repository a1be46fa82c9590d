#!/bin/sh
# Runs `make check-install` in a new root with Debian 13 (trixie), whose Python is 3.13.
# Needs root and mmdebstrap (Debian package `mmdebstrap`). Argument: the folder of the new root.
# Outside CI, because it downloads a system.
set -eu
root=$1
packages=python3,python3-venv,python3-dev,gcc,libc6-dev,make,ca-certificates
keys=/usr/share/keyrings/debian-archive-keyring.gpg

if [ ! -e "$root/.made" ]; then
    rm -rf "$root"
    mmdebstrap --variant=minbase --keyring="$keys" --include="$packages" \
        trixie "$root" "${DEBIAN_MIRROR:-http://deb.debian.org/debian}"
    touch "$root/.made"
fi
# The same name server, certificates and pip settings as outside.
cp -L /etc/resolv.conf "$root/etc/resolv.conf"
cp -L /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
[ ! -e /etc/pip.conf ] || cp /etc/pip.conf "$root/etc/pip.conf"

rm -rf "$root/hedgerow"
mkdir "$root/hedgerow"
tar -cf - --exclude=./.venv --exclude=./build --exclude=./dist --exclude=./.git \
    --exclude=__pycache__ --exclude='*.egg-info' . | tar -xf - -C "$root/hedgerow"
# The mounts are seen by these commands only and end with them.
exec unshare --mount sh -eu -c '
    mount --bind /proc "$1/proc"
    mount --bind /dev "$1/dev"
    exec chroot "$1" env HOME=/root PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin \
        make -C /hedgerow check-install PYTHON=python3
' sh "$root"
