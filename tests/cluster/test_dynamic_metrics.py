"""What /metrics tells of volumes: what they hold, what escaped their limit, how far a purge is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool, Volume
from tests.cluster.test_dynamic_images import _cleared as cleared
from tests.host.support_devices import command, mounted
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

USAGE = ("used_bytes", "available_bytes", "used_inodes", "available_inodes")

Usage = tuple[float | None, ...]


def _usage(lab: Lab, volume: Volume, pool: str) -> Usage:
    """What the agent tells of a volume, in the order of USAGE."""
    return tuple(_of_volume(lab, volume, pool, name) for name in USAGE)


def _of_volume(lab: Lab, volume: Volume, pool: str, name: str) -> float | None:
    labels = {"pool": pool, "persistentvolume": volume["metadata"]["name"], "claim": ""}
    return lab.metric(f"localvolume_volume_{name}", **labels)


def _says(where: Path) -> Usage:
    """What the filesystem itself says, once all is written."""
    command("sync", "-f", where)
    found = os.statvfs(where)
    return (
        (found.f_blocks - found.f_bfree) * found.f_frsize,
        found.f_bavail * found.f_frsize,
        found.f_files - found.f_ffree,
        found.f_favail,
    )


def _grow(lab: DynamicLab, claim: Claim, size: str) -> None:
    lab.grow(claim, size)
    lab.until(
        lambda: lab.read_claim(claim),
        lambda found: found and found["status"]["capacity"]["storage"] == size,
    )


# --- what they hold ------------------------------------------------------------------------------


@pytest.fixture
def vault(dynamic: DynamicLab) -> Iterator[MadePool]:
    made = dynamic.pool("vault", backend="image", size=512 * MIB)
    with cleared(dynamic, made):
        yield made


def test_an_image_holds_what_its_filesystem_says(dynamic: DynamicLab, vault: MadePool) -> None:
    """Mounted by a pod or not, and after it has grown."""
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="32Mi")
    volume = dynamic.made(claim)

    def told() -> Usage:
        dynamic.settle()
        return _usage(dynamic, volume, vault.name)

    empty = told()[0]
    assert empty is not None
    with mounted(str(dynamic.path_of(volume)), fstype="ext4") as where:
        (where / "rows").write_bytes(os.urandom(10 * MIB))
        for number in range(50):
            (where / f"file-{number}").touch()
        before = _says(where)
        assert told() == before
        assert before[0] is not None
        assert before[0] >= empty + 10 * MIB
    assert told() == before
    _grow(dynamic, claim, "64Mi")
    with mounted(str(dynamic.path_of(volume)), fstype="ext4") as where:
        after = _says(where)
        assert told() == after
    assert before[1] is not None
    assert after[1] is not None
    assert before[1] + 31 * MIB < after[1] < before[1] + 33 * MIB
    assert _of_volume(dynamic, volume, vault.name, "size_bytes") == 64 * MIB
    dynamic.delete(claim)
    dynamic.gone(volume)
    assert told() == (None,) * len(USAGE)


@pytest.mark.needs("btrfs")
def test_a_btrfs_volume_holds_what_was_written(dynamic: DynamicLab) -> None:
    pool = dynamic.pool(fs_type="btrfs", size=512 * MIB, backend="btrfs")
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls, size="64Mi")
    volume = dynamic.made(claim)
    where = dynamic.path_of(volume)

    def told() -> tuple[float, float]:
        # What is counted is what was committed.
        command("sync", "-f", where)
        dynamic.settle()
        used, available, *inodes = _usage(dynamic, volume, pool.name)
        # Of a btrfs nobody counts them.
        assert inodes == [None, None]
        assert used is not None
        assert available is not None
        return used, available

    empty, _ = told()
    assert empty <= 64 << 10
    (where / "rows").write_bytes(os.urandom(20 * MIB))
    used, available = told()
    assert used == pytest.approx(20 * MIB, rel=0.01)
    assert used + available == 64 * MIB
    _grow(dynamic, claim, "96Mi")
    assert told() == (used, 96 * MIB - used)
    (where / "rows").unlink()
    used, available = told()
    assert used == pytest.approx(empty, abs=64 << 10)
    assert used + available == 96 * MIB


# --- what escaped their limit --------------------------------------------------------------------


@pytest.mark.needs("btrfs")
def test_a_subvolume_inside_a_volume_is_told_once_and_for_as_long_as_it_is_there(
    dynamic: DynamicLab,
) -> None:
    pool = dynamic.pool(fs_type="btrfs", size=512 * MIB, backend="btrfs")
    cls = dynamic.storage_class()
    dynamic.start()
    volume, other = (dynamic.made(dynamic.claim(cls, size="64Mi")) for _ in range(2))
    inner = dynamic.path_of(volume) / "inner"

    def escaped() -> list[float | None]:
        dynamic.settle()
        return [_of_volume(dynamic, one, pool.name, "limit_escaped") for one in (volume, other)]

    assert escaped() == [None, None]
    command("btrfs", "subvolume", "create", inner)
    assert escaped() == [1, None]
    event = dynamic.event(volume["metadata"]["name"], "VolumeLimitEscaped", "1 subvolumes")
    assert event["type"] == "Warning"
    assert escaped() == [1, None]
    said = [line for line in dynamic.log() if "1 subvolumes or snapshots were made" in line]
    assert len(said) == 1
    command("btrfs", "subvolume", "delete", inner)
    assert escaped() == [None, None]
    # Should it come back, that is news.
    command("btrfs", "subvolume", "create", inner)
    assert escaped() == [1, None]
    dynamic.until(
        lambda: dynamic.events(volume["metadata"]["name"]),
        lambda found: (
            sum(one["count"] for one in found if one["reason"] == "VolumeLimitEscaped") == 2
        ),
    )
    assert not [
        one
        for one in dynamic.events(other["metadata"]["name"])
        if one["reason"] == "VolumeLimitEscaped"
    ]


# --- how far a purge is --------------------------------------------------------------------------


def test_a_purge_tells_how_far_it_is_and_nothing_afterwards(dynamic: DynamicLab) -> None:
    files = 200
    # So slow that it does not end before it was seen under way, however slow all is.
    pool = dynamic.pool(purgeFilesPerSecond=1)
    cls = dynamic.storage_class()
    dynamic.start()
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)
    where = dynamic.path_of(volume)
    for number in range(files):
        (where / f"file-{number}").write_bytes(b"tenant" * 500)
    command("sync", "-f", where)
    dynamic.delete(claim)
    about = {"persistentvolume": volume["metadata"]["name"]}

    def told(name: str) -> float | None:
        return dynamic.metric(f"localvolume_purge_{name}", **about)

    first = dynamic.until(lambda: told("files") or 0, bool)
    size = dynamic.until(lambda: told("bytes") or 0, lambda size: size >= first * 4096)
    assert 0 < first < files
    assert size <= files * 4096
    dynamic.until(lambda: told("files") or 0, lambda count: count > first)
    # What is left goes at the pace that is configured by then.
    del dynamic.settings["pools"]["fast"]["purgeFilesPerSecond"]
    dynamic.configure()
    dynamic.until(pool.records, lambda left: left == [])
    assert pool.trash() == []
    dynamic.until(lambda: [told("files"), told("bytes")], lambda found: found == [None, None])
