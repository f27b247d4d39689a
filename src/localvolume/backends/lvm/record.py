"""A volume's record as the tags of its logical volume, and back. Pure.

LVM changes the tags together in one transaction (and, at lvcreate, with the volume itself), so a
volume of ours can be told from others' at any moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, cast, get_args

from localvolume.backends.model import Record, State
from localvolume.host.lvm.commands import LogicalVolume
from localvolume.volumes import attributes
from localvolume.volumes.lvtags import OWNER, POOL_OWNER, BadTag, decode

KIND: Final = "kind"
GROWTH: Final = "growth"
"""A value of KIND, which a volume itself does not have: zeroed space that a volume is about to grow
by."""

CUT: Final = "cut"
"""A snapshot of LVM's of a thick volume, for as long as that is copied."""

OF: Final = "of"
"""The volume whose growth it is, or the copy that the cut is for."""
STATE: Final = "state"
KEPT: Final = "kept"
"""Replaces OWNER: it was a volume of ours, and its PersistentVolume's policy kept it."""
ZEROED: Final = "zeroed"
"""How many bytes from the start are known to be zeros, while it is made."""
COPIED: Final = "copied"
"""How many bytes from the start have the content that it is made with, while it is made."""
CUT_AT: Final = "cut-at"
RESERVE: Final = "reserve"
"""What was asked for as the reserve of a snapshot of LVM's that stays."""
GROUP: Final = "group"
"""The group of snapshots, cut at one moment, that it is one of."""
_GENERATION: Final = "generation"
_GROUP_SIZE: Final = "group-size"

_STATES: Final = frozenset(get_args(State))


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A volume of ours: its record, the logical volume with the tags, and what no record holds.

    `asked` is the size that was asked for, while it is made. The record's own size is what the
    volume's filesystem has been grown to, never what LVM has given it and nobody can use yet.
    """

    record: Record
    volume: LogicalVolume
    asked: int

    @property
    def content_bytes(self) -> int:
        """The size of its device: the logical volume of a snapshot of LVM's is its reserve."""
        return self.record.size_bytes if self.record.reserve_bytes else self.volume.size_bytes


def fields_of(record: Record, *, size_bytes: int | None = None) -> dict[str, str]:
    """What its tags say; `size_bytes` if that is not the record's own."""
    on_removal = "overwrite" if record.overwrite else "discard" if record.discard else ""
    return {
        OWNER: POOL_OWNER,
        "name": record.name,
        STATE: record.state,
        "size": str(record.size_bytes if size_bytes is None else size_bytes),
        "class": record.class_name,
        "claim": record.claim,
        "claim-uid": record.claim_uid,
        "given": " ".join(record.given),
        "pv-uid": record.volume_uid,
        "mode": record.volume_mode,
        "fs": record.fs_type,
        "perm": f"{record.mode:o}",
        "uid": str(record.uid),
        "gid": str(record.gid),
        "on-removal": on_removal,
        **({_GENERATION: str(record.generation)} if record.generation else {}),
        **({"driver": record.driver} if record.driver else {}),
        **({"pod": record.pod} if record.pod else {}),
        **({"pod-uid": record.pod_uid} if record.pod_uid else {}),
        **({"request": record.request} if record.request else {}),
        **({"snapshot-of": record.snapshot_of} if record.snapshot_of else {}),
        **({"made-from": record.made_from} if record.made_from else {}),
        **({"full-copies": "yes"} if record.full_copies else {}),
        **({CUT_AT: str(record.cut_at)} if record.cut_at else {}),
        **({"holds": str(record.holds_bytes)} if record.holds_bytes else {}),
        **({RESERVE: str(record.reserve_bytes)} if record.reserve_bytes else {}),
        **({GROUP: record.group, _GROUP_SIZE: str(record.group_size)} if record.group else {}),
        **({"attributes": text} if (text := attributes.written(record.attributes)) else {}),
    }


def completed(record: Record) -> State:
    """The state of a volume that is complete: a call that asked for it is answered next, with
    nothing else to be written down before. Others are first named in a PersistentVolume.
    """
    return "offered" if record.request else "made"


def kept_fields(record: Record) -> dict[str, str]:
    """The tags that stay on a volume that is nobody's any more, for those who find it."""
    fields = fields_of(record)
    return {
        KEPT: "yes",
        **{key: fields[key] for key in ("name", "class", "claim", "claim-uid", "pv-uid", "fs")},
    }


def read_entry(volume: LogicalVolume) -> Entry:
    """The record in the tags of a volume of ours. Raises BadTag for anything else."""
    fields = decode(volume.tags)
    name, state, mode = fields.get("name", ""), fields.get(STATE, ""), fields.get("mode", "")
    if name != volume.name:
        raise BadTag(f"it was made as {name!r} and renamed")
    if state not in _STATES:
        raise BadTag(f"its state is {state!r}")
    if mode not in ("Filesystem", "Block"):
        raise BadTag(f"its mode is {mode!r}")
    on_removal = fields.get("on-removal", "")
    if on_removal not in ("", "overwrite", "discard"):
        raise BadTag(f"its on-removal is {on_removal!r}")
    asked = _number(fields, "size")
    reserve = _number(fields, RESERVE) if RESERVE in fields else 0
    if (volume.kind == "snapshot") != bool(reserve):
        raise BadTag("only a snapshot of LVM's has a reserve, and each of ours has one")
    if reserve and volume.origin != fields.get("snapshot-of", ""):
        raise BadTag(f"it is a snapshot of {volume.origin}, and its tags name another")
    if asked > volume.size_bytes and not reserve:
        raise BadTag(f"it was made smaller than the {asked} bytes that its tags name")
    record = Record(
        name=name,
        backend="lvm",
        state=cast("State", state),
        directory="",
        size_bytes=volume.size_bytes if state == "making" and not reserve else asked,
        class_name=fields.get("class", ""),
        claim=fields.get("claim", ""),
        claim_uid=fields.get("claim-uid", ""),
        given=tuple(fields.get("given", "").split()),
        generation=_number(fields, _GENERATION) if _GENERATION in fields else 0,
        volume_uid=fields.get("pv-uid", ""),
        volume_mode=cast("Literal['Filesystem', 'Block']", mode),
        fs_type=fields.get("fs", ""),
        mode=_number(fields, "perm", 8),
        uid=_number(fields, "uid"),
        gid=_number(fields, "gid"),
        sparse=volume.kind == "thin",
        overwrite=on_removal == "overwrite",
        discard=on_removal == "discard",
        driver=fields.get("driver", ""),
        pod=fields.get("pod", ""),
        pod_uid=fields.get("pod-uid", ""),
        request=fields.get("request", ""),
        snapshot_of=fields.get("snapshot-of", ""),
        made_from=fields.get("made-from", ""),
        full_copies=fields.get("full-copies", "") == "yes",
        cut_at=_number(fields, CUT_AT) if CUT_AT in fields else 0,
        # Somebody may have extended the reserve.
        holds_bytes=volume.size_bytes if reserve else _holds(fields),
        reserve_bytes=reserve,
        group=fields.get(GROUP, ""),
        group_size=_number(fields, _GROUP_SIZE) if GROUP in fields else 0,
        attributes=_attributes(fields),
    )
    for key in {ZEROED, COPIED} & fields.keys():
        _number(fields, key)
    return Entry(record=record, volume=volume, asked=asked)


def growth_name(name: str) -> str:
    """The name of the space that a volume is about to grow by."""
    return f"{name}.growing"


def cut_name(name: str) -> str:
    """The name of the cut that a copy is made of."""
    return f"{name}.cut"


def is_begun(entry: Entry, record: Record) -> bool:
    """Whether what is half made is what is asked for, with the size that was asked for at first or
    with the one reported since, which LVM has rounded up.
    """
    asked = replace(record, state="making", volume_uid="")
    if record.size_bytes == entry.volume.size_bytes:
        asked = replace(asked, size_bytes=entry.asked)
    return fields_of(entry.record, size_bytes=entry.asked) == fields_of(asked)


def _attributes(fields: Mapping[str, str]) -> attributes.Attributes:
    try:
        return attributes.from_text(fields.get("attributes", ""))
    except attributes.BadAttributes as error:
        raise BadTag(str(error)) from error


def _holds(fields: Mapping[str, str]) -> int:
    return _number(fields, "holds") if "holds" in fields else 0


def _number(fields: Mapping[str, str], key: str, base: int = 10) -> int:
    text = fields.get(key, "")
    if not (text.isascii() and text.isdigit()):
        raise BadTag(f"its {key} is {text!r}")
    try:
        return int(text, base)
    except ValueError as error:
        raise BadTag(f"its {key} is {text!r}") from error
