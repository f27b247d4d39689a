"""Snapshots, restores and clones of the running agent, from the call to what a pod would read."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from tests.cluster.support_csi import CsiLab, mounted_below
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

SIZE = 320 * MIB
"""Of a volume; a new xfs takes at least 300 MiB."""
POOL = 4096 * MIB
CAPABILITY = {"mount": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}


@dataclass(frozen=True)
class Kind:
    """A pool that copies volumes, and the parameters of the StorageClass."""

    pool: dict[str, Any]
    parameters: dict[str, str] = field(default_factory=dict)


XFS = {"backend": "image", "fs_type": "xfs"}
KINDS = [
    pytest.param(Kind(XFS, {"fsType": "ext4"}), id="image-ext4", marks=pytest.mark.needs("xfs")),
    pytest.param(Kind(XFS, {"fsType": "xfs"}), id="image-xfs", marks=pytest.mark.needs("xfs")),
    pytest.param(
        Kind({"backend": "btrfs", "fs_type": "btrfs"}),
        id="btrfs",
        marks=pytest.mark.needs("btrfs"),
    ),
]


def create(lab: CsiLab, kind: Kind, name: str, size: int = SIZE, **fields: Any) -> Any:
    return lab.call(
        "CreateVolume",
        name=name,
        capacity_range={"required_bytes": size},
        volume_capabilities=[CAPABILITY],
        parameters=kind.parameters,
        **fields,
    ).volume


def of_snapshot(handle: str) -> dict[str, Any]:
    return {"volume_content_source": {"snapshot": {"snapshot_id": handle}}}


def of_volume(handle: str) -> dict[str, Any]:
    return {"volume_content_source": {"volume": {"volume_id": handle}}}


@contextmanager
def mounted(lab: CsiLab, handle: str) -> Iterator[Path]:
    """The volume as a pod has it."""
    staging, target = lab.kubelet / f"staging-{handle}", lab.kubelet / f"target-{handle}"
    staging.mkdir(exist_ok=True)
    there = {"volume_id": handle, "staging_target_path": str(staging)}
    one = {"volume_capability": CAPABILITY, "target_path": str(target)}
    lab.call("NodeStageVolume", **there, volume_capability=CAPABILITY)
    lab.call("NodePublishVolume", **there, **one)
    try:
        yield target
    finally:
        lab.call("NodeUnpublishVolume", volume_id=handle, target_path=str(target))
        lab.until(lambda: _unstaged(lab, there), bool)


def _unstaged(lab: CsiLab, there: dict[str, Any]) -> bool:
    """Whether it is done. While a look at its health has it open, the kubelet would ask again."""
    try:
        lab.call("NodeUnstageVolume", **there)
    except GRPCError as error:
        if "is in use" not in (error.message or ""):
            raise
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_each_copy_has_what_was_there_and_goes_on_without_the_others(
    csi: CsiLab, kind: Kind
) -> None:
    pool = csi.csi_pool(size=POOL, **kind.pool)
    csi.serve()
    source = create(csi, kind, "source").volume_id
    with mounted(csi, source) as path:
        # Nothing is synced: what was written before the call is in the snapshot all the same.
        (path / "old").write_bytes(b"old" * MIB)
        cut = csi.call("CreateSnapshot", name="snapshot-1", source_volume_id=source).snapshot
        (path / "old").write_bytes(b"new" * MIB)
        cloned = create(csi, kind, "clone", **of_volume(source))
        (path / "old").unlink()
        restored = create(csi, kind, "restore", 2 * SIZE, **of_snapshot(cut.snapshot_id))
        assert (cut.size_bytes, cut.ready_to_use) == (SIZE, True)
        assert (cloned.capacity_bytes, restored.capacity_bytes) == (SIZE, 2 * SIZE)
        # All are of one node, and so used side by side.
        with mounted(csi, "restore") as first, mounted(csi, "clone") as second:
            assert (first / "old").read_bytes() == b"old" * MIB
            assert (second / "old").read_bytes() == b"new" * MIB
            room = os.statvfs(first)
            assert room.f_blocks * room.f_frsize > SIZE
            (first / "old").write_bytes(b"own" * MIB)
        assert not (path / "old").exists()
    csi.call("DeleteVolume", volume_id=source)
    with mounted(csi, "restore") as first, mounted(csi, "clone") as second:
        assert (first / "old").read_bytes() == b"own" * MIB
        assert (second / "old").read_bytes() == b"new" * MIB
    again = create(csi, kind, "again", **of_snapshot(cut.snapshot_id)).volume_id
    csi.call("DeleteSnapshot", snapshot_id=cut.snapshot_id)
    with mounted(csi, again) as third:
        assert (third / "old").read_bytes() == b"old" * MIB
    for handle in ("restore", "clone", again):
        csi.call("DeleteVolume", volume_id=handle)
    assert mounted_below(csi.kubelet) == []
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_repeated_after_the_agent_was_killed_is_made_once(csi: CsiLab, kind: Kind) -> None:
    pool = csi.csi_pool(size=POOL, **kind.pool)
    program = csi.serve()
    source = create(csi, kind, "source").volume_id
    with mounted(csi, source) as path:
        (path / "data").write_bytes(b"data" * MIB)
    first = csi.call("CreateSnapshot", name="first", source_volume_id=source).snapshot

    def cut(number: int) -> Any:
        return csi.call("CreateSnapshot", name=f"cut-{number}", source_volume_id=source).snapshot

    def restore(number: int) -> Any:
        return create(csi, kind, f"restore-{number}", **of_snapshot(first.snapshot_id))

    asked = [(act, number) for number in range(3) for act in (cut, restore)]
    answered = threading.Event()

    def ask(act: Any, number: int) -> None:
        # The agent is killed under most of them.
        with suppress(GRPCError, StreamTerminatedError, OSError):
            act(number)
            answered.set()

    callers = [threading.Thread(target=ask, args=one) for one in asked]
    for caller in callers:
        caller.start()
    csi.until(answered.is_set, bool)
    program.kill()
    for caller in callers:
        caller.join()
    csi.agent = None
    csi.serve()

    made = [act(number) for act, number in asked]

    assert made == [act(number) for act, number in asked]
    listed = csi.call("ListSnapshots", source_volume_id=source).entries
    assert [one.snapshot.snapshot_id for one in listed] == ["cut-0", "cut-1", "cut-2", "first"]
    assert len(csi.call("ListVolumes").entries) == 4
    for number in range(3):
        with mounted(csi, f"restore-{number}") as path:
            assert (path / "data").read_bytes() == b"data" * MIB
    for one in listed:
        csi.call("DeleteSnapshot", snapshot_id=one.snapshot.snapshot_id)
    for handle in (source, "restore-0", "restore-1", "restore-2"):
        csi.call("DeleteVolume", volume_id=handle)
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


def test_a_pool_that_cannot_copy_says_why_and_what_it_has_stays(csi: CsiLab) -> None:
    csi.csi_pool(size=1024 * MIB, backend="image")
    csi.serve()
    kind = Kind({})
    source = create(csi, kind, "source", 32 * MIB).volume_id

    for rpc, fields in (
        ("CreateSnapshot", {"name": "cut", "source_volume_id": source}),
        (
            "CreateVolume",
            {"name": "clone", "volume_capabilities": [CAPABILITY], **of_volume(source)},
        ),
    ):
        with pytest.raises(GRPCError) as refused:
            csi.call(rpc, **fields)
        assert refused.value.status is Status.INVALID_ARGUMENT
        assert "pool fast" in str(refused.value.message)

    assert len(csi.call("ListVolumes").entries) == 1
    assert not csi.call("ListSnapshots").entries
