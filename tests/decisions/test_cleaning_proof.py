"""Where reading back looks, and what a receipt says of it."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localvolume.cleaning.method import Method
from localvolume.cleaning.proof import EDGE_BYTES, SAMPLE_BYTES, choose_samples, edges
from localvolume.cleaning.receipt import Receipt, human_size
from tests.suite.units import MIB, TIB

sectors = st.integers(1, TIB // 512)
small = st.integers(1, 64 * MIB // 512)


@given(size=st.one_of(small, sectors).map(lambda n: n * 512), count=st.integers(1, 300))
def test_samples_are_within_the_device_and_fit_for_direct_reads(size: int, count: int) -> None:
    regions = choose_samples(size, count, random.Random(size))
    assert regions[0].start == 0
    assert sum(regions[-1]) == size
    for region in regions:
        assert region.length > 0
        assert region.start % 4096 == 0
        assert region.length % 512 == 0
        assert region.start + region.length <= size
    for earlier, later in itertools.pairwise(regions):
        assert earlier.start <= later.start


@given(size=small.map(lambda n: n * 512), count=st.integers(1, 1000))
def test_a_device_that_samples_would_cover_is_read_whole(size: int, count: int) -> None:
    regions = choose_samples(size, count, random.Random(1))
    read = sum(region.length for region in regions)
    if size <= 2 * EDGE_BYTES + count * SAMPLE_BYTES:
        assert read == size
    else:
        # The last edge begins on a sector of the largest size in use.
        assert read < 2 * EDGE_BYTES + 4096 + count * SAMPLE_BYTES
        assert read <= size


@pytest.mark.parametrize("size", [512, MIB, 2 * MIB, 2 * MIB + 512, TIB - 512, TIB])
def test_both_edges_are_whole(size: int) -> None:
    regions = edges(size)
    seen = {0, min(size, MIB) - 1, size - 1, max(0, size - MIB)}
    for place in seen:
        assert any(start <= place < start + length for start, length in regions)


def test_no_large_stretch_goes_unseen_and_no_place_can_be_foreseen() -> None:
    first, second = (choose_samples(TIB, 64, random.SystemRandom()) for _ in range(2))
    assert first != second
    starts = [region.start for region in first]
    longest = max(later - earlier for earlier, later in itertools.pairwise(starts))
    assert longest <= 2 * TIB / 64 + MIB


@settings(deadline=None)
@given(where=st.integers(0, 64 * MIB // 4096 - 1))
def test_every_place_can_be_chosen(where: int) -> None:
    # Some seed out of a thousand looks at any given block of a 64 MiB device.
    place = where * 4096
    assert any(
        start <= place < start + length
        for seed in range(1000)
        for start, length in choose_samples(64 * MIB, 16, random.Random(seed))
    )


@pytest.mark.parametrize(
    ("receipt", "line"),
    [
        (
            Receipt(Method("zero", passes=1), 64 * MIB, 0, 0.42, 66, "proved"),
            "zero: 64.0 MiB in 0.4 s, proved (66 samples read back)",
        ),
        (
            Receipt(Method("delete-files"), 1536, 12, 3.0, 0, "proved", "read back empty"),
            "delete-files: 12 files and directories, 1.5 KiB in 3.0 s, proved, read back empty",
        ),
        (
            Receipt(Method("delete-files"), 5, 1, 0.0, 0, "proved", "read back empty"),
            "delete-files: 1 file or directory, 5 B in 0.0 s, proved, read back empty",
        ),
        (
            Receipt(Method("reset-signatures"), TIB, 0, 1, 2, "signatures-only", "rest stays"),
            "reset-signatures: 1.0 TiB in 1.0 s, signatures only (2 samples read back), rest stays",
        ),
        (
            Receipt(Method("command", command=("/wipe", "-f")), 512, 0, 60, 0, "done"),
            "/wipe -f: 512 B in 60.0 s, done",
        ),
    ],
)
def test_a_receipt_is_one_line_and_a_record(receipt: Receipt, line: str) -> None:
    assert receipt.summary() == line
    record = json.loads(json.dumps(receipt.as_dict()))
    assert record["method"] == str(receipt.method)
    assert record["bytes"] == receipt.bytes
    assert record["result"] == receipt.result
    assert set(record) == {"method", "bytes", "files", "seconds", "samples", "result", "detail"}


@pytest.mark.parametrize(
    ("size", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (3 << 50, "3.0 PiB")]
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert human_size(size) == text


def test_even_more_than_petabytes() -> None:
    assert human_size(5000 << 50) == "5000.0 PiB"
