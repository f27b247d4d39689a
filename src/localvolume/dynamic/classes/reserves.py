"""What a VolumeSnapshotClass says of the reserve of its snapshots: pure.

The reserve takes in what is written over on the volume from the cut on, where a snapshot shares the
blocks of its volume for good.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from localvolume.config.syntax.readers import quoted
from localvolume.volumes.capacity import MIB, bytes_of

RESERVE: Final = "snapshotReserve"

_PERCENT: Final = re.compile(r"([1-9][0-9]?|100)%")
_LEAST: Final = MIB


@dataclass(frozen=True, slots=True)
class Reserve:
    """A share of the volume's size, or a number of bytes; the other is 0."""

    percent: int = 0
    size_bytes: int = 0

    def of(self, volume_bytes: int) -> int:
        """The bytes that the reserve of a snapshot of such a volume has, and at least 1 MiB.

        It is never more than would take in all of the volume written over, which takes some more
        than that, to note where each block was: so much are 100 %.
        """
        most = volume_bytes + volume_bytes // 64 + MIB
        if self.percent == 100:
            return most
        asked = self.size_bytes or -(-volume_bytes * self.percent // 100)
        return min(max(asked, _LEAST), most)


def reserve(value: str) -> Reserve:
    """What the parameter says. Raises ValueError."""
    if match := _PERCENT.fullmatch(value):
        return Reserve(percent=int(match.group(1)))
    size = bytes_of(value)
    if size is None or size <= 0:
        raise ValueError(f"must be a size or 1% to 100%, such as 5Gi or 20%, not {quoted(value)}")
    return Reserve(size_bytes=size)
