"""A prepared volume's record: which hand-over of the volume counts, and which claim holds it.

When the API server is restored to an older state, a PersistentVolume may come back, with a claim
that was gone or a release that was over. The record is on the volume, or on its node, and is not
restored with it: if the two disagree, the object is not this volume's.

A record is JSON: `format`, `generation` (new for each offer; the object names it in its annotation
`localvolume.dev/generation`), `claim` (the UID of the claim that holds the volume, "" while none
does), `ended` (the cleaning of this generation was proved), `cleaned` (when the volume was last
cleaned, and the receipt: `<RFC 3339> <sentence>`), `root` (the state of the filesystem's root
directory when the volume was first offered), and, if the record is not on the volume itself,
`identity` (what the volume is). We write format 1. We read format 2 if it has these fields, so that
a newer release may add fields.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from localvolume.host.filesystem.rootstate import RootState
from localvolume.volumes.identity import Identity
from localvolume.volumes.moments import written

FORMAT: Final = 1
_NEWEST_READ: Final = 2

LONGEST_RECEIPT: Final = 200
"""How many characters of a receipt are kept: on ext4 with small blocks, a root has 1 KiB for all
its attributes."""


class Record(msgspec.Struct, frozen=True, omit_defaults=True):
    """One volume's record, as the module's docstring describes it."""

    generation: str
    claim: str = ""
    ended: bool = False
    cleaned: str = ""
    root: RootState | None = None
    identity: Mapping[str, str] | None = None
    format: int = FORMAT


@dataclass(frozen=True, slots=True)
class Unreadable:
    """There may be a record, but what it says is not known; `reason` is for people.

    `may_be`: records, one of which may be this volume's.
    """

    reason: str
    may_be: tuple[Record, ...] = ()


# Created at import: msgspec inspects a type at its first use, and if several threads reach that at
# the same moment, the process crashes.
_decode: Final = msgspec.json.Decoder(Record).decode

Recorded = Record | Unreadable | Literal["nowhere"] | None
"""What is on record. None: nothing; "nowhere": there is no place to keep records."""


class BadRecord(ValueError):
    """The bytes are not a record that this release understands: leave the volume alone."""


def encoded(record: Record) -> bytes:
    # omit_defaults would leave the format out.
    return msgspec.json.encode(msgspec.to_builtins(record) | {"format": FORMAT}, order="sorted")


def decoded(content: bytes) -> Record:
    """Raises BadRecord."""
    try:
        record = _decode(content)
    except msgspec.MsgspecError as error:
        raise BadRecord(f"it is no record: {error}") from error
    if not 1 <= record.format <= _NEWEST_READ:
        raise BadRecord(f"a newer release wrote it, in format {record.format}")
    if not record.generation:
        raise BadRecord("it names no generation")
    return record


def of_object(generation: str, recorded: Recorded) -> Recorded:
    """What is on record for an object that is this volume's by its identity.

    If nothing tells the volume from others, the generation tells which record is meant.
    """
    if isinstance(recorded, Unreadable) and recorded.may_be:
        for record in recorded.may_be:
            if record.generation == generation:
                return record
        if not any(record.claim for record in recorded.may_be):
            return None  # No claim holds it, whichever record it is.
    return recorded


def strange(generation: str, claims: Collection[str], recorded: Recorded) -> str | None:
    """Why an object of that generation, which those claims (UIDs) have had, is not the volume's.

    Returns None if the record agrees with the object, and for an object from before there were
    records (generation "") on a volume without one.
    """
    recorded = of_object(generation, recorded)
    if recorded is None:
        return "the record that was made of it is not there" if generation else None
    if recorded == "nowhere":
        if not generation:
            return None
        return "it has a record, and this agent has no place for records (RECORDS_DIR)"
    if isinstance(recorded, Unreadable):
        return f"its record cannot be read: {recorded.reason}"
    if recorded.claim and recorded.claim not in claims:
        return (
            f"its record says that the claim {recorded.claim} holds it,"
            " which this object does not name"
        )
    if generation and generation != recorded.generation:
        return "its record says that it has been offered anew since"
    if not generation and claims and not recorded.claim:
        return "its record says that no claim holds it, and this object is older than the record"
    return None


def held_by(recorded: Recorded) -> str | None:
    """Why a volume that no object offers may be somebody's, by its record; or None."""
    recorded = of_object("", recorded)
    if isinstance(recorded, Unreadable):
        return f"its record cannot be read: {recorded.reason}"
    if isinstance(recorded, Record) and recorded.claim:
        return f"its record says that the claim {recorded.claim} holds it"
    return None


def next_offer(recorded: Recorded, generation: str, root: RootState | None) -> Record:
    """The record of a volume that is about to be offered to any claim.

    Keeps the recorded generation if it has not ended and no claim holds it: its object may have
    been made. Otherwise takes `generation`. `root` is the current state of the root directory, for
    a volume whose record has none. The receipt goes if a claim has held the volume since: whoever
    emptied it then left none.
    """
    if not isinstance(recorded, Record):
        return Record(generation, root=root)
    kept = not recorded.ended and not recorded.claim
    if kept and recorded.root is not None:
        return recorded
    return Record(
        recorded.generation if kept else generation,
        cleaned="" if recorded.claim else recorded.cleaned,
        root=recorded.root or root,
        identity=recorded.identity,
    )


def taken(record: Record, claim: str) -> Record:
    """The record once that claim holds the volume."""
    return msgspec.structs.replace(record, claim=claim, ended=False)


def over(record: Record, said: str, now: float) -> Record:
    """The record once the volume has been cleaned and proved clean.

    `said` is the receipt in one line, cut to LONGEST_RECEIPT; `now` is in seconds since the epoch.
    """
    if len(said) > LONGEST_RECEIPT:
        said = f"{said[: LONGEST_RECEIPT - 1]}…"
    return msgspec.structs.replace(record, claim="", ended=True, cleaned=f"{written(now)} {said}")


def with_identity(record: Record, identity: Identity | None) -> Record:
    """The record with the volume's identity, for a record that is not kept on the volume itself."""
    return msgspec.structs.replace(record, identity=None if identity is None else dict(identity))
