"""Pools that take their room from one filesystem, each told of the others: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from localvolume.backends.capacity import beside
from localvolume.dynamic.model import Pool


def with_neighbours(pools: Sequence[Pool]) -> list[Pool]:
    """The same pools, with what the others of its filesystem do to the room of each."""
    return [
        replace(pool, beside=beside((one.config, one.report) for one in _others(pool, pools)))
        for pool in pools
    ]


def _others(pool: Pool, pools: Sequence[Pool]) -> list[Pool]:
    where = pool.report.filesystem
    return [one for one in pools if where and one is not pool and one.report.filesystem == where]
