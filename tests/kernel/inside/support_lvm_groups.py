"""Groups of snapshots of thin volumes: asked for, looked behind, and their filesystems as well."""

import contextlib
import fcntl
import os
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.lvm.together import why_not
from localvolume.backends.model import Record
from localvolume.dynamic.plan.calls.snapshots import snapshot_record
from localvolume.host.lvm.commands import Lvm
from tests.suite.units import MIB
from tests.suite.until import until

from .support_lvm_store import Pool, pool_on

FREEZE, THAW = 0xC0045877, 0xC0045878

#: Of tests that need a Linux on which LVM can cut what is frozen: conftest.py leaves out what they
#: do on an older one, which serves where a newer one could not be had.
NESTING = "nesting"

nesting = pytest.mark.nesting


def can_nest() -> bool:
    """Whether this kernel suspends volumes that are frozen."""
    return not why_not(os.uname().release)


@pytest.fixture
def roomy(volume_group: str, lvm: Lvm, tmp_path: Path) -> Iterator[Pool]:
    """A pool that promises more than it has: an xfs is large, and takes little."""
    lvm.create_pool(volume_group, "pool", 440 * MIB)
    pool = pool_on(volume_group, tmp_path, thin_pool="pool", overbook=9)
    yield pool
    pool.end()


def volumes(pool: Pool, *contents: str) -> list[Record]:
    """Volumes of those filesystems, offered to pods."""
    sizes = {"ext4": 16, "xfs": 300, "raw": 8}
    kinds: dict[str, dict[str, str]] = {"raw": {"volume_mode": "Block"}}
    return [
        pool.offer(f"o{number}", sizes[one], **kinds.get(one, {"fs_type": one}))
        for number, one in enumerate(contents)
    ]


def members(origins: Sequence[Record], group: str = "g") -> list[tuple[Record, Record]]:
    """What is asked for: a snapshot of each."""
    found = []
    for one in origins:
        record = snapshot_record(one, f"{group}-{one.name}", one.size_bytes)
        found.append((replace(record, group=group, group_size=len(origins)), one))
    return found


def cut(store: LvmStore, origins: Sequence[Record], group: str = "g") -> list[Record]:
    """The snapshots as they are told of."""
    return [store.offered(one) for one in store.cut_together(members(origins, group))]


@contextlib.contextmanager
def all_mounted(pool: Pool, origins: Sequence[Record]) -> Iterator[list[Path]]:
    with contextlib.ExitStack() as mounts:
        yield [mounts.enter_context(pool.mounted(one.name)) for one in origins]


def still_writable(places: Sequence[Path]) -> None:
    """No filesystem is frozen: what writes to it gets on."""
    done = threading.Event()

    def write() -> None:
        for where in places:
            with (where / "still").open("w") as file:
                file.write("writable")
                file.flush()
                os.fsync(file.fileno())
        done.set()

    threading.Thread(target=write, daemon=True).start()
    assert done.wait(120), "it is frozen"


def is_frozen(where: Path) -> bool:
    """Whether somebody has it frozen."""
    fd = os.open(where, os.O_RDONLY)
    try:
        fcntl.ioctl(fd, FREEZE, 0)
        fcntl.ioctl(fd, THAW, 0)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def until_thawed(where: Path) -> None:
    """Nobody has it frozen any more."""
    until(lambda: is_frozen(where), lambda frozen: not frozen, seconds=120)


def nothing_left(pool: Pool, origins: Sequence[Record], *others: str) -> None:
    """Of a group: neither a snapshot nor a device that is suspended."""
    report = pool.store.look()
    assert set(report.records) == {one.name for one in origins}, report
    assert not report.orphans
    assert pool.lvm_names() == sorted(["pool", *(one.name for one in origins), *others])
    assert not any(one.suspended for one in pool.lvm.volumes(pool.group))
