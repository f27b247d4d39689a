"""What the FlexVolume driver notes of a logical volume of elastic's when it adopts it.

What is suspended must not be read, for that waits until somebody resumes it: here LVM is scripted,
so that it can be seen whether it was.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from localvolume.volumes.lvtags import encode
from tests.host.support_devices import loop_device
from tests.host.test_flex_lvm_commands import TAGS, Scripted, lv
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4")


@pytest.mark.parametrize(("suspended", "seen"), [("", True), ("suspended", False)])
def test_only_what_can_be_read_is_looked_into(tmp_path: Path, suspended: str, seen: bool) -> None:
    host = Scripted(tmp_path)
    with loop_device(16 * MIB) as device:
        device.format("ext4")
        major, minor = device.number.split(":")
        host.has(
            lv(
                "pvc-1",
                lv_active="active",
                lv_suspended=suspended,
                lv_path=device.path,
                lv_kernel_major=major,
                lv_kernel_minor=minor,
            )
        )
        assert host.driver().adopt({"pvc-1": TAGS}) == ["pvc-1"]
    (noted,) = [line for line in host.asked() if line.startswith("lvchange")]
    of_content = encode({"state": "made", "fs": "ext4"})
    assert [tag in noted for tag in of_content] == [seen] * len(of_content)
    assert all(tag in noted for tag in encode(TAGS))
