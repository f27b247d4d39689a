"""How much of a raw logical volume is zeroed at a time; a module for agents that zero nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

PIECE: Final = 16 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Zeroing:
    """The limits of one call, which ends with the first piece that is done after `seconds`."""

    piece: int = PIECE
    """Bytes."""

    seconds: float = 60.0
    """Shorter than callers wait for one call."""
