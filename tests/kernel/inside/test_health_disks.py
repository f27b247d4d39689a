"""Volumes told to be unwell for what their disks do: I/O that fails, a thin pool that fills."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

from localvolume.host.lvm.commands import Lvm
from tests.cluster.support_health import QUICK, says, times
from tests.host.support_devices import command, mounted
from tests.suite.units import MIB

from .support_lvm_dynamic import LvmLab, lab

__all__ = ["lab"]

DISK = "/dev/ubda"


@contextlib.contextmanager
def flaky_disk() -> Iterator[str]:
    """A device over a disk of the guest's, with an ext4; `become` breaks and mends it."""
    command("dmsetup", "create", "flaky", "--table", table("linear"))
    try:
        minor = command("dmsetup", "info", "--columns", "--noheadings", "-o", "minor", "flaky")
        node = f"/dev/dm-{minor.strip()}"  # there is no udev to make another
        command("mkfs.ext4", "-q", "-F", "-E", "nodiscard", node)
        yield node
    finally:
        subprocess.run(["dmsetup", "remove", "--force", "flaky"], capture_output=True, timeout=60)
        command("wipefs", "--quiet", "--all", DISK)


def table(kind: str) -> str:
    sectors = command("blockdev", "--getsz", DISK).strip()
    # flakey: up for 0 seconds and down for 3600, in which all I/O fails.
    return f"0 {sectors} {kind} {DISK} 0" + (" 0 3600" if kind == "flakey" else "")


def become(kind: str) -> None:
    command("dmsetup", "suspend", "--noflush", "--nolockfs", "flaky")
    command("dmsetup", "load", "flaky", "--table", table(kind))
    command("dmsetup", "resume", "flaky")


def use(where: Path) -> None:
    """Make files and see them onto the disk. The journal fails first; who comes next learns of it.

    Data that cannot be written is counted by no filesystem: only its writer is told.
    """
    for number in range(3):
        with contextlib.suppress(OSError), (where / f"lost-{number}").open("wb") as file:
            os.fsync(file.fileno())


def test_a_disk_whose_io_fails(lab: LvmLab) -> None:
    with flaky_disk() as device:
        lab.settings = {"storageClassMap": {}}
        fs = lab.add_class("fs")
        lab.class_names.add(fs.name)
        where = fs.path("one")
        where.mkdir()
        with mounted(device, where):
            # It waits for the repair.
            lab.start(wait=False, patience=QUICK, vanished_grace=600)
            volume = lab.until(lambda: lab.volumes_at(fs, "one"), bool)[0]
            name = volume["metadata"]["name"]
            (where / "precious").write_text("data")
            command("sync", "-f", where)
            become("flakey")
            use(where)
            text = says(lab, name, "counts errors")
            assert text.startswith(("ReadOnly: ", "IOErrors: ")), text
            lab.event(name, "VolumeUnhealthy")
            become("linear")
            command("umount", where)
            done = subprocess.run(["e2fsck", "-fy", device], capture_output=True, timeout=60)
            assert done.returncode in (0, 1), done
            command("mount", device, where)
            says(lab, name, "")
            lab.event(name, "VolumeHealthy")
            assert (where / "precious").read_text() == "data"
            found = lab.volume(name)
            assert found
            assert found["metadata"]["uid"] == volume["metadata"]["uid"]
            lab.stop()


def test_a_thin_pool_that_fills(lab: LvmLab, volume_group: str, lvm: Lvm) -> None:
    lvm.create_pool(volume_group, "pool", 64 * MIB)
    lab.group(volume_group, thinPool="pool")
    cls = lab.storage_class()
    lab.start(patience=QUICK)
    claim = lab.claim(cls, size="64Mi", volumeMode="Block")
    volume = lab.made(claim)
    name = volume["metadata"]["name"]

    def write(megabytes: int) -> None:
        words = ["dd", "if=/dev/zero", f"of={lab.path_of(volume)}", "bs=1M", "oflag=direct"]
        command(*words, f"count={megabytes}")
        lab.touch()

    write(55)
    says(lab, name, "PoolFilling: the data of the thin pool vg0/pool is more than 80% full")
    lab.event(claim["metadata"]["name"], "VolumeUnhealthy", "PoolFilling")
    write(64)
    says(lab, name, "PoolFull: the data of the thin pool vg0/pool is full")
    lab.event(name, "VolumeUnhealthy", "PoolFull")
    command("lvextend", "-qq", "--size", "+192m", f"{volume_group}/pool")
    lab.touch()
    says(lab, name, "")
    lab.event(name, "VolumeHealthy")
    assert times(lab, name) == 2
    assert lab.lv(volume)
    lab.stop()
