"""What a VolumeAttributesClass asks of a volume while it is there: read strictly. Pure.

A volume keeps its attributes in its record, so they hold while the API server is away, and after
the class is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from localvolume.config.syntax.durations import parse_duration
from localvolume.config.syntax.readers import did_you_mean, one_line, quoted

UNDO_PERIOD: Final = "undoPeriod"


class Attributes(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The attributes of one volume. `class_name` is the VolumeAttributesClass, "" for none.

    `undo_seconds` is how long its removal can be undone; None: as its StorageClass says.
    """

    class_name: str = ""
    undo_seconds: float | None = None


NONE: Final = Attributes()
"""A volume of no VolumeAttributesClass."""


class BadAttributes(ValueError):
    """The parameters cannot be had: nothing of them is applied. The text says why."""


def read(parameters: Mapping[str, str], class_name: str = "") -> Attributes:
    """The attributes that these parameters ask for. Raises BadAttributes."""
    problems: list[str] = []
    undo_seconds: float | None = None
    for name, value in sorted(parameters.items()):
        try:
            if name != UNDO_PERIOD:
                problems.append(f"parameter {one_line(name)} is not known{_hint(name)}")
            else:
                undo_seconds = _undo_seconds(value)
        except ValueError as error:
            problems.append(f"parameter {name}: {error}")
    if problems:
        raise BadAttributes("; ".join(problems))
    return Attributes(class_name=class_name, undo_seconds=undo_seconds)


def _undo_seconds(value: str) -> float:
    seconds = parse_duration(value)
    if seconds < 0:
        raise ValueError(f"must not be negative: {quoted(value)}")
    return seconds


def _hint(name: str) -> str:
    return did_you_mean(name, (UNDO_PERIOD,))


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
