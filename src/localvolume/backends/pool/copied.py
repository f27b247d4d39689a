"""Whose the things in a copied pool are: a pure function of its records and of a look.

A copy has the names of the original, and other inodes. So the place says whose it is, unless what
lies there is what the record of another volume tells of: then somebody may have swapped the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from localvolume.backends.model import Record
from localvolume.backends.pool.layout import parents_of, parents_of_all

Verdict = Literal[
    "fits",  # its record tells of what lies there already, or of nothing
    "stamp",  # the record is to tell of it from now on
    "missing",  # nothing lies there
    "doubtful",  # it may be another volume's
    "left",  # it cannot be the volume
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What lies where a record says, in place or in the trash under the name `trash`.

    `identity` as in `Record.inode`, 0 for nothing; `fault` is why it cannot be the volume.
    """

    identity: int = 0
    trash: str = ""
    fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What becomes of one record: with `stamp`, `record` is what is written."""

    verdict: Verdict
    record: Record
    reason: str = ""


def judge(
    records: Mapping[str, Record], seen: Mapping[str, Seen], *, by_name: bool = False
) -> dict[str, Answer]:
    """What becomes of each record; `by_name`: somebody has said that the names are right."""
    lies, told = defaultdict(set), defaultdict(set)
    for name, record in records.items():
        lies[record.backend, seen[name].identity].add(name)
        if not _fits(record, seen[name]):
            told[record.backend, record.inode].add(name)
    answers = {}
    for name, record in records.items():
        found = seen[name]
        key = record.backend, found.identity
        twins, strays = lies[key] - {name}, told[key] - {name}
        answers[name] = _judge(record, found, twins, set() if by_name else strays)
    return _without_overlaps(answers)


def _judge(record: Record, found: Seen, twins: Collection[str], strays: Collection[str]) -> Answer:
    """`twins` are where the same lies, and the records of `strays` tell of what lies here."""
    if found.fault:
        return Answer(verdict="left", record=record, reason=found.fault)
    if not found.identity:
        # What was being made is made anew, and of what was removed nothing is left.
        if record.state in ("making", "removed"):
            return Answer(verdict="fits", record=record)
        return Answer(verdict="missing", record=record, reason="nothing lies where it should")
    if _fits(record, found):
        return Answer(verdict="fits", record=record)
    if twins:
        reason = f"the same lies where {min(twins)} should"
        return Answer(verdict="left", record=record, reason=reason)
    if strays:
        reason = f"the record of {min(strays)} tells of what lies there"
        return Answer(verdict="doubtful", record=record, reason=reason)
    stamped = replace(record, inode=found.identity)
    if found.trash:
        # Removing it was begun, and its name in the trash is made of what it was.
        stamped = replace(stamped, state="removed", trash=found.trash)
    return Answer(verdict="stamp", record=stamped)


def _fits(record: Record, found: Seen) -> bool:
    return found.identity == record.inode and found.trash == record.trash


def _without_overlaps(answers: dict[str, Answer]) -> dict[str, Answer]:
    """No two volumes have one place, and none lies in another's: such records are left alone."""
    placed = [one.record for one in answers.values() if one.record.state != "removed"]
    parents = parents_of_all(placed)
    taken = {one.directory for one in placed if one.directory}
    for record in placed:
        place = record.directory
        if answers[record.name].verdict != "stamp":
            continue
        if place in parents or not taken.isdisjoint(parents_of(place)):
            reason = f"its directory {place!r} is in that of another volume, or holds it"
            answers[record.name] = Answer(verdict="left", record=record, reason=reason)
    return answers
