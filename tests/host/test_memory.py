"""Memory that is free in the midst of what is used goes back to the system."""

from __future__ import annotations

import os
from pathlib import Path

from localvolume.process.memory import give_back
from tests.suite.units import MIB

PIECE = 4096


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_what_is_free_between_what_is_kept_goes_back() -> None:
    give_back()
    pieces = [os.urandom(PIECE) for _ in range(64 * MIB // PIECE)]
    kept = pieces[::16]  # so that no stretch of free memory ends where the heap does
    pieces.clear()
    before = resident()
    give_back()
    assert before - resident() > 32 * MIB
    assert all(len(piece) == PIECE for piece in kept)
