"""Snapshots of images by CSI calls, beside `cp --reflink` of the same file on the same disk."""

from __future__ import annotations

import asyncio
import os
import statistics
import subprocess
import time
from pathlib import Path

from benchmarks.claims import PoolNode, disk
from benchmarks.csicalls import Driver, driving
from benchmarks.table import Figure
from localvolume_lab.controlplane import ControlPlane

MIB, GIB = 1 << 20, 1 << 30
DISK = 256 * GIB
"""Sparse. Each snapshot counts as much as it would hold if its volume were written anew."""

LARGE, SMALL = 10 * GIB, GIB
ONE_BY_ONE, MANY = 10, 100
GOAL, MANY_GOAL = 0.15, 10.0


async def snapshots(plane: ControlPlane, directory: Path) -> list[Figure]:
    """Of a volume in use, one after the other; then a hundred of one volume at once."""
    node = PoolNode(plane, directory)
    with disk(node.pool, DISK):
        async with driving(node) as driver:
            return [await _one_by_one(driver, node.pool), await _many(driver, node.pool)]


async def _one_by_one(driver: Driver, pool: Path) -> Figure:
    handle, image, place = await _used(driver, pool, "large", LARGE)
    ours, bare = [], []
    for number in range(ONE_BY_ONE):
        write(place, MIB)
        began = time.perf_counter()
        await driver.call("CreateSnapshot", name=f"cut-{number}", source_volume_id=handle)
        ours.append(time.perf_counter() - began)
        bare.append(copy(image))
    await _clear(driver, handle)
    name = f"CSI: snapshot of {LARGE // GIB} GiB, reflink, p50 of {ONE_BY_ONE}"
    return Figure(name, statistics.median(ours), "s", "", GOAL, statistics.median(bare))


async def _many(driver: Driver, pool: Path) -> Figure:
    handle, image, _ = await _used(driver, pool, "small", SMALL)
    began = time.perf_counter()
    await asyncio.gather(
        *(
            driver.call("CreateSnapshot", name=f"many-{number}", source_volume_id=handle)
            for number in range(MANY)
        )
    )
    took = time.perf_counter() - began
    limit = sum(copy(image) for _ in range(MANY))
    await _clear(driver, handle)
    return Figure(f"CSI: {MANY} snapshots of one volume", took, "s", "", MANY_GOAL, limit)


async def _used(driver: Driver, pool: Path, name: str, size: int) -> tuple[str, Path, Path]:
    """A volume at its place for a pod, with something in it: its handle, image file, and place."""
    handle = await driver.make(name, size)
    place = await driver.use(handle)
    write(place, 256 * MIB)
    return handle, image_of(pool, handle), place


async def _clear(driver: Driver, handle: str) -> None:
    """Remove a volume and all of its snapshots."""
    listed = await driver.call("ListSnapshots", source_volume_id=handle)
    for entry in listed.entries:
        await driver.call("DeleteSnapshot", snapshot_id=entry.snapshot.snapshot_id)
    await driver.leave(handle)
    await driver.call("DeleteVolume", volume_id=handle)


def image_of(pool: Path, name: str) -> Path:
    """The file of a volume."""
    (found,) = (pool / ".localvolume").rglob(f"*{name}*.img")
    return found


def write(place: Path, size: int) -> None:
    """Write random bytes to a file there, and have them on disk."""
    with (place / "file").open("wb") as file:
        for _ in range(size // MIB):
            file.write(os.urandom(MIB))
        os.fsync(file.fileno())


def copy(image: Path) -> float:
    """How many seconds `cp --reflink` takes; its copy is removed again."""
    other = image.with_name("bare-copy")
    began = time.perf_counter()
    subprocess.run(["cp", "--reflink=always", str(image), str(other)], check=True)
    took = time.perf_counter() - began
    other.unlink()
    return took
