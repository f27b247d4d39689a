"""What a VolumeAttributesClass asks of a volume while it is there: read strictly. Pure.

A volume keeps its attributes in its record, so they hold while the API server is away, and after
the class is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from localvolume.config.syntax.durations import parse_duration
from localvolume.config.syntax.readers import did_you_mean, one_line, quoted
from localvolume.volumes.capacity import bytes_of

UNDO_PERIOD: Final = "undoPeriod"
NO_LIMIT: Final = "max"
"""The value of a limit that takes it away, as the kernel writes it."""

_MOST: Final = 2**63 - 1
_MOST_OPS: Final = 2**32 - 2
"""The kernel counts requests in 32 bits, of which the largest number stands for no limit."""


class Attributes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attributes of one volume. `class_name` is the VolumeAttributesClass, "" for none.

    `undo_seconds` is how long its removal can be undone; None: as its StorageClass says. The others
    are how much each pod may read and write in a second; 0: any amount, None: nobody ever said.
    """

    class_name: str = ""
    undo_seconds: float | None = None
    read_bytes: int | None = None
    write_bytes: int | None = None
    read_ops: int | None = None
    write_ops: int | None = None

    @property
    def limits(self) -> dict[str, int]:
        """What was said of reading and writing, by the kernel's names (host/cgroups.py)."""
        said = {
            "rbps": self.read_bytes,
            "wbps": self.write_bytes,
            "riops": self.read_ops,
            "wiops": self.write_ops,
        }
        return {key: count for key, count in said.items() if count is not None}

    @property
    def is_limited(self) -> bool:
        """Whether there is anything that its pods may not do."""
        return any(self.limits.values())


NONE: Final = Attributes()
"""A volume of no VolumeAttributesClass."""


class BadAttributes(ValueError):
    """The parameters cannot be had: nothing of them is applied. The text says why."""


def read(parameters: Mapping[str, str], class_name: str = "") -> Attributes:
    """The attributes that these parameters ask for. Raises BadAttributes."""
    problems: list[str] = []
    found: dict[str, Any] = {}
    for name, value in sorted(parameters.items()):
        if name not in _READERS:
            hint = did_you_mean(name, _READERS)
            problems.append(f"parameter {one_line(name)} is not known{hint}")
            continue
        field, reader = _READERS[name]
        try:
            found[field] = reader(value)
        except ValueError as error:
            problems.append(f"parameter {name}: {error}")
    if problems:
        raise BadAttributes("; ".join(problems))
    return Attributes(class_name=class_name, **found)


def in_place_of(former: Attributes, wanted: Attributes) -> Attributes:
    """The attributes of a volume that gets another class: limits that it had, and has no more, are
    to be taken away."""
    had = {one: 0 for one in _LIMITS if getattr(former, one) is not None}
    return replace(wanted, **{one: 0 for one in had if getattr(wanted, one) is None})


def changed_by(former: Attributes, wanted: Attributes) -> Attributes:
    """The attributes after a call: what that does not name stays as it was."""
    said = {one: getattr(wanted, one) for one in (*_LIMITS, "undo_seconds")}
    return replace(former, **{one: value for one, value in said.items() if value is not None})


def _undo_seconds(value: str) -> float:
    seconds = parse_duration(value)
    if seconds < 0:
        raise ValueError(f"must not be negative: {quoted(value)}")
    return seconds


def _limit(value: str, most: int = _MOST) -> int:
    if value == NO_LIMIT:
        return 0
    count = bytes_of(value)
    if count is not None and count > most:
        raise ValueError(f"must be at most {most}, or max: {quoted(value)}")
    if count is None or count <= 0:
        raise ValueError(
            f"must be a quantity above 0, such as 20Mi or 500, or max: {quoted(value)}"
        )
    return count


def _operations(value: str) -> int:
    return _limit(value, _MOST_OPS)


_READERS: Final[Mapping[str, tuple[str, Callable[[str], Any]]]] = {
    UNDO_PERIOD: ("undo_seconds", _undo_seconds),
    "readBytesPerSecond": ("read_bytes", _limit),
    "writeBytesPerSecond": ("write_bytes", _limit),
    "readOps": ("read_ops", _operations),
    "writeOps": ("write_ops", _operations),
}
_LIMITS: Final = ("read_bytes", "write_bytes", "read_ops", "write_ops")

_encode: Final = msgspec.json.Encoder(order="deterministic").encode
# Made on import: see backends/pool/records.py.
_decode: Final = msgspec.json.Decoder(Attributes).decode


def written(attributes: Attributes) -> str:
    """The attributes in one line of text; "" for none."""
    return _encode(attributes).decode() if attributes != NONE else ""


def from_text(text: str) -> Attributes:
    """What `written` wrote. Raises BadAttributes for anything else."""
    try:
        return _decode(text.encode()) if text else NONE
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise BadAttributes(f"{quoted(text)} are no attributes: {error}") from error
