"""Disks to format: loop devices of a size that nobody else has, and a directory for their volumes.

Other tests have loop devices at the same time; the filters here mean one size to the byte.
"""

import asyncio
import contextlib
import dataclasses
import os
import random
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from localvolume.config.disks import DiskFilter, DiskMatch, DisksConfig
from localvolume.config.model import ClassConfig
from localvolume.disks import act, facts
from localvolume.disks.model import DiskFacts, DiskPlan, Judged
from localvolume.disks.plan.plan import plan
from localvolume.host.process.workers import Workers
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes.identity import Identity
from tests.host.support_devices import LoopDevice, command, loop_device
from tests.suite.units import GIB

NODE = "disk-node"


def odd_size(least: int = GIB) -> int:
    """A size that no other disk has."""
    return least + random.randrange(1, 1 << 16) * 4096


@contextlib.contextmanager
def shared_directory(path: Path) -> Iterator[Path]:
    """A directory that is a shared mount, as one with mountPropagation Bidirectional is."""
    path.mkdir(exist_ok=True)
    command("mount", "--bind", path, path)
    try:
        command("mount", "--make-private", path)
        command("mount", "--make-shared", path)
        yield path
    finally:
        subprocess.run(["umount", "--recursive", str(path)], capture_output=True, timeout=60)
        rest = subprocess.run(["findmnt", "-rno", "TARGET", str(path)], capture_output=True)
        assert not rest.stdout, rest.stdout


@dataclass
class Bench:
    """One class, one filter, and the look, plan and act of a node on them."""

    directory: Path
    size: int
    by_id: Path
    fs_type: str = "ext4"
    mkfs_options: tuple[str, ...] = ()
    partitions: bool = False
    approved: frozenset[str] = frozenset()
    named: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, Identity] = field(default_factory=dict)
    most: int | None = None
    pod: PodMounts | None = None

    @property
    def classes(self) -> list[ClassConfig]:
        mode = "Filesystem" if self.fs_type else "Block"
        return [
            ClassConfig(
                name="fast",
                host_dir="/host/fast",
                mount_dir=str(self.directory),
                volume_mode=mode,  # type: ignore[arg-type]
            )
        ]

    @property
    def config(self) -> DisksConfig:
        match = DiskMatch(
            min_bytes=self.size,
            max_bytes=self.most or self.size,
            transport="loop",
            partitions=self.partitions,
        )
        wanted = DiskFilter(
            name="loops",
            class_name="fast",
            host_dir="/host/fast",
            mount_dir=str(self.directory),
            match=match,
            fs_type=self.fs_type,
            mkfs_options=self.mkfs_options,
        )
        return DisksConfig(filters=(wanted,), approved=self.approved)

    async def look(self, workers: Workers) -> DiskFacts:
        return await facts.look(
            *(NODE, self.config, self.classes, self.named, workers),
            recorded=self.recorded,
            by_id=str(self.by_id),
            pod=self.pod,
        )

    def plan(self) -> DiskPlan:
        """Look, and plan; only what the filter means is in the rows."""

        async def planned() -> DiskPlan:
            workers = Workers()
            try:
                return plan(await self.look(workers))
            finally:
                workers.close()

        found = asyncio.run(planned())
        return dataclasses.replace(found, rows=tuple(r for r in found.rows if r.filter))

    def approve(self) -> DiskPlan:
        """Approve what there is to do now; the plan as it is then."""
        self.approved |= {self.plan().digest}
        return self.plan()

    def carry_out(
        self, approved: DiskPlan, *answers: bool, reclaim_seconds: float = act.RECLAIM_SECONDS
    ) -> list[act.Outcome]:
        """`answers`: whether it is still approved, each time that is asked; always, without any."""
        told = iter(answers)

        async def done() -> list[act.Outcome]:
            workers = Workers()
            try:
                return await act.carry_out(
                    approved,
                    workers,
                    by_id=str(self.by_id),
                    approved=lambda: next(told) if answers else True,
                    reclaim_seconds=reclaim_seconds,
                )
            finally:
                workers.close()

        return asyncio.run(done())

    def mount_again(self, row: Judged) -> act.Outcome:
        async def done() -> act.Outcome:
            workers = Workers()
            try:
                return await act.mount_again(row, workers)
            finally:
                workers.close()

        return asyncio.run(done())

    def row(self, device: LoopDevice | str) -> Judged:
        """The verdict on one device."""
        node = device if isinstance(device, str) else device.path
        (found,) = [row for row in self.plan().rows if row.disk.node == node]
        return found

    def disk(self, stack: contextlib.ExitStack) -> LoopDevice:
        """One more disk that the filter means."""
        return stack.enter_context(loop_device(self.size))


@contextlib.contextmanager
def bench(tmp_path: Path, fs_type: str = "ext4", **keys: object) -> Iterator[Bench]:
    by_id = tmp_path / "by-id"
    by_id.mkdir()
    with shared_directory(tmp_path / "fast") as directory:
        made = Bench(directory.resolve(), odd_size(), by_id, fs_type)
        yield dataclasses.replace(made, **keys)  # type: ignore[arg-type]


@contextlib.contextmanager
def in_place_of(
    program: str, script: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Let a shell script be found in place of a program."""
    directory.mkdir()
    (directory / program).write_text(f"#!/bin/sh\n{script}\n")
    (directory / program).chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        yield
