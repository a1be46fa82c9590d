#!/bin/sh
# Starts systemd as process 1, on a copy of this machine's files that is kept in memory. Runs in
# namespaces of its own (machine.py):
#   boot.sh FOLDER PYTHON PACKAGES TREE
# FOLDER is an empty folder. The copy has the Python installation, its packages and the sources under
# /opt, where the unit may read them: it hides /root, /home and /tmp.
set -eu
folder=$1 python=$2 packages=$3 tree=$4

mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs "$folder"
root=$folder/root
mkdir "$folder/upper" "$folder/work" "$root"
mount -t overlay -o "lowerdir=/,upperdir=$folder/upper,workdir=$folder/work" overlay "$root"
for name in python packages tree; do
    mkdir -p "$root/opt/machine/$name"
done
mount --bind "$python" "$root/opt/machine/python"
mount --bind "$packages" "$root/opt/machine/packages"
mount --bind "$tree" "$root/opt/machine/tree"

mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
mkdir "$root/dev/shm" "$root/dev/pts"
mount -t devpts -o newinstance,ptmxmode=0666 devpts "$root/dev/pts"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
for name in null zero full random urandom tty; do
    touch "$root/dev/$name"
    mount --bind "/dev/$name" "$root/dev/$name"
done

# Only these units exist. The units of this machine would start its other programs.
units=$root/run/units
mkdir "$units"
for name in sysinit basic sockets network-online multi-user shutdown; do
    printf '[Unit]\nDescription=%s\nDefaultDependencies=no\n' "$name" >"$units/$name.target"
done
printf '[Unit]\nDescription=machine\nRequires=basic.target\n' >"$units/default.target"

# `container` keeps systemd from changing settings of the kernel.
exec chroot "$root" env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    SYSTEMD_UNIT_PATH=/run/units \
    /lib/systemd/systemd --system --unit=default.target --log-target=console --log-level=notice \
    --show-status=no --default-standard-output=null
