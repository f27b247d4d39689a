"""The mark on a volume that a claim holds: it outlives the claim and an emptied claimRef."""

from __future__ import annotations

import pytest

from localvolume.static.model import Hold, Keep, MarkClaimed, Reclaim
from localvolume.volumes import marks
from tests.decisions.support_plan import (
    a,
    bound_to,
    broken,
    filesystem,
    held,
    only_step,
    released_from,
    steps_of,
    volume_of,
)

DISK = filesystem()


def test_a_bound_volume_is_marked_as_claimed() -> None:
    volume = volume_of(DISK, phase="Bound", claim="claim-uid")
    mark, keep = steps_of([DISK], [volume])
    assert a(MarkClaimed, mark).volume is volume
    a(Keep, keep)


def test_it_is_marked_once() -> None:
    a(Keep, only_step([DISK], [bound_to(DISK)]))


def test_the_next_claim_is_marked_in_place_of_the_last() -> None:
    volume = bound_to(DISK, "second", annotations={marks.CLAIMED_ANNOTATION: "first"})
    mark, _ = steps_of([DISK], [volume])
    a(MarkClaimed, mark)


@pytest.mark.parametrize("phase", ["Available", "Pending", "", "Released", "Failed"])
def test_only_a_bound_volume_is_marked(phase: str) -> None:
    volume = volume_of(DISK, phase=phase, claim="claim-uid", policy="Retain")
    assert not [s for s in steps_of([DISK], [volume]) if isinstance(s, MarkClaimed)]


@pytest.mark.parametrize("code", ["gone", "unknown", "reading", "wrong-kind"])
def test_a_volume_that_is_not_well_is_marked_all_the_same(code: str) -> None:
    volume = volume_of(DISK, phase="Bound", claim="claim-uid")
    mark, hold = steps_of([broken(code)], [volume])  # type: ignore[arg-type]
    a(MarkClaimed, mark)
    a(Hold, hold)


def test_the_mark_alone_says_that_a_volume_may_hold_data() -> None:
    marked = volume_of(DISK, annotations={marks.CLAIMED_ANNOTATION: "claim-uid"})
    held(only_step([], [marked], missing={marked.metadata.uid: 1e9}), "vanished")


def test_a_released_volume_needs_no_mark() -> None:
    volume = volume_of(DISK, phase="Released", claim="claim-uid")
    a(Reclaim, only_step([DISK], [volume]))
    a(Reclaim, only_step([DISK], [released_from(DISK)]))
