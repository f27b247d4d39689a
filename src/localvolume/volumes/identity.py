"""A volume's identity: recorded when it is published, compared before anything is done to it.

An identity is a small map of facts that follow the disk, not the place where it happens to be
plugged in or mounted: `{"kind": "filesystem", "fsType": "ext4", "uuid": "…", "root": "/"}` or
`{"kind": "block", "serial": "…", "wwn": "…"}`. It is stored as JSON in the annotation
`localvolume.dev/identity` of the PersistentVolume.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import msgspec

Identity = Mapping[str, str]

_ALWAYS = ("kind", "fsType")
_PLACE = ("root",)
"""Where in a filesystem the volume is. This does not say which filesystem."""

_STRONG = (
    "uuid",
    "source",
    "wwn",
    "serial",
    "partUuid",
    "partStart",
    "diskUuid",
    "dmUuid",
    "mdUuid",
    "loopFile",
    "loopInode",
    "loopOffset",
)
"""Facts that a disk does not lose, and does not share with another disk."""

_STRONG_KEYS = frozenset(_STRONG)

_BELOW = "device"
"""Prefix of the facts about the device below a filesystem: a copy has the filesystem's UUID."""

_NUMBERING = ("bootId", "diskSeq")
"""The kernel's numbers for disks that nothing else tells apart: valid until it renumbers them."""

_ANCHORS = ("uuid", "source", "wwn", "serial", "partUuid", "dmUuid", "mdUuid", "loopFile")
"""Those of the strong facts that serve to find volumes that may share data."""


_RENUMBERED = (
    "nothing tells its disk from others of that kind, and since it was published the node was"
    " restarted or the disk reattached"
)


class Comparison(NamedTuple):
    """`same`, or `differs`, or `unknown` (what was recorded cannot be seen now), and why.

    `renumbered`: nothing tells it from others of its kind, and it may be another one by now.
    """

    verdict: Literal["same", "differs", "unknown", "renumbered"]
    reason: str


def to_annotation(identity: Identity) -> str:
    return msgspec.json.encode(dict(identity), order="sorted").decode()


def from_annotation(text: str | None) -> dict[str, str] | None:
    """The recorded identity, None if none was recorded. Raises ValueError if it is unreadable."""
    if text is None:
        return None
    try:
        return msgspec.json.decode(text, type=dict[str, str])
    except msgspec.MsgspecError as error:
        raise ValueError(f"the recorded identity is unreadable: {error}") from error


def tells_apart(identity: Identity) -> bool:
    """Whether it names exactly one volume. Different disks may have the same size and model."""
    return not _STRONG_KEYS.isdisjoint(identity)


def compare(recorded: Identity, observed: Identity) -> Comparison:
    """Whether what is there now is what was recorded.

    The strong facts and the root decide. A size may grow and a model may be spelled differently, so
    they only count if nothing better was recorded. The verdict is `unknown` if a recorded fact
    cannot be seen now, or if the record would fit any volume. Not every agent sees enough of the
    host to read the facts of the device below a filesystem, so these only count if both have them.
    """
    if tells_apart(recorded) and recorded == observed:
        return Comparison("same", "")
    if tells_apart(recorded):
        deciding = [key for key in (*_STRONG, *_PLACE) if key in recorded]
    else:
        deciding = sorted(recorded.keys() - {*_ALWAYS, *_NUMBERING} - set(_below(recorded)))
    for key in (*(key for key in _ALWAYS if key in recorded), *deciding):
        if key not in observed:
            return Comparison("unknown", f"its {key} was {recorded[key]!r} and cannot be read now")
        if recorded[key] != observed[key]:
            return Comparison(
                "differs", f"its {key} was {recorded[key]!r} and is {observed[key]!r}"
            )
    for key in _below(recorded):
        if key in observed and recorded[key] != observed[key]:
            text = f"its {key} was {recorded[key]!r} and is {observed[key]!r}: it may be a copy"
            return Comparison("differs", text)
    for key in _NUMBERING:
        if key in recorded and recorded[key] != observed.get(key):
            return Comparison("renumbered", _RENUMBERED)
    if not set(deciding) - set(_PLACE):
        return Comparison("unknown", "what was recorded of it would fit any volume")
    return Comparison("same", "")


def knows_more(recorded: Identity, observed: Identity) -> bool:
    """Whether facts can be added to a record of an older release, which knew none of their kind."""
    return recorded != observed and any(
        set(find(observed)) and not set(find(recorded)) for find in (_below, _numbering)
    )


def _below(identity: Identity) -> list[str]:
    return sorted(key for key in identity if key.startswith(_BELOW))


def _numbering(identity: Identity) -> list[str]:
    return [key for key in _NUMBERING if key in identity]


def unchanged(before: Identity, now: Identity) -> Comparison:
    """Like `compare`, for two looks of one process at the same path, moments apart.

    A filesystem without a UUID cannot be told from another of its kind: then all that is known of
    it must be equal, and the caller compares the mount itself.
    """
    if before and not tells_apart(before) and dict(before) == dict(now):
        return Comparison("same", "")
    return compare(before, now)


def anchors(identity: Identity) -> list[str]:
    """Keys for finding other volumes that may share data with this one."""
    kind = identity.get("kind", "")
    return [f"{kind} {key} {identity[key]}" for key in _ANCHORS if key in identity]


def may_share_data(one: Identity, other: Identity) -> bool:
    """Whether what is written to one volume may be seen in the other.

    True for the same filesystem if the directories are equal or one contains the other, and for
    the same disk unless the identities name two different parts of it.
    """
    if one.get("kind") != other.get("kind") or one.get("fsType") != other.get("fsType"):
        return False
    common = [key for key in _STRONG if key in one and key in other]
    if not common or any(one[key] != other[key] for key in common):
        return False
    mine, theirs = one.get("root", "/"), other.get("root", "/")
    return is_within(mine, theirs) or is_within(theirs, mine)


def is_within(path: str, directory: str) -> bool:
    """Whether a path is that directory or lies in it; both absolute and normalised."""
    return path == directory or path.startswith(directory.rstrip("/") + "/")
