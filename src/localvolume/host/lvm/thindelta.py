"""What thin_delta(8) says of two volumes of a thin pool: which blocks they share (pure).

Both may be the same volume: it shares all that it has with itself. All of the answer is checked, as
a range that is missing from a backup is not noticed before it is restored.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final
from xml.parsers import expat

from localvolume.host.lvm.report import BadReport

_SECTOR: Final = 512
_KINDS: Final = frozenset({"same", "different", "left_only", "right_only"})

Range = tuple[int, int]
"""The first byte, and how many."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two volumes have in their pool, in bytes of theirs, in order.

    `differing` is in one of them only, or another block in each; what neither range names is in
    none of them. Both are in whole blocks, so the last one may reach beyond the volume's end.
    """

    shared: list[Range]
    differing: list[Range]


def read_delta(text: str, left: int, right: int) -> Comparison:
    """Read the answer for the volumes of these numbers. Raises BadReport for any other."""
    reader = _Reader(left, right)
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.characters
    parser.StartDoctypeDeclHandler = reader.declares
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        raise BadReport(f"thin_delta's answer cannot be read: {error}") from error
    if not reader.compared:
        raise BadReport("thin_delta compares nothing")
    return Comparison(reader.shared, reader.differing)


@dataclass
class _Reader:
    left: int
    right: int
    shared: list[Range] = field(default_factory=list)
    differing: list[Range] = field(default_factory=list)
    compared: bool = False
    _block_bytes: int = 0
    _until: int = 0
    _inside: list[str] = field(default_factory=list)

    def start(self, name: str, said: dict[str, str]) -> None:
        depth = len(self._inside)
        if name == "superblock" and depth == 0:
            self._block_bytes = _number(said, "data_block_size") * _SECTOR
            if not self._block_bytes:
                raise BadReport("thin_delta says that blocks have no bytes")
        elif name == "diff" and self._inside == ["superblock"] and not self.compared:
            found = _number(said, "left"), _number(said, "right")
            if found != (self.left, self.right):
                raise BadReport(f"thin_delta compares {found}, not {(self.left, self.right)}")
            self.compared = True
        elif name in _KINDS and self._inside == ["superblock", "diff"]:
            self._range(name, _number(said, "begin"), _number(said, "length"))
        else:
            raise BadReport(f"thin_delta says {name[:40]!r}, which is not known here")
        self._inside.append(name)

    def end(self, _name: str) -> None:
        self._inside.pop()

    def characters(self, text: str) -> None:
        if text.strip():
            raise BadReport(f"thin_delta says {text.strip()[:80]!r}")

    def declares(self, *_what: object) -> None:
        raise BadReport("thin_delta declares a type of document")

    def _range(self, kind: str, begin: int, length: int) -> None:
        if begin < self._until or not length:
            raise BadReport(f"thin_delta names {length} blocks at {begin}, out of order")
        if kind != "same" and self.left == self.right:
            raise BadReport("thin_delta says that a volume differs from itself")
        self._until = begin + length
        ranges = self.shared if kind == "same" else self.differing
        add(ranges, begin * self._block_bytes, length * self._block_bytes)


def add(ranges: list[Range], start: int, size: int) -> None:
    """Add a range that begins after the last one, or join it to that."""
    if ranges and sum(ranges[-1]) == start:
        ranges[-1] = (ranges[-1][0], ranges[-1][1] + size)
    else:
        ranges.append((start, size))


def _number(said: dict[str, str], key: str) -> int:
    value = said.get(key, "")
    if not (value.isascii() and value.isdigit()):
        raise BadReport(f"thin_delta says {value[:40]!r} for {key}")
    return int(value)
