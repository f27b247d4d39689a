"""Makes a verdict for each disk and one digest for all of them from the facts. Pure.

A plan is what would be done to the blank disks, and what was done already under the same digest.
So an interrupted plan keeps its digest until it is done, and no other plan ever gets it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from localvolume.config.disks import DiskFilter, DisksConfig
from localvolume.disks.model import Disk, DiskFacts, DiskPlan, Judged
from localvolume.disks.plan.naming import (
    digest_of,
    entry_name,
    line_of,
    link_entry_name,
    stable,
    text_of,
    uuid_of,
    written,
)
from localvolume.disks.plan.predicates import INSIDE, MEANT, OUTSIDE, first_reason, is_begun


def wanted_by(disk: Disk, config: DisksConfig) -> tuple[DiskFilter | None, str]:
    """The first filter that means the disk, or why none does."""
    reasons = []
    for wanted in config.filters:
        _, reason = first_reason(MEANT, disk, wanted)
        if not reason:
            return wanted, ""
        reasons.append(f"{wanted.name}: {reason}")
    return None, "; ".join(reasons) or "there is no filter"


def worth_a_look(disk: Disk, config: DisksConfig) -> bool:
    """Whether to open the disk: a filter means it, and nothing outside speaks against it."""
    wanted, _ = wanted_by(disk, config)
    return wanted is not None and not first_reason(OUTSIDE, disk, wanted)[0]


def plan(facts: DiskFacts) -> DiskPlan:
    """A verdict for every disk, in the order of the facts, and the digest of what is to be done."""
    names = Counter(written(stable(disk.identity)) for disk in facts.disks)
    twins = {name for name, count in names.items() if count > 1}
    rows = [_judge(disk, facts.config, twins) for disk in facts.disks]
    todo = [row for row in rows if row.verdict in ("format", "link")]
    if not todo:
        return DiskPlan(rows=tuple(rows))
    lines = _lines(todo)
    partly = []
    for digest in sorted(facts.config.approved):
        done = _lines(row for row in rows if row.digest == digest)
        text = text_of(facts.node_name, [*lines, *done])
        if digest_of(text) == digest:
            return _told(rows, digest, text, approved=True)
        if digest_of(text_of(facts.node_name, done)) == digest:
            continue  # All of it is done: what came since belongs to another plan.
        if done or any(_begun_under(row) == digest for row in todo):
            partly.append(digest)
    text = text_of(facts.node_name, lines)
    return _told(rows, digest_of(text), text, approved=False, partly=tuple(partly))


def _lines(rows: Iterable[Judged]) -> list[str]:
    return [line_of(row.disk, row.filter) for row in rows if row.filter is not None]


def _begun_under(row: Judged) -> str:
    claim = row.disk.inside.claim if row.disk.inside else None
    return claim.digest if claim else ""


def _told(
    rows: Sequence[Judged],
    digest: str,
    text: str,
    *,
    approved: bool,
    partly: tuple[str, ...] = (),
) -> DiskPlan:
    state = "is approved" if approved else "is not approved"
    told = tuple(
        replace(row, reason=f"{row.reason}; the plan {state}")
        if row.verdict in ("format", "link")
        else row
        for row in rows
    )
    return DiskPlan(rows=told, digest=digest, text=text, approved=approved, partly=partly)


def _judge(disk: Disk, config: DisksConfig, twins: set[str]) -> Judged:
    wanted, reason = wanted_by(disk, config)
    if wanted is None:
        return Judged(disk=disk, verdict="skip", reason=reason)
    code, reason = first_reason(OUTSIDE, disk, wanted)
    if not code and written(stable(disk.identity)) in twins:
        code, reason = "twin", "another disk here has the same identity: it is the same, or a copy"
    if not code and (done := _done(disk, wanted, config)):
        return done
    if not code:
        code, reason = first_reason(INSIDE, disk, wanted)
    if code:
        return Judged(disk=disk, verdict="hold", reason=reason, code=code, filter=wanted)
    if wanted.block:
        reason = f"it is blank, and {wanted.name} matches it: becomes {wanted.class_name}"
        return Judged(disk=disk, verdict="link", reason=reason, filter=wanted)
    begun = is_begun(disk, wanted)
    state = "its formatting was begun here and not finished" if begun else "it is blank"
    reason = f"{state}, and {wanted.name} matches it: {wanted.fs_type} for {wanted.class_name}"
    return Judged(disk=disk, verdict="format", reason=reason, filter=wanted, begun=begun)


def _done(disk: Disk, wanted: DiskFilter, config: DisksConfig) -> Judged | None:
    """What was made of it under an approved plan: mounted or linked, or yet to be mounted."""
    if wanted.block:
        return _linked(disk, wanted, config)
    inside = disk.inside
    if inside is None or inside.unknown or not inside.fs_uuid or inside.claim:
        return None
    path = f"{wanted.mount_dir}/{entry_name(disk)}"
    for digest in config.approved:
        if inside.fs_uuid != uuid_of(digest, disk, wanted):
            continue
        if path in inside.mounts:
            reason = f"it was formatted, and is mounted at {path}"
            return Judged(disk=disk, verdict="done", reason=reason, filter=wanted, digest=digest)
        reason = f"it was formatted, and is not mounted at {path}"
        judged = Judged(disk=disk, verdict="mount", reason=reason, filter=wanted, digest=digest)
        # Somebody has it, perhaps as a raw volume: then a tenant made what is on it.
        users = (*inside.mounts, *disk.offered)
        others = (*inside.users, inside.in_use, disk.taken)
        if user := ", ".join(users) or next(filter(None, others), ""):
            reason = f"it was formatted, but is mounted or used elsewhere: {user}"
            return replace(judged, verdict="hold", code="elsewhere", reason=reason)
        return judged
    return None


def _linked(disk: Disk, wanted: DiskFilter, config: DisksConfig) -> Judged | None:
    for digest in config.approved:
        path = f"{wanted.mount_dir}/{link_entry_name(disk, digest)}"
        if path in disk.offered:
            reason = f"{path} leads to it"
            return Judged(disk=disk, verdict="done", reason=reason, filter=wanted, digest=digest)
    return None
