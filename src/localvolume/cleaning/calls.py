"""What is asked of the kernel about a device while it is cleaned."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localvolume.host.block import blockdev
from localvolume.host.block.operations import DiscardLimits

OnRange = Callable[[int, int, int], None]
"""Does something with a device: its descriptor, and a range's start and length in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceCalls:
    """Each blocks, and raises OSError."""

    zero_out: OnRange = blockdev.zero_out
    discard: OnRange = blockdev.discard
    discard_limits: Callable[[int], DiscardLimits] = blockdev.discard_limits
    flush_buffers: Callable[[int], None] = blockdev.flush_buffers
    set_direct: Callable[[int, bool], bool] = blockdev.set_direct
