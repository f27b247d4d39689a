"""Filesystems and disks that fail, by the kernel's own doing: loop devices of the tests only."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.host.support_devices import LoopDevice, command
from tests.host.support_mounts import MNT_DETACH, mount, umount
from tests.suite.until import until


def count_an_error(device: LoopDevice | str) -> None:
    """Have the kernel find an error in the ext4 that is mounted from the loop device."""
    name = os.path.basename(_node(device))
    assert name.startswith("loop")
    known = Path(f"/sys/fs/ext4/{name}")
    count = known / "errors_count"
    before = count.read_text()
    (known / "trigger_fs_error").write_text("a test's\n")
    # It is counted by a worker of the kernel's.
    until(count.read_text, lambda now: now != before)


def _node(device: LoopDevice | str) -> str:
    return device if isinstance(device, str) else device.path


def repair(device: LoopDevice) -> None:
    """What an administrator does about a count of errors, with the ext4 unmounted."""
    done = subprocess.run(["e2fsck", "-fy", device.path], capture_output=True, timeout=60)
    assert done.returncode in (0, 1), done


def shut_down(xfs: Path) -> None:
    """Have the xfs mounted there shut down as it does when its log cannot be written."""
    command("xfs_io", "-x", "-c", "shutdown", xfs)


def starve(btrfs: Path, device: LoopDevice) -> None:
    """Take most of the disk away from under a btrfs, which then cannot commit."""
    command("sync", "-f", btrfs)
    size = os.path.getsize(device.backing)
    os.truncate(device.backing, 1 << 20)
    command("losetup", "--set-capacity", device.path)
    with contextlib.suppress(OSError):
        (btrfs / "lost").write_bytes(os.urandom(4 << 20))
    subprocess.run(["sync", "-f", btrfs], capture_output=True, timeout=60)
    os.truncate(device.backing, size)
    command("losetup", "--set-capacity", device.path)


@contextlib.contextmanager
def mounted_elsewhere(device: LoopDevice | str, where: Path) -> Iterator[None]:
    """Mount the device in a mount namespace that this process does not see, as kubelet's may be."""
    script = 'mount --make-rprivate / && mount "$0" "$1" && echo up && read -r _'
    argv = ["unshare", "--mount", "sh", "-c", script, _node(device), str(where)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"up\n"
            yield
        finally:
            process.communicate(b"\n", timeout=60)


def waits_for_a_disk() -> bool:
    """Whether a thread of ours is in a call that nothing interrupts, and stays there.

    Each read of a file from its disk is such a call, for a moment.
    """
    before = _uninterrupted()
    time.sleep(0.05)
    return bool(before & _uninterrupted())


def _uninterrupted() -> set[tuple[str, str]]:
    """The threads of ours in such a call, and how often each has begun to wait so far.

    By the lines of proc_pid_status(5).
    """
    found = set()
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            lines = (task / "status").read_text().splitlines()
            told = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
            if told["State"].startswith("D"):
                found.add((task.name, told["voluntary_ctxt_switches"]))
    return found


@contextlib.contextmanager
def dead_filesystem(where: Path) -> Iterator[None]:
    """Mount a filesystem whose server never answers: FUSE, with nobody who reads the requests."""
    try:
        server = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        pytest.skip(f"a filesystem that hangs needs /dev/fuse: {error.strerror}")
    try:
        where.mkdir(exist_ok=True)
        options = f"fd={server},rootmode=40000,user_id=0,group_id=0"
        mount("dead", str(where), "fuse", data=options)
        yield
    finally:
        # Whoever waits for it gets an error now; only then can its path be walked again.
        os.close(server)
        with contextlib.suppress(OSError):
            umount(str(where), MNT_DETACH)
