"""D8: an image's loop device is detached, and its number goes to somebody else's file: the link
that the PersistentVolume names leads there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.block.blockdev import InUse
from localvolume.host.loop.attach import Loop, StillInUse, detach, look
from tests.attacks.support_links import behind
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool
from tests.cluster.support_health import QUICK, says, told
from tests.cluster.test_dynamic_images import _cleared as cleared
from tests.host.support_devices import command, mounted
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "losetup", "controlplane")


@pytest.fixture
def pool(dynamic: DynamicLab) -> Iterator[MadePool]:
    made = dynamic.pool("vault", backend="image", size=128 * MIB)
    with cleared(dynamic, made):
        yield made


def let_go(loop: Loop) -> None:
    """Detach this one device alone, once nobody looks at it."""

    def gone() -> bool:
        with contextlib.suppress(StillInUse, InUse):
            detach(loop)
        found = look(loop.node)
        return found is None or found.behind != loop.behind

    until(gone, bool)


@contextlib.contextmanager
def given_to_another(node: str, file: Path) -> Iterator[None]:
    """Put another tenant's file under the loop device of that number.

    Where somebody else of this machine was quicker, it is another's already.
    """
    file.write_bytes(b"another tenant's".ljust(MIB))
    with contextlib.suppress(AssertionError):
        command("losetup", node, file)
    try:
        yield
    finally:
        found, there = look(node), file.stat()
        if found is not None and found.behind == (there.st_dev, there.st_ino):
            let_go(found)


def said_of(dynamic: DynamicLab, claim: Claim, name: str, text: str) -> None:
    """On the PersistentVolume, in the Events of both, and in the metrics."""
    says(dynamic, name, "DeviceGone: ")
    says(dynamic, name, text)
    for about in (name, claim["metadata"]["name"]):
        dynamic.event(about, "VolumeUnhealthy", text)
    (labels,) = dynamic.until(lambda: told(dynamic), bool)
    assert (labels["persistentvolume"], labels["reason"]) == (name, "DeviceGone")


def test_a_link_that_leads_to_anothers_device_is_led_to_its_own(
    dynamic: DynamicLab, pool: MadePool, tmp_path: Path
) -> None:
    cls = dynamic.storage_class()
    dynamic.start(patience=QUICK)
    claim = dynamic.claim(cls, size="16Mi", volumeMode="Block")
    volume = dynamic.made(claim)
    name, path = volume["metadata"]["name"], dynamic.path_of(volume)
    path.write_bytes(b"own")
    says(dynamic, name, "")
    loop = look(os.readlink(path))
    assert loop is not None
    let_go(loop)
    with given_to_another(loop.node, tmp_path / "another"):
        dynamic.settle()
        dynamic.until(lambda: behind(path), lambda found: found == loop.behind)
        text = f"these led to something that is not theirs, and are attached anew: {name}"
        dynamic.until(lambda: dynamic.logged(text), bool)
        with path.open("rb") as device:
            assert device.read(3) == b"own"
        says(dynamic, name, "")


def test_a_device_that_goes_once_nobody_uses_it_is_told_of(
    dynamic: DynamicLab, pool: MadePool
) -> None:
    """As losetup -d leaves what is mounted: its number is another's after the unmount."""
    cls = dynamic.storage_class()
    dynamic.start(patience=QUICK)
    claim = dynamic.claim(cls, size="16Mi")
    volume = dynamic.made(claim)
    name, path = volume["metadata"]["name"], dynamic.path_of(volume)
    with mounted(str(path), fstype="ext4"):
        says(dynamic, name, "")
        command("losetup", "--detach", os.readlink(path))
        said_of(dynamic, claim, name, "or until nobody uses it")
