"""Emptying real block devices: what each method leaves behind, and what reading back catches."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from localvolume.cleaning import priority, proof
from localvolume.cleaning.method import Method, choose_method
from localvolume.cleaning.paces import CleaningPaces
from localvolume.cleaning.receipt import CleaningFailed
from localvolume.cleaning.steps import DeviceCalls
from localvolume.host.block import blockdev
from localvolume.host.block.operations import DiscardLimits
from tests.host.support_cleaning import (
    DISCARD,
    OVERWRITE,
    RESET_SIGNATURES,
    SECRET,
    ZERO,
    block_target,
    fill,
    first_dirty,
    holds_secret,
    run_clean,
)
from tests.host.support_devices import LoopDevice, command, formatted, loop_device, mounted
from tests.suite import speed
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop")

# Not a whole number of MiB or of 4,096 bytes: the last sectors count too.
ODD = 24 * MIB + 3 * 512


@pytest.fixture
def disk() -> Iterator[LoopDevice]:
    with loop_device(ODD) as device:
        fill(device)
        yield device


def signatures(device: LoopDevice) -> str:
    return command("wipefs", "--noheadings", device.path).strip()


@pytest.mark.needs("ext4")
@pytest.mark.parametrize(
    ("words", "result"),
    [
        (("/scripts/quick_reset.sh",), "signatures-only"),
        (("/scripts/dd_zero.sh", "1"), "proved"),
        (("/scripts/shred.sh", "1"), "proved"),
        (("/scripts/blkdiscard.sh",), "proved"),
        (None, "proved"),
    ],
)
async def test_upstreams_scripts_leave_no_filesystem(
    words: tuple[str, ...] | None, result: str
) -> None:
    method = choose_method(words, volume_kind="block", volume_mode="Block")
    with formatted("ext4") as device:
        with mounted(device) as where:
            (where / "file").write_bytes(SECRET * 100_000)
        assert "ext4" in signatures(device)
        receipt = await run_clean(block_target(device), method)
        assert signatures(device) == ""
        assert (receipt.method, receipt.result) == (method, result)
        assert receipt.bytes == os.stat(device.backing).st_size
        assert receipt.samples > 0
        if result == "proved":
            assert first_dirty(device) is None
        assert blockdev.probe_block_device(device.path).holders == ()
        os.close(blockdev.exclusive_open(device.path))  # and it was let go


@pytest.mark.parametrize("method", [ZERO, DISCARD, OVERWRITE], ids=str)
async def test_nothing_is_left_to_the_last_sector(disk: LoopDevice, method: Method) -> None:
    receipt = await run_clean(block_target(disk), method)
    assert first_dirty(disk) is None
    assert (receipt.result, receipt.bytes) == ("proved", ODD)


@pytest.mark.parametrize("method", [ZERO, DISCARD, OVERWRITE, RESET_SIGNATURES], ids=str)
@pytest.mark.parametrize("size", [512, 4096, MIB, 2 * MIB + 512])
async def test_small_devices_and_large_sectors(method: Method, size: int) -> None:
    with loop_device(size, sector_size=4096 if size % 4096 == 0 else 512) as device:
        fill(device)
        await run_clean(block_target(device), method)
        assert first_dirty(device, end=min(size, MIB)) is None
        assert first_dirty(device, start=max(0, size - MIB)) is None


async def test_overwriting_writes_every_pass_with_other_data(
    disk: LoopDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bytes] = []

    def look_instead_of_zeroing(*_: int) -> None:
        if not seen:
            with open(disk.path, "rb", buffering=0) as file:
                seen.append(file.read(ODD))

    real_sync = os.fsync
    # Each pass flushes its note and ends with a flush: look at the device then, too.
    passes: list[bytes] = []

    def sync(fd: int) -> None:
        real_sync(fd)
        passes.append(os.pread(fd, MIB, 8 * MIB))

    monkeypatch.setattr(os, "fsync", sync)
    calls = DeviceCalls(zero_out=look_instead_of_zeroing)
    with pytest.raises(CleaningFailed, match="does not read as the zeros"):
        await run_clean(block_target(disk), Method("overwrite", passes=2), calls=calls)
    (content,) = seen
    assert SECRET not in content
    # The first page has the note of this cleaning, written anew by each pass.
    for start in range(4096, ODD, 512):
        assert content[start : start + 512].count(0) < 100, f"sector at {start} was not written"
    _, first, _, second, *_ = passes
    assert first != second


async def test_several_passes_of_zeros_count_as_such(disk: LoopDevice) -> None:
    before = _sectors_written(disk)
    await run_clean(block_target(disk), Method("zero", passes=3))
    assert _sectors_written(disk) - before >= 3 * ODD // 512
    assert first_dirty(disk) is None


def _sectors_written(device: LoopDevice) -> int:
    with open(f"/sys/block/{device.name}/stat", encoding="ascii") as file:
        return int(file.read().split()[6])


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOTTY])
@pytest.mark.parametrize("method", [ZERO, OVERWRITE, RESET_SIGNATURES], ids=str)
async def test_without_zeroing_by_the_kernel_zeros_are_written(
    disk: LoopDevice, method: Method, number: int
) -> None:
    calls = DeviceCalls(zero_out=_failing(number))
    receipt = await run_clean(block_target(disk), method, calls=calls)
    if method is RESET_SIGNATURES:
        assert first_dirty(disk, end=MIB) is None
        assert first_dirty(disk, start=ODD - MIB) is None
    else:
        assert first_dirty(disk) is None
        assert "plain writes" in receipt.detail


def _failing(number: int) -> Callable[[int, int, int], None]:
    def fail(fd: int, start: int, length: int) -> None:
        raise OSError(number, os.strerror(number))

    return fail


async def test_writes_go_through_the_cache_where_direct_ones_are_refused(
    disk: LoopDevice,
) -> None:
    calls = DeviceCalls(set_direct=lambda fd, on: False)
    await run_clean(block_target(disk), OVERWRITE, calls=calls)
    assert first_dirty(disk) is None


def _only_says_so(fd: int, start: int, length: int) -> None:
    """A device that reports success and does nothing."""


async def test_a_disk_that_does_not_write_its_zeros_is_not_clean(disk: LoopDevice) -> None:
    calls = DeviceCalls(zero_out=_only_says_so)
    with pytest.raises(CleaningFailed, match="byte 4096 and on does not read as the") as failed:
        await run_clean(block_target(disk), ZERO, calls=calls)
    assert failed.value.touched
    assert holds_secret(disk)


async def test_one_stretch_left_on_a_small_disk_is_found() -> None:
    """Of so small a one all is read."""

    def leave_some(fd: int, start: int, length: int) -> None:
        blockdev.zero_out(fd, start, length)
        if start <= 4 * MIB < start + length:
            os.pwrite(fd, SECRET, 4 * MIB)

    with (
        loop_device(6 * MIB) as small,
        pytest.raises(CleaningFailed, match=f"byte {4 * MIB} and on"),
    ):
        await run_clean(block_target(small), ZERO, calls=DeviceCalls(zero_out=leave_some))


@pytest.mark.parametrize("way", ["direct", "flushed"])
async def test_reading_back_asks_the_disk_not_the_cache(disk: LoopDevice, way: str) -> None:
    cache = os.open(disk.path, os.O_RDONLY)

    def zeros_in_the_cache_only(fd: int, start: int, length: int) -> None:
        blockdev.zero_out(fd, start, length)
        assert os.pread(cache, 4096, start) == bytes(4096)
        with open(disk.backing, "r+b", buffering=0) as file:
            file.write(SECRET)

    calls = DeviceCalls(zero_out=zeros_in_the_cache_only)
    if way == "direct":  # each suffices: not all devices take direct reads
        calls = replace(calls, flush_buffers=lambda fd: None)
    else:
        calls = replace(calls, set_direct=lambda fd, on: False)
    try:
        with pytest.raises(CleaningFailed, match="byte 0 and on"):
            await run_clean(block_target(disk), ZERO, calls=calls)
    finally:
        os.close(cache)


async def test_a_discard_that_leaves_data_is_followed_by_zeros_and_says_so(
    disk: LoopDevice,
) -> None:
    calls = DeviceCalls(discard=_only_says_so)
    receipt = await run_clean(block_target(disk), DISCARD, calls=calls)
    assert first_dirty(disk) is None
    assert receipt.result == "proved"
    # Where it is first seen is chance: the samples say.
    assert re.fullmatch(
        r"discarding left data at byte [0-9]{4,}, so zeros were written", receipt.detail
    )
    assert "zeros were written" in receipt.summary()


async def test_a_device_that_cannot_discard_gets_zeros_and_says_so(disk: LoopDevice) -> None:
    calls = DeviceCalls(discard=_failing(errno.EOPNOTSUPP))
    receipt = await run_clean(block_target(disk), DISCARD, calls=calls)
    assert first_dirty(disk) is None
    assert receipt.detail == "the device cannot discard, so zeros were written"


async def test_a_plain_discard_needs_no_zeros(disk: LoopDevice) -> None:
    """But for the note, and what is no whole granule at the end."""

    def only_pages(fd: int, start: int, length: int) -> None:
        if length > 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        blockdev.zero_out(fd, start, length)

    calls = DeviceCalls(zero_out=only_pages)
    receipt = await run_clean(block_target(disk), DISCARD, calls=calls)
    assert (receipt.result, receipt.detail) == ("proved", "")


@pytest.mark.parametrize("granule", [3 * MIB, 4 * MIB])
@pytest.mark.parametrize("first", [0, MIB])
async def test_a_disk_that_forgets_whole_granules_alone(
    disk: LoopDevice, granule: int, first: int
) -> None:
    """Steps that meet within one would leave it, and samples need not find it."""

    def whole_ones(fd: int, start: int, length: int) -> None:
        begin = first + max(0, -(-(start - first) // granule)) * granule
        for at in range(begin, start + length - granule + 1, granule):
            blockdev.discard(fd, at, granule)

    def limits(fd: int) -> DiscardLimits:
        return blockdev.discard_limits(fd)._replace(granularity=granule, first=first)

    calls = DeviceCalls(discard=whole_ones, discard_limits=limits)
    paces = CleaningPaces(step_bytes=5 * MIB)
    receipt = await run_clean(block_target(disk), DISCARD, calls=calls, paces=paces)
    assert first_dirty(disk) is None
    assert (receipt.result, receipt.detail) == ("proved", "")


async def test_writing_is_at_idle_priority_and_discarding_is_not(disk: LoopDevice) -> None:
    seen: dict[str, set[int]] = {"zero": set(), "discard": set(), "read": set()}

    def note(what: str, real: Callable[[int, int, int], None]) -> Callable[[int, int, int], None]:
        def call(fd: int, start: int, length: int) -> None:
            seen[what].add((priority.current() or 0) >> 13)
            real(fd, start, length)

        return call

    def flush(fd: int) -> None:  # in the same worker threads, after writing
        seen["read"].add((priority.current() or 0) >> 13)
        blockdev.flush_buffers(fd)

    calls = DeviceCalls(
        zero_out=note("zero", blockdev.zero_out),
        discard=note("discard", blockdev.discard),
        flush_buffers=flush,
    )
    await run_clean(block_target(disk), ZERO, calls=calls)
    await run_clean(block_target(disk), DISCARD, calls=calls)
    idle = 3
    assert seen["zero"] == {idle}
    assert idle not in seen["discard"] | seen["read"]


@pytest.mark.parametrize("fstype", ["ext4", "xfs", "btrfs"])
async def test_signatures_are_erased_and_the_content_between_is_not(fstype: str) -> None:
    with formatted(fstype) as device:
        middle = 40 * MIB + 8192
        with open(device.path, "r+b", buffering=0) as file:
            file.seek(middle)
            file.write(SECRET * 10)
        receipt = await run_clean(block_target(device), RESET_SIGNATURES)
        assert signatures(device) == ""
        assert receipt.result == "signatures-only"
        assert "not erased" in receipt.detail
        with open(device.path, "rb", buffering=0) as file:
            file.seek(middle)
            assert file.read(len(SECRET)) == SECRET


async def test_partition_tables_and_backups_at_the_end_go_with_the_signatures() -> None:
    with loop_device(32 * MIB) as device:
        fill(device)
        device.write_table("label: gpt\n,8M\n")
        assert "gpt" in signatures(device)
        await run_clean(block_target(device), RESET_SIGNATURES)
        assert signatures(device) == ""
        assert first_dirty(device, end=MIB) is None
        assert first_dirty(device, start=31 * MIB) is None
        assert holds_secret(device)


VMFS_PLACE, VMFS_MAGIC = 2 * MIB, bytes.fromhex("5ef1ab2f")  # libblkid: vmfs.c, beyond both edges


async def test_signatures_beyond_the_edges_are_erased_too() -> None:
    with loop_device(32 * MIB) as device:
        with open(device.path, "r+b", buffering=0) as file:
            file.seek(VMFS_PLACE)
            file.write(VMFS_MAGIC)
        assert "VMFS" in signatures(device)
        await run_clean(block_target(device), RESET_SIGNATURES)
        assert signatures(device) == ""


async def test_a_signature_that_is_still_there_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    # A wipefs that reports success and erases nothing; listing works.
    fake = os.path.join(tmp_path, "wipefs")
    with open(fake, "w", encoding="utf-8") as script:
        script.write('#!/bin/sh\n[ "$1" = --all ] && exit 0\nPATH="$REAL" exec wipefs "$@"\n')
    os.chmod(fake, 0o755)
    monkeypatch.setenv("REAL", os.environ["PATH"])
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with loop_device(32 * MIB) as device:
        with open(device.path, "r+b", buffering=0) as file:
            file.seek(VMFS_PLACE)
            file.write(VMFS_MAGIC)
        with pytest.raises(CleaningFailed, match="still recognised as VMFS"):
            await run_clean(block_target(device), RESET_SIGNATURES)


async def test_without_wipefs_the_error_says_what_to_install(
    disk: LoopDevice, monkeypatch: pytest.MonkeyPatch, tmp_path: os.PathLike[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CleaningFailed, match="util-linux is needed"):
        await run_clean(block_target(disk), RESET_SIGNATURES)


async def test_a_large_device_is_sampled_not_read_whole() -> None:
    size = 512 * MIB
    with loop_device(size) as device:
        receipt = await run_clean(block_target(device), DISCARD)
        assert receipt.samples == 4 * proof.SAMPLES + 2
        receipt = await run_clean(block_target(device), ZERO)
        assert receipt.samples == proof.SAMPLES + 2
        assert receipt.seconds < 60 * speed.factor()
