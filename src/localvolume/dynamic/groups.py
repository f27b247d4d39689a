"""Cuts and removes groups of snapshots, and answers the calls that ask for it. Decides nothing."""

from __future__ import annotations

import logging

from localvolume.backends.model import Record
from localvolume.dynamic.called import Calls
from localvolume.dynamic.calls import Volume
from localvolume.dynamic.model import CutGroup, RemoveGroup
from localvolume.dynamic.pools import Pools

log = logging.getLogger(__name__)


async def cut(pools: Pools, calls: Calls, action: CutGroup) -> None:
    """Raises BackendFailed, Hung and OSError."""
    pool, cut_now = action.pool, action.records
    if action.origins:
        members = tuple(zip(action.records, action.origins, strict=True))
        names = {one.name for member in members for one in member}
        cut_now = tuple(
            await pools.call(
                pool, action.key, lambda store: store.cut_together(members), also=names
            )
        )
        log.info("%s: cut %d snapshots", action.key, len(cut_now), extra={"pool": pool.name})
    for record in cut_now:
        # From the answer on, a tenant may have it.
        made = await _offered(pools, action, record)
        calls.answer(made.name, Volume(record=made, pool=pool.name))
    calls.answer(action.key, None)


async def _offered(pools: Pools, action: CutGroup, record: Record) -> Record:
    return await pools.call(action.pool, record.name, lambda store: store.offered(record))


async def remove(pools: Pools, calls: Calls, action: RemoveGroup) -> None:
    """Raises BackendFailed, Hung and OSError; a repeated call goes on with what is left."""
    for record in action.records:
        await _remove_one(pools, action, record)
        calls.answer(record.name, None)
    log.info("%s: removed", action.key, extra={"pool": action.pool.name})
    calls.answer(action.key, None)


async def _remove_one(pools: Pools, action: RemoveGroup, record: Record) -> None:
    if record.state == "offered":
        await pools.call(action.pool, record.name, lambda store: store.retire(record))
    else:
        await pools.call(action.pool, record.name, lambda store: store.take_away(record))
