"""What a volume is, written down when it is published and compared before anything is done to it.

An identity is a small map of facts that follow the disk, never the place where it happens to be
plugged in or mounted: `{"kind": "filesystem", "fsType": "ext4", "uuid": "…", "root": "/"}` or
`{"kind": "block", "serial": "…", "wwn": "…"}`. It stands as JSON in the annotation
`localvolume.dev/identity` of the PersistentVolume.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

Identity = Mapping[str, str]

_ALWAYS = ("kind", "fsType")
_STRONG = (
    "uuid",
    "root",
    "wwn",
    "serial",
    "partUuid",
    "diskUuid",
    "dmUuid",
    "loopFile",
    "loopInode",
)


class Comparison(NamedTuple):
    """`same`, or `differs`, or `unknown` (what was recorded cannot be seen now), and why."""

    verdict: Literal["same", "differs", "unknown"]
    reason: str


def to_annotation(identity: Identity) -> str:
    return msgspec.json.encode(dict(identity), order="sorted").decode()


def from_annotation(text: str | None) -> dict[str, str] | None:
    """The recorded identity, or None where none was recorded; ValueError where it is unreadable."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise ValueError(f"the recorded identity is unreadable: {error}") from error


def tells_apart(identity: Identity) -> bool:
    """Whether it names one volume and no other: "root" alone says where in a filesystem only."""
    return any(key in identity for key in _STRONG if key != "root") or "source" in identity


def compare(recorded: Identity, observed: Identity) -> Comparison:
    """Whether what is there now is what was recorded.

    Facts that a disk of its own kind cannot lose or share decide; a size may grow, so it only
    counts where nothing better was recorded. What was recorded and cannot be seen any more is
    `unknown`, and the caller keeps the data.
    """
    strong = [key for key in _STRONG if key in recorded]
    # "root" alone says where in a filesystem, not in which one.
    if not [key for key in strong if key != "root"]:
        strong = sorted(set(recorded) - set(_ALWAYS))
    for key in (*(key for key in _ALWAYS if key in recorded), *strong):
        if key not in observed:
            return Comparison("unknown", f"its {key} was {recorded[key]!r} and cannot be read now")
        if recorded[key] != observed[key]:
            return Comparison(
                "differs", f"its {key} was {recorded[key]!r} and is {observed[key]!r}"
            )
    return Comparison("same", "")
