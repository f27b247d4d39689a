"""Pools whose files were copied: all have the names that they had, and other inodes."""

from __future__ import annotations

import shutil
from pathlib import Path

from localvolume.backends.model import Record
from localvolume.backends.pool.pool import PoolStore
from localvolume.backends.pool.records import decode
from tests.cluster.support_dynamic import DynamicLab, MadePool
from tests.host.support_devices import command


def moved_to_another_disk(lab: DynamicLab, pool: MadePool, *, over: bool = False) -> None:
    """Copy the pool's files to a new disk and mount that in place of the old one.

    `over`: on top of it, as where somebody has it open. On the new disk no inode has the number of
    one on the old disk, which may happen to be so and is another test's matter.
    """
    disk, aside = lab.disk(), lab.directory / f"aside-{pool.name}"
    lab.mount(disk, aside)
    used_up = aside / "used-up"
    used_up.mkdir()
    for number in range(1000):
        (used_up / str(number)).touch()
    command("cp", "-a", f"{pool.directory}/.", aside)
    shutil.rmtree(used_up)
    command("umount", aside)
    if not over:
        command("umount", pool.directory)
    lab.mount(disk, pool.directory)


def copied_in_place(*paths: Path) -> None:
    """Put copies where those are, all with new inodes."""
    for path in paths:
        command("cp", "-a", path, f"{path}.copy")
    for path in paths:
        command("rm", "-r", path)
        Path(f"{path}.copy").rename(path)


def records_in(where: Path) -> dict[str, Record]:
    """The pool's records, as they are on disk: without what is being written just now."""
    files = (where / ".localvolume" / "records").glob("*.json")
    return {file.stem: decode(file.stem, file.read_bytes()) for file in files}


def unusable(store: PoolStore) -> dict[str, str]:
    """What keeps an agent from using each volume, by name; "" for what keeps it from the pool."""
    if problem := store.look().problem:
        return {"": problem}
    return store.attach_all()
