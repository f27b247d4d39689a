#!/bin/bash
# Process 1 of the guest kernel (support_guest.py boots it). The root is the machine's own, through
# hostfs and read-only; what may be written is on tmpfs, and in $RESULTS and $MEASURED, directories
# of the machine. Runs the command in $RESULTS/command, one argument a line, leaves its exit code in
# $RESULTS/code and switches the guest off.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export HOME=/run/home LANG=C.UTF-8 TERM=dumb TMPDIR=/run/tmp
export PYTHONDONTWRITEBYTECODE=1 LOCALVOLUME_GUEST=1
# A program that asks a question would wait for ever.
exec </dev/null

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
ln -sfn /proc/self/fd /dev/fd
# Each command of LVM looks at all that is in /dev, and system calls are dear here: 500 terminals go.
rm -f /dev/pty[a-z]* /dev/tty[a-zA-Z]*
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs run /run
mkdir -p /run/home /run/tmp /run/results /run/lock/lvm /run/lvm
mount -t hostfs -o "$RESULTS" results /run/results
# Where `make coverage` has its data, at the same place as on the machine.
[ -z "$MEASURED" ] || mount -t hostfs -o "$MEASURED" measured "$MEASURED"
# As systemd does on a machine: the agent offers nothing where it could not hear of a mount.
mount --make-rshared /
printf 'the guest runs Linux %s after %s s\n' "$(uname -r)" "$(cut -d' ' -f1 /proc/uptime)"

# The modules are not where modprobe looks; what the kernel asks for itself comes from there too.
printf '#!/bin/sh\nexec modprobe -d /run/modules "$@"\n' >/run/modprobe
chmod +x /run/modprobe
mkdir -p /run/modules/lib
ln -s "$MODULES" /run/modules/lib/modules
echo /run/modprobe >/proc/sys/kernel/modprobe
ip link set lo up

# No udev, no daemons, nothing written to the root; of the disks only those that tests give LVM.
/run/modprobe -a dm-mod dm-thin-pool dm-snapshot dm-flakey dm-raid
export LVM_SYSTEM_DIR=/run/lvm-etc LVM_SUPPRESS_FD_WARNINGS=1
mkdir /run/lvm-etc
cat >/run/lvm-etc/lvm.conf <<'CONF'
devices {
  obtain_device_list_from_udev=0 external_device_info_source="none" use_devicesfile=0
  scan=["/dev"] hints="none"
}
activation { udev_sync=0 udev_rules=0 monitoring=0 verify_udev_operations=0 }
global { use_lvmpolld=0 locking_dir="/run/lock/lvm" event_activation=0 }
backup { backup=0 archive=0 }
CONF

mapfile -t command </run/results/command
cd "$REPOSITORY" && timeout --kill-after=10 3000 "${command[@]}"
code=$?
printf 'the command ended with %d after %s s\n' "$code" "$(cut -d' ' -f1 /proc/uptime)"
echo "$code" >/run/results/code
sync
echo o >/proc/sysrq-trigger
sleep 60
