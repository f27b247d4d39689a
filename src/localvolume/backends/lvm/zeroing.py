"""How much of a raw logical volume is zeroed at a time: apart, for agents that zero nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PIECE: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Zeroing:
    """Of one call, which ends with the first piece that is done when its time is over."""

    piece: int = PIECE
    """Bytes."""

    seconds: float = 60.0
    """Less than a caller waits for it."""
