"""How full a prepared volume is: told while a claim has it, as df(1) says it, or not at all."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_endpoints import samples
from tests.cluster.support_health import QUICK, looked
from tests.host.support_devices import LoopDevice, command, unmount
from tests.suite.units import MIB

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

METRICS = ("used_bytes", "available_bytes", "used_inodes", "available_inodes")


def told(lab: Lab, metric: str) -> dict[str, float]:
    """The values by the volumes' names."""
    found = samples(lab.port, f"localvolume_prepared_{metric}")
    return {labels["persistentvolume"]: value for labels, value in found}


def by_df(path: Path) -> dict[str, float]:
    found = os.statvfs(path)
    return {
        "used_bytes": (found.f_blocks - found.f_bfree) * found.f_frsize,
        "available_bytes": found.f_bavail * found.f_frsize,
        "used_inodes": found.f_files - found.f_ffree,
        "available_inodes": found.f_favail,
    }


def is_told(lab: Lab, name: str, path: Path) -> None:
    """Wait until it says the same as df(1) there."""

    def found() -> dict[str, float | None]:
        return {metric: told(lab, metric).get(name) for metric in METRICS}

    lab.until(found, lambda values: values == by_df(path))


def test_how_full_mounted_volumes_are(lab: Lab) -> None:
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.mount(lab.disk(), fs.path("free"))
    lab.start(patience=QUICK)
    name = lab.published(fs, "one")["metadata"]["name"]
    unclaimed = lab.published(fs, "free")["metadata"]["name"]
    looked(lab)
    assert told(lab, "used_bytes") == {}, "nobody has one"

    lab.bound(lab.published(fs, "one"))
    is_told(lab, name, where)
    # A look that takes too long tells nothing of it.
    before = lab.until(lambda: told(lab, "used_bytes").get(name, 0), bool)
    (where / "data").write_bytes(b"x" * MIB)
    lab.until(lambda: told(lab, "used_bytes").get(name, 0), lambda now: now >= before + MIB)
    is_told(lab, name, where)
    assert unclaimed not in told(lab, "used_bytes")

    unmount(where)
    lab.until(lambda: told(lab, "used_bytes"), lambda found: found == {})
    assert all(told(lab, metric) == {} for metric in METRICS)


def test_a_device_tells_once_its_filesystem_is_mounted(lab: Lab) -> None:
    """As the kubelet mounts it, somewhere; a device for pods that want it raw never tells."""
    formatted, raw = lab.add_class("formatted"), lab.add_class("raw", volumeMode="Block")
    device, other = lab.raw_disk(), lab.raw_disk()
    lab.link(device, formatted.path("one"))
    lab.link(other, raw.path("two"))
    lab.start(patience=QUICK)
    volume = lab.published(formatted, "one")
    lab.bound(volume)
    lab.bound(lab.published(raw, "two"))
    looked(lab)
    assert told(lab, "used_bytes") == {}
    with (
        _formatted(device, lab.directory / "globalmount") as point,
        _formatted(other, lab.directory / "in-a-pod"),
    ):
        is_told(lab, volume["metadata"]["name"], point)
        looked(lab)
        # A look that takes too long tells nothing of it.
        them = lab.until(lambda: told(lab, "used_bytes"), bool)
        assert list(them) == [volume["metadata"]["name"]]


@contextlib.contextmanager
def _formatted(device: LoopDevice, point: Path) -> Iterator[Path]:
    """Mounted there, with a filesystem made anew."""
    point.mkdir()
    command("mkfs.ext4", "-q", device.path)
    command("mount", device.path, point)
    try:
        yield point
    finally:
        unmount(point)
