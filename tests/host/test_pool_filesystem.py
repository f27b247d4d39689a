"""Which filesystem a pool stands on, and what it has promised there though it cannot be used."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from localvolume.backends.directory.backend import DirectoryBackend
from localvolume.backends.model import Record, Usage
from localvolume.dynamic.pools import Pools
from localvolume.host.process.workers import Hung, Workers
from tests.host.support_devices import command, filesystem, formatted, mounted
from tests.host.support_pools import ON_EXT4, config_of, offer, store_in, wish
from tests.suite.units import MIB


@pytest.fixture
def where() -> Iterator[Path]:
    with filesystem("ext4") as where:
        for name in ("a", "b"):
            (where / name).mkdir()
        yield where


@ON_EXT4
def test_two_directories_are_on_one_filesystem(where: Path) -> None:
    with (
        filesystem("ext4") as elsewhere,
        store_in(where / "a") as a,
        store_in(where / "b") as b,
        store_in(elsewhere) as other,
    ):
        found = [store.look() for store in (a, b, other)]
        assert [report.problem for report in found] == ["", "", ""]
        assert found[0].filesystem == found[1].filesystem != ""
        assert found[2].filesystem not in ("", found[0].filesystem)
        assert all(not report.dormant and not report.uncounted for report in found)


@pytest.mark.needs("root", "loop", "btrfs")
def test_subvolumes_are_on_one_filesystem_wherever_they_are_mounted(tmp_path: Path) -> None:
    with ExitStack() as stack:
        for name in ("whole", "apart"):
            (tmp_path / name).mkdir()
        disk = stack.enter_context(formatted("btrfs"))
        whole = stack.enter_context(mounted(disk, tmp_path / "whole"))
        for name in ("a", "b", "b/inner"):
            command("btrfs", "subvolume", "create", whole / name)
        places = [
            whole / "a",
            whole / "b" / "inner",
            stack.enter_context(mounted(disk, tmp_path / "apart", options="subvol=b")),
        ]
        assert len({place.stat().st_dev for place in places}) == 3
        reports = [stack.enter_context(store_in(place)).look() for place in places]
        assert [report.problem for report in reports] == ["", "", ""]
        assert len({report.filesystem for report in reports}) == 1
        assert reports[0].filesystem


@ON_EXT4
def test_a_pool_that_cannot_be_used_says_what_it_has_promised(where: Path) -> None:
    with store_in(where / "a") as store:
        offered = offer(store, wish())
        well = store.look()
    (where / "a").chmod(0o777)
    # Of a new agent, which has never seen it whole; and while another one works in it.
    with store_in(where / "a") as store:
        report = store.look()
        assert "others than root may write" in report.problem
        assert not report.records
        assert (report.filesystem, report.dormant) == (well.filesystem, {"pvc-1": offered})
        assert report.uncounted == ""
    (where / "a").chmod(0o755)
    with store_in(where / "a") as working, store_in(where / "a") as waiting:
        working.open()
        report = waiting.look()
        assert report.taken
        assert (report.filesystem, report.dormant) == (well.filesystem, {"pvc-1": offered})


@ON_EXT4
def test_records_that_cannot_be_read_are_not_none(where: Path) -> None:
    with store_in(where / "a") as store:
        offer(store, wish())
    records = where / "a" / ".localvolume" / "records"
    records.rename(where / "records")
    records.symlink_to(where / "records")
    with store_in(where / "a") as store:
        report = store.look()
    assert report.problem
    assert report.filesystem
    assert (report.dormant, bool(report.uncounted)) == ({}, True)


@ON_EXT4
def test_where_nothing_is_nothing_was_promised(where: Path) -> None:
    with store_in(where / "b", known_ids=("another",)) as store:
        report = store.look()
        assert "there is none" in report.problem
        assert report.filesystem
        assert (report.dormant, report.uncounted) == ({}, "")
    with store_in(where / "nowhere") as store:
        report = store.look()
        assert (report.filesystem, report.dormant, report.uncounted) == ("", {}, "")


class Busy(DirectoryBackend):
    """Its tenants write while it measures what they hold."""

    def usage(self, pool: int, path: str, records: Sequence[Record]) -> Mapping[str, Usage]:
        found = super().usage(pool, path, records)
        flag = os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC
        file = os.open(f"{path}/{records[0].directory}/data", flag, 0o600)
        try:
            os.posix_fallocate(file, 0, 4 * MIB)
        finally:
            os.close(file)
        return found


@ON_EXT4
def test_what_is_written_during_a_look_is_not_free(where: Path) -> None:
    """Of what volumes still may write, too much is subtracted rather than too little."""
    with store_in(where / "a", backend=Busy()) as store:
        before = store.look().available_bytes
        offer(store, wish())
        assert store.look().available_bytes <= before - 4 * MIB


@ON_EXT4
async def test_a_pool_that_hangs_has_promised_what_it_had(where: Path) -> None:
    configs = [config_of(where / name, name=name) for name in ("a", "b")]
    workers, over = Workers(4), threading.Event()
    pools = Pools(workers)
    pools.configure(configs, [])
    try:
        made = await pools.call(configs[0], wish().name, lambda store: store.make(wish()))
        before = {pool.config.name: pool for pool in await pools.look()}
        with pytest.raises(Hung):
            await workers.call("pool a", 0.01, over.wait)
        after = {pool.config.name: pool for pool in await pools.look()}
        assert "does not answer" in after["a"].report.problem
        assert after["a"].report.dormant == {"pvc-1": made}
        assert before["b"].beside.names == after["b"].beside.names == ("a",)
        assert before["b"].beside.promised_bytes == made.size_bytes
        assert after["b"].beside.promised_bytes == made.size_bytes
    finally:
        over.set()
        pools.close()
        workers.close()


@pytest.mark.parametrize(
    "fstype",
    [
        pytest.param(name, marks=pytest.mark.needs("root", "loop", name))
        for name in ("ext4", "xfs", "btrfs")
    ],
)
def test_a_pool_is_as_full_as_df_says_of_its_filesystem(fstype: str) -> None:
    """What is kept for root belongs neither to its size nor to what is used."""
    with filesystem(fstype) as where, store_in(where) as store:
        for mib in (0, 24):
            with open(where / "somebodys", "wb") as file:
                file.write(os.urandom(mib * MIB))
                os.fsync(file.fileno())
            command("sync", "-f", where)
            report, seen = store.look(), os.statvfs(where)
            assert report.problem == ""
            assert report.used_bytes is not None
            # Opening a pool makes it, and filesystems do the rest of that in their own time.
            used = (seen.f_blocks - seen.f_bfree) * seen.f_frsize
            assert report.used_bytes == pytest.approx(used, abs=MIB)
            assert report.total_bytes - report.used_bytes == report.available_bytes
            assert report.used_bytes >= mib * MIB
