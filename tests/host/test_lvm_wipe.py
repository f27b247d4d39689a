"""Zeroing a device in pieces, each call for a while."""

from pathlib import Path

import pytest

from localvolume.backends import lvmwipe
from tests.host.support_devices import loop_device

pytestmark = pytest.mark.needs("root", "loop")

MIB = 1 << 20


def test_every_call_gets_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one whose time was over before the device was open: else it would never be done."""
    monkeypatch.setattr(lvmwipe, "PIECE", MIB)
    with loop_device(3 * MIB) as device:
        Path(device.path).write_bytes(b"sesame" * (3 * MIB // 6))
        told: list[tuple[int, bool]] = []
        start, done = 0, False
        while not done and len(told) < 5:
            start, done = lvmwipe.zero_for(device.path, device.number, start, 0.0)
            told.append((start, done))
        assert told == [(MIB, False), (2 * MIB, False), (3 * MIB, True)]
        assert Path(device.path).read_bytes() == bytes(3 * MIB)
