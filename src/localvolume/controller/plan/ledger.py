"""Claims routed to nodes and not bound yet: the capacity there that is as good as taken."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

COUNTED_SECONDS: Final = 60.0
"""After this time an agent has published less, or will not make the volume: only what it publishes
counts then. Without a limit, a claim that is refused for good would take capacity for ever."""


@dataclass(frozen=True, slots=True)
class Held:
    """One claim's capacity at a node; `since` in seconds on a steady clock."""

    provisioner: str
    key: str
    size: int
    since: float


class Ledger:
    """What is held, by claim, for one leadership. `taken`: bytes by provisioner and node key."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._counted: set[str] = set()
        self._taken: Counter[tuple[str, str]] = Counter()
        self.taken: Final[Mapping[tuple[str, str], int]] = self._taken

    def take_out(self, name: str) -> Held | None:
        """Release what is held for the claim, and return it."""
        held = self._held.pop(name, None)
        if held is not None:
            self._discount(name, held)
        return held

    def put_in(self, name: str, held: Held, now: float) -> None:
        """Hold it, and count it unless it is too old."""
        self.take_out(name)
        self._held[name] = held
        if now - held.since < COUNTED_SECONDS:
            self._counted.add(name)
            self._taken[held.provisioner, held.key] += held.size

    def expire(self, now: float) -> bool:
        """Stop counting what is too old. Returns whether there was any."""
        old = [n for n in self._counted if now - self._held[n].since >= COUNTED_SECONDS]
        for name in old:
            self._discount(name, self._held[name])
        return bool(old)

    def _discount(self, name: str, held: Held) -> None:
        if name not in self._counted:
            return
        self._counted.discard(name)
        at = held.provisioner, held.key
        self._taken[at] -= held.size
        if not self._taken[at]:
            del self._taken[at]
