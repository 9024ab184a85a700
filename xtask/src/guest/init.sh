#!/bin/busybox sh
# First program of a guest. Its root is the machine's own file system; writes to it stay in memory.
export PATH=/bin
/bin/busybox --install -s /bin
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sys /sys
for module in /modules/*.ko; do insmod "$module"; done
share="-t 9p -o trans=virtio,version=9p2000.L,msize=512000"
mount $share,ro,cache=loose machine /ro
mount -t tmpfs -o size=70%,mode=755 memory /rw
mkdir /rw/upper /rw/work
mount -t overlay -o lowerdir=/ro,upperdir=/rw/upper,workdir=/rw/work root /root
mkdir -p /root/.guest /root/lib/modules
mount $share,cache=none job /root/.guest
mount -t tmpfs modules /root/lib/modules
mkdir "/root/lib/modules/$(uname -r)"
mount $share,ro,cache=loose modules "/root/lib/modules/$(uname -r)"
for dir in dev proc sys; do mount --move /$dir /root/$dir; done
exec switch_root /root /bin/sh /.guest/start
