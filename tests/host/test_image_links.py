"""The links to images: none leads to a loop device that has another volume's image by now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localvolume.backends.image.attaching import Attachments
from localvolume.backends.image.links import Links
from tests.host.support_images import POOL_ID, run_here
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop")

NUMBERS = range(256)


def test_no_old_link_leads_to_a_device_on_which_another_volume_is_made(tmp_path: Path) -> None:
    links = Links(str(tmp_path / "links"))

    def gone(fd: int) -> set[str]:
        for number in NUMBERS:  # whichever device is free next
            links.lead(POOL_ID, f"pvc-{number}", f"/dev/loop{number}")
        with Attachments(links, run_here).borrowed(fd) as loop:
            led = {links.target(POOL_ID, f"pvc-{number}") for number in NUMBERS}
        assert loop.node not in led
        return {f"/dev/loop{number}" for number in NUMBERS} - led - {loop.node}

    fd = os.open(tmp_path / "image", os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, MIB)
        # More than its own goes only where another process was quicker to take a device.
        until(lambda: gone(fd), lambda others: not others)
    finally:
        os.close(fd)
