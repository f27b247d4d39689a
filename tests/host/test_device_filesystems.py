"""Filesystems over whole devices: of each size that a volume may have there."""

import os

import pytest

from localvolume.backends.devicefs import make_filesystem
from localvolume.host.entries import device_number
from tests.host.support_devices import MIB, loop_device, mounted
from tests.host.support_images import run_here

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.mark.parametrize("mib", [4, 8, 12, 16])
def test_an_ext4_is_made_on_the_smallest_volumes(mib: int) -> None:
    """Of two extents (8 MiB), mke2fs refuses a journal that takes half."""
    with loop_device(mib * MIB) as device:
        number = device_number(os.stat(device.path).st_rdev)
        make_filesystem(run_here, device.path, number, "ext4")
        with mounted(device) as where:
            (where / "file").write_text("tenant data")
