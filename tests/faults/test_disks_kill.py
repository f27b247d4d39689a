"""kill -9 between any two steps of formatting disks, and within mkfs: the next life finishes it.

Never is a disk touched that is not of the plan, never one that was finished; and what was begun is
always recognised, so that nobody has to wipe it by hand.

Each point is met once, with one of the filesystems; the soak kills within mkfs at random.
"""

import contextlib
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import localvolume
from localvolume.host.locks import is_device_locked
from localvolume.host.mount.mounts import read_mount_table
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.host.support_disks import Bench, bench
from tests.suite.chance import SEED, rounds
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs")

#: After which part of this a life is killed within mkfs: most of it is over then.
_MKFS_SECONDS = 0.15
_FS_TYPES = ("ext4", "xfs")
_SOURCE = os.path.dirname(os.path.dirname(localvolume.__file__))
_TREE = str(Path(__file__).parents[2])

Point = tuple[str, int, str | float]


@dataclass
class Stage:
    """Two disks to format, and canaries beside them."""

    bench: Bench
    disks: list[LoopDevice]
    canaries: list[LoopDevice]
    met: dict[str, int]

    def reset(self) -> None:
        """Two blank disks again, and the empty directory."""
        command_or_none("umount", *map(str, self.bench.directory.iterdir()))
        for entry in self.bench.directory.iterdir():
            entry.unlink() if entry.is_symlink() else entry.rmdir()
        for disk in self.disks:
            os.truncate(disk.backing, 0)
            os.truncate(disk.backing, self.bench.size)
            command("blockdev", "--flushbufs", disk.path)
        self.bench.approved = frozenset()
        self.bench.approved = frozenset({self.bench.plan().digest})

    def live(self, point: Point | None = None, *, within: tuple[str, ...] = ()) -> int:
        """One life, `within` the words of another command; its exit status."""
        fields = {
            "directory": str(self.bench.directory),
            "size": self.bench.size,
            "by_id": str(self.bench.by_id),
            "fs_type": self.bench.fs_type,
            "mkfs_options": self.bench.mkfs_options,
            "approved": sorted(self.bench.approved),
        }
        program = str(Path(__file__).with_name("disks_life.py"))
        done = subprocess.run(
            [*within, sys.executable, program, json.dumps(fields), json.dumps(point)],
            capture_output=True,
            text=True,
            timeout=120,
            env={**os.environ, "PYTHONPATH": f"{_SOURCE}:{_TREE}"},
        )
        if done.returncode == 0:
            self.met = json.loads(done.stdout)
        assert done.returncode in (0, -signal.SIGKILL), done.stderr[-3000:]
        self._let_go()
        return done.returncode

    def _let_go(self) -> None:
        """Wait until nobody works on the disks: mkfs dies with its agent, but only after it."""
        until(
            lambda: [disk.path for disk in self.disks if _is_worked_on(disk)],
            lambda busy: not busy,
        )

    def contents(self) -> list[str]:
        """The canaries, byte for byte."""
        sums = []
        for canary in self.canaries:
            command("blockdev", "--flushbufs", canary.path)
            sums.append(hashlib.sha256(canary.backing.read_bytes()).hexdigest())
        return sums

    def mounted(self) -> list[Path]:
        return [path for path in sorted(self.bench.directory.iterdir()) if os.path.ismount(path)]

    def check_killed_at(self, point: Point) -> None:
        """Kill a life at a point; the next one must bring all to its end."""
        self.reset()
        before = self.contents()
        killed = self.live(point)
        assert self.contents() == before, f"{point} touched a canary"
        # Somebody has begun to use what is there.
        tenants = [path / "file" for path in self.mounted()]
        for tenant in tenants:
            tenant.write_text("tenant data")
        rows = self.bench.plan().rows
        mine = {disk.path for disk in self.disks}
        held = [row.reason for row in rows if row.disk.node in mine and row.verdict == "hold"]
        assert not held, f"after {point}: {held}"
        assert self.live() == 0
        assert [self.bench.row(disk).verdict for disk in self.disks] == ["done", "done"], point
        assert all(tenant.read_text() == "tenant data" for tenant in tenants), point
        assert self.contents() == before, f"after {point} a canary was touched"
        if isinstance(point[2], str):
            assert killed != 0, f"{point} was never met"


def _is_worked_on(disk: LoopDevice) -> bool:
    """Whether somebody else than a mount has the disk for themselves."""
    if read_mount_table().of_device(disk.number):
        return False
    try:
        os.close(os.open(disk.path, os.O_RDONLY | os.O_EXCL))
    except OSError:
        return True
    return is_device_locked(disk.path)


def command_or_none(*argv: str) -> None:
    if len(argv) > 1:
        subprocess.run(argv, capture_output=True, timeout=60)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    with contextlib.ExitStack() as stack, bench(tmp_path) as made:
        disks = [made.disk(stack) for _ in range(2)]
        for disk in disks:
            (made.by_id / f"wwn-{disk.name}").symlink_to(disk.path)
        # One of the same size that holds something, one blank of another: and small, to be read.
        canaries = [stack.enter_context(loop_device(n * MIB)) for n in (4, 6)]
        for canary in canaries:
            with open(canary.path, "r+b") as file:
                file.write(b"canary" * 1000)
        holding = made.disk(stack)
        with open(holding.path, "r+b") as file:
            file.seek(made.size - 20)
            file.write(b"somebody's data")
        stage = Stage(made, disks, canaries, {})
        yield stage
        with open(holding.path, "rb") as file:
            file.seek(made.size - 20)
            assert file.read(15) == b"somebody's data"
            file.seek(0)
            assert not file.read(MIB).strip(b"\0")
        command_or_none("umount", *map(str, made.directory.iterdir()))


@pytest.mark.parametrize("fs_type", _FS_TYPES)
def test_between_any_two_steps(stage: Stage, fs_type: str) -> None:
    stage.bench.fs_type = fs_type
    stage.reset()
    assert stage.live() == 0
    kinds = stage.met
    # Both disks are locked first; each has 8 copies of a claim written and erased again.
    assert {kind: kinds[kind] for kind in ("lock", "mkfs", "open", "mount")} == dict.fromkeys(
        ("lock", "mkfs", "open", "mount"), 2
    )
    # The first and last copies of a claim, one between, those of the other disk, the erasing.
    points: list[Point] = [("put", n, "after") for n in (1, 5, 8, 9, 16, kinds["put"])]
    points += [("put", 1, "before"), ("lock", 2, "after"), ("mkdir", 1, "after")]
    points += [
        (kind, n, when)
        for kind in ("mkfs", "mount")
        for n, when in ((1, "before"), (1, "after"), (2, "after"))
    ]
    for point in points[_FS_TYPES.index(fs_type) :: 2]:
        stage.check_killed_at(point)


@pytest.mark.parametrize("fs_type", _FS_TYPES)
def test_within_mkfs(stage: Stage, fs_type: str) -> None:
    slow_mkfs(stage, fs_type)
    for number, part in ((1, 0.1), (2, 0.7)):
        stage.check_killed_at(("mkfs", number, part * _MKFS_SECONDS))


@pytest.mark.soak
@pytest.mark.parametrize("fs_type", _FS_TYPES)
def test_within_mkfs_at_any_moment(stage: Stage, fs_type: str) -> None:
    slow_mkfs(stage, fs_type)
    choice = random.Random(SEED)
    for number in rounds():
        stage.check_killed_at(("mkfs", 1 + number % 2, choice.random() * _MKFS_SECONDS))


def slow_mkfs(stage: Stage, fs_type: str) -> None:
    stage.bench.fs_type = fs_type
    if fs_type == "ext4":
        # All tables are written at once: that takes a while.
        stage.bench.mkfs_options = ("-E", "lazy_itable_init=0", "-i", "2048")


def test_a_link(stage: Stage) -> None:
    stage.bench.fs_type = ""
    stage.check_killed_at(("link", 1, "after"))


def test_killed_again_while_it_begins_anew(stage: Stage) -> None:
    """What is left of one life is begun anew by the next, which dies as well."""
    stage.reset()
    before = stage.contents()
    assert stage.live(("mkfs", 1, "after")) != 0
    # Of the one that was begun, both ends are blanked first.
    for n in (1, 2, 3, 6):
        assert stage.live(("put", n, "after")) != 0
    assert stage.live() == 0
    assert [stage.bench.row(disk).verdict for disk in stage.disks] == ["done", "done"]
    assert stage.contents() == before


def test_what_is_mounted_in_a_container_reaches_the_host(stage: Stage) -> None:
    """As with mountPropagation Bidirectional; with HostToContainer nothing is done."""
    stage.reset()
    unshare = ("unshare", "--mount", "--propagation")
    assert stage.live(within=(*unshare, "slave")) == 0
    assert "mkfs" not in stage.met
    assert [stage.bench.row(disk).verdict for disk in stage.disks] == ["format", "format"]
    assert stage.live(within=(*unshare, "unchanged")) == 0
    assert len(stage.mounted()) == 2
    assert [stage.bench.row(disk).verdict for disk in stage.disks] == ["done", "done"]
