"""Changed blocks over a real socket, as external-snapshot-metadata asks for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Status

from localvolume.csi.wire import messages
from localvolume.volumes.capacity import MIB
from tests.host.support_csi_controller import Caller, Records, controller

ALLOCATED, DELTA = "GetMetadataAllocated", "GetMetadataDelta"
MOUNT: dict[str, Any] = {"block": {}, "access_mode": {"mode": "SINGLE_NODE_WRITER"}}
SIZE = 8 * MIB


@pytest.fixture
async def volumes() -> Records:
    """A volume with two snapshots, and one with another."""
    made = Records()
    made.allocated = [(0, 3 * MIB), (5 * MIB, 1), (7 * MIB, MIB)]
    made.changed = [(MIB, 512), (7 * MIB, MIB)]
    return made


@pytest.fixture
async def call(volumes: Records, tmp_path: Path) -> AsyncIterator[Caller]:
    async with controller(volumes, tmp_path) as caller:
        for name in ("v", "w"):
            await caller(
                "CreateVolume",
                name=name,
                volume_capabilities=[MOUNT],
                capacity_range={"required_bytes": SIZE},
            )
        for name, source in (("s1", "v"), ("s2", "v"), ("of-w", "w")):
            await caller("CreateSnapshot", name=name, source_volume_id=source)
        yield caller


def ranges(answers: list[Any]) -> list[tuple[int, int]]:
    """All that a stream told; each message has the kind and the size."""
    assert answers
    for one in answers:
        assert one.block_metadata_type == messages.VARIABLE_LENGTH
        assert one.volume_capacity_bytes == SIZE
    return [(one.byte_offset, one.size_bytes) for each in answers for one in each.block_metadata]


async def test_what_is_allocated_and_what_has_changed(call: Caller, volumes: Records) -> None:
    assert ranges(await call(ALLOCATED, snapshot_id="s1")) == volumes.allocated
    told = await call(DELTA, base_snapshot_id="s1", target_snapshot_id="s2")
    assert ranges(told) == volumes.changed


async def test_pages_follow_one_another(call: Caller, volumes: Records) -> None:
    volumes.page_bytes = 2 * MIB
    told = await call(ALLOCATED, snapshot_id="s1")
    assert ranges(told) == [(0, 2 * MIB), (2 * MIB, MIB), (5 * MIB, 1), (7 * MIB, MIB)]
    assert volumes.looked == [0, 2 * MIB, 4 * MIB, 6 * MIB]


async def test_a_message_has_no_more_than_is_asked_for(call: Caller, volumes: Records) -> None:
    volumes.allocated = [(number * 1024, 512) for number in range(2500)]
    for asked, sizes in ((0, [1000, 1000, 500]), (5000, [1000, 1000, 500]), (999, [999, 999, 502])):
        told = await call(ALLOCATED, snapshot_id="s1", max_results=asked)
        assert [len(one.block_metadata) for one in told] == sizes
        assert ranges(told) == volumes.allocated


async def test_a_call_that_was_cut_off_goes_on_where_it_ended(
    call: Caller, volumes: Records
) -> None:
    for start, expected in [
        (MIB, [(MIB, 2 * MIB), *volumes.allocated[1:]]),
        (3 * MIB, volumes.allocated[1:]),
        (5 * MIB + 1, volumes.allocated[2:]),
        (SIZE - 1, [(SIZE - 1, 1)]),
        (SIZE, []),
    ]:
        told = await call(ALLOCATED, snapshot_id="s1", starting_offset=start)
        assert ranges(told) == expected


async def test_the_size_is_told_where_nothing_is_named(call: Caller, volumes: Records) -> None:
    volumes.changed = []
    volumes.page_bytes = MIB
    told = await call(DELTA, base_snapshot_id="s1", target_snapshot_id="s2")
    assert len(told) == 1
    assert ranges(told) == []


BOTH = {"base_snapshot_id": "s1", "target_snapshot_id": "s2"}


@pytest.mark.parametrize(
    ("rpc", "fields", "status"),
    [
        (ALLOCATED, {}, Status.INVALID_ARGUMENT),
        (ALLOCATED, {"snapshot_id": "s" * 129}, Status.INVALID_ARGUMENT),
        (ALLOCATED, {"snapshot_id": "s1", "max_results": -1}, Status.INVALID_ARGUMENT),
        (ALLOCATED, {"snapshot_id": "s1", "starting_offset": -1}, Status.OUT_OF_RANGE),
        (ALLOCATED, {"snapshot_id": "s1", "starting_offset": SIZE + 1}, Status.OUT_OF_RANGE),
        (ALLOCATED, {"snapshot_id": "s3"}, Status.NOT_FOUND),
        (ALLOCATED, {"snapshot_id": "../s1"}, Status.NOT_FOUND),
        # A volume is no snapshot.
        (ALLOCATED, {"snapshot_id": "v"}, Status.NOT_FOUND),
        (DELTA, {"base_snapshot_id": "s1"}, Status.INVALID_ARGUMENT),
        (DELTA, {"target_snapshot_id": "s1"}, Status.INVALID_ARGUMENT),
        (DELTA, {"base_snapshot_id": "s3"}, Status.INVALID_ARGUMENT),
        (DELTA, BOTH | {"base_snapshot_id": "s3"}, Status.NOT_FOUND),
        (DELTA, BOTH | {"target_snapshot_id": "s3"}, Status.NOT_FOUND),
        (DELTA, BOTH | {"base_snapshot_id": "of-w"}, Status.INVALID_ARGUMENT),
        (DELTA, BOTH | {"max_results": -1}, Status.INVALID_ARGUMENT),
        (DELTA, BOTH | {"starting_offset": -1}, Status.OUT_OF_RANGE),
        (DELTA, BOTH | {"starting_offset": SIZE + 1}, Status.OUT_OF_RANGE),
    ],
)
async def test_calls_that_are_refused(
    call: Caller, rpc: str, fields: dict[str, Any], status: Status
) -> None:
    refused, text = await call.refused(rpc, **fields)
    assert refused is status
    assert text


async def test_a_backend_that_cannot_tell_says_so(call: Caller, volumes: Records) -> None:
    """What asks then makes a full backup."""
    volumes.not_told = "s1 is a subvolume"
    for rpc, fields in ((ALLOCATED, {"snapshot_id": "s1"}), (DELTA, BOTH)):
        assert await call.refused(rpc, **fields) == (
            Status.FAILED_PRECONDITION,
            "s1 is a subvolume",
        )


async def test_a_snapshot_that_goes_meanwhile_ends_the_stream(
    call: Caller, volumes: Records
) -> None:
    """An end without an error would say that all was told."""
    volumes.cut["s1"] = replace(volumes.cut["s1"], size_bytes=1 << 40)
    volumes.page_bytes = 1
    volumes.allocated = []

    class Goes(list[int]):
        def append(self, start: int) -> None:
            super().append(start)
            if start == 10:
                volumes.cut.pop("s1")

    volumes.looked = Goes()
    refused, _ = await call.refused(ALLOCATED, snapshot_id="s1")
    assert refused is Status.NOT_FOUND
    assert volumes.looked == list(range(11))
