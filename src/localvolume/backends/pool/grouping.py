"""Groups of snapshots in a pool: several volumes are cut at one moment, and all or none are there.

Each record says of which group it is, and how many that has. They are written one by one, and the
last one that is `made` completes the group. Until then nobody was told of it: what a crash leaves
of a group is taken away, and never completed, since the moment of its cut is over.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from localvolume.backends.model import Backend, BackendFailed, Impossible, Record, outgrew
from localvolume.backends.pool.making import begin, take_away, unmake
from localvolume.backends.pool.session import OpenPool

log = logging.getLogger(__name__)


class Member(NamedTuple):
    """A snapshot that is asked for, its record if it has one already, and its living origin."""

    record: Record
    known: Record | None
    origin: Record


def cut_together(using: OpenPool, backend: Backend, members: Sequence[Member]) -> Sequence[Record]:
    """Cut all of them; see ``Store``. Raises BackendFailed, OSError."""
    for record, known, origin in members:
        if known is not None:
            raise BackendFailed(f"{record.name} is left of an attempt that was not completed")
        if origin.adopted:
            raise Impossible(f"{origin.name} is an older provisioner's: it is not copied")
        if outgrew(origin, record):
            raise BackendFailed(f"{origin.name} has grown meanwhile")
    return _cut(using, backend, members)


def _cut(using: OpenPool, backend: Backend, members: Sequence[Member]) -> list[Record]:
    pool, path = using.root.pool, using.root.path
    begun: list[Record] = []
    try:
        # What was begun is in the list also if the next one fails.
        begun += (begin(using, backend, member.record) for member in members)
        pairs = [(one, member.origin) for one, member in zip(begun, members, strict=True)]
        cut = [replace(one, state="made") for one in backend.cut_together(pool, path, pairs)]
    except BaseException:
        _leave_none(using, backend, begun, unmake)
        raise
    try:
        for record in cut:
            using.records.write(record)
    except BaseException:
        _leave_none(using, backend, cut, take_away)
        raise
    return cut


def _leave_none(
    using: OpenPool,
    backend: Backend,
    records: Sequence[Record],
    remove: Callable[[OpenPool, Backend, Record], None],
) -> None:
    """Remove what there is of a group. What cannot be removed now is taken away later."""
    for record in records:
        try:
            remove(using, backend, record)
        except (BackendFailed, OSError) as error:
            log.warning("%s of group %s stays for now: %s", record.name, record.group, error)
