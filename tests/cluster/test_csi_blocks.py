"""Backups of block volumes by changed blocks, through the socket of an agent on a real node."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from grpclib.const import Status

from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import Caller
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane")

SIZE = 32 * MIB


class Backup:
    """A copy of a volume elsewhere, kept up by what the driver says has changed."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.content = bytearray(SIZE)
        self.copied = 0

    def full(self, snapshot: str, device: Path) -> None:
        """All of a snapshot that holds data, of a volume restored from it."""
        self._copy(self.caller.call("GetMetadataAllocated", snapshot_id=snapshot), device)

    def further(self, base: str, snapshot: str, device: Path, start: int = 0) -> None:
        """What has changed since another snapshot that is in the copy already."""
        told = self.caller.call(
            "GetMetadataDelta",
            base_snapshot_id=base,
            target_snapshot_id=snapshot,
            starting_offset=start,
        )
        self._copy(told, device)

    def _copy(self, told: list[object], device: Path) -> None:
        self.copied = 0
        with device.open("rb") as source:
            for message in told:
                assert message.volume_capacity_bytes == SIZE  # type: ignore[attr-defined]
                for one in message.block_metadata:  # type: ignore[attr-defined]
                    source.seek(one.byte_offset)
                    at = slice(one.byte_offset, one.byte_offset + one.size_bytes)
                    self.content[at] = source.read(one.size_bytes)
                    self.copied += one.size_bytes


@pytest.fixture
def caller(csi: CsiLab) -> Caller:
    return Caller(csi.kubelet)


def write(device: Path, dice: random.Random) -> None:
    """Some megabytes, in pieces of all sizes."""
    with device.open("r+b", buffering=0) as file:
        for _ in range(60):
            length = dice.choice([1, 512, 4096, 100_000])
            file.seek(dice.randrange(SIZE - length))
            file.write(dice.randbytes(length))
        os.fsync(file.fileno())


def cut(caller: Caller, name: str, volume: str) -> str:
    answer = caller.call("CreateSnapshot", name=name, source_volume_id=volume)
    return str(answer.snapshot.snapshot_id)


def restored(caller: Caller, snapshot: str) -> Path:
    """A device with the content of a snapshot, as a pod of a backup has it."""
    origin = {"snapshot": {"snapshot_id": snapshot}}
    wanted = caller.wanted(f"of-{snapshot}", SIZE, block=True)
    answer = caller.call("CreateVolume", **wanted, volume_content_source=origin)
    handle = str(answer.volume.volume_id)
    caller.stage(handle, block=True)
    return caller.publish(handle, block=True)


def test_a_backup_is_kept_up_by_what_has_changed(csi: CsiLab, caller: Caller) -> None:
    csi.csi_pool(backend="image", fs_type="xfs", size=512 * MIB)
    agent = csi.serve()
    assert "SNAPSHOT_METADATA_SERVICE" in str(caller.call("GetPluginCapabilities"))
    dice = random.Random(8)
    volume = caller.create("v", SIZE, block=True)
    caller.stage(volume, block=True)
    device = caller.publish(volume, block=True)
    backup, cuts = Backup(caller), list[str]()
    for number in range(3):
        write(device, dice)
        snapshot = cut(caller, f"s{number}", volume)
        write(device, dice)
        source = restored(caller, snapshot)
        if cuts:
            backup.further(cuts[-1], snapshot, source)
        else:
            backup.full(snapshot, source)
        cuts.append(snapshot)
        assert backup.content == source.read_bytes()
        assert 0 < backup.copied < SIZE

    # Half of it, then the agent is killed: the rest is told from where it was cut off.
    source = caller.target(f"of-{cuts[2]}")
    again = Backup(caller)
    again.full(cuts[0], caller.target(f"of-{cuts[0]}"))
    kept = bytes(again.content)
    again.further(cuts[0], cuts[2], source)
    again.content[SIZE // 2 :] = kept[SIZE // 2 :]
    agent.kill()
    csi.serve()
    again.further(cuts[0], cuts[2], source, SIZE // 2)
    assert again.content == source.read_bytes()

    # Without the base nobody can tell.
    caller.call("DeleteSnapshot", snapshot_id=cuts[0])
    status, _ = caller.refused(
        "GetMetadataDelta", base_snapshot_id=cuts[0], target_snapshot_id=cuts[2]
    )
    assert status is Status.NOT_FOUND
    for name in (volume, *(f"of-{one}" for one in cuts)):
        caller.leave(name)
        caller.delete(name)
    for one in cuts[1:]:
        caller.call("DeleteSnapshot", snapshot_id=one)


@pytest.mark.needs("btrfs")
def test_subvolumes_have_no_blocks(csi: CsiLab, caller: Caller) -> None:
    csi.csi_pool(backend="btrfs", fs_type="btrfs", size=512 * MIB)
    csi.serve()
    volume = caller.create("v", SIZE)
    first, second = cut(caller, "s1", volume), cut(caller, "s2", volume)
    for rpc, named in (
        ("GetMetadataAllocated", {"snapshot_id": first}),
        ("GetMetadataDelta", {"base_snapshot_id": first, "target_snapshot_id": second}),
    ):
        status, text = caller.refused(rpc, **named)
        assert status is Status.FAILED_PRECONDITION
        assert "is a subvolume" in text
    for one in (first, second):
        caller.call("DeleteSnapshot", snapshot_id=one)
    caller.delete(volume)
