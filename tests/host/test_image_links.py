"""The links to images: none leads to a loop device that has another volume's image by now."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localvolume.backends.imageattach import Attachments
from localvolume.backends.imagelinks import Links
from tests.host.support_images import POOL_ID, run_here
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop")

NUMBERS = range(256)


def test_no_old_link_leads_to_a_device_on_which_another_volume_is_made(tmp_path: Path) -> None:
    links = Links(str(tmp_path / "links"))
    for number in NUMBERS:  # whichever device is free next
        links.lead(POOL_ID, f"pvc-{number}", f"/dev/loop{number}")
    fd = os.open(tmp_path / "image", os.O_RDWR | os.O_CREAT)
    try:
        os.ftruncate(fd, MIB)
        with Attachments(links, run_here).borrowed(fd) as loop:
            led = {links.target(POOL_ID, f"pvc-{number}") for number in NUMBERS}
    finally:
        os.close(fd)
    gone = {f"/dev/loop{number}" for number in NUMBERS} - led
    assert loop.node in gone
    # Another process may have been quicker to take the one that was tried before it.
    assert len(gone) < 5
