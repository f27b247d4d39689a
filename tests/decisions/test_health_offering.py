"""What has failed already is not offered, and nothing is made or grown where a disk has failed."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from localvolume.backends.capacity import capacity
from localvolume.config.model import FirstUse
from localvolume.dynamic.model import GiveBack, Grow, Hold, Make, Retire
from localvolume.static.facts.known import Changes, Known
from localvolume.static.model import Keep, Publish
from localvolume.static.plan.plan import is_to_come
from tests.decisions import support_dynamic as dynamic
from tests.decisions.support_plan import a, class_facts, filesystem, held, only_step, volume_of

UNWELL = "its ext4 on sda counts errors"


@pytest.mark.parametrize("first_use", ["require-empty", "trust", "clean"])
@pytest.mark.parametrize("content", ["empty", "holds", "unfinished"])
def test_an_entry_that_has_failed_is_neither_offered_nor_cleaned(
    first_use: FirstUse, content: str
) -> None:
    entry = replace(filesystem(content=content), unwell=UNWELL)  # type: ignore[arg-type]
    hold = held(only_step([entry], classes=[class_facts(first_use=first_use)]), "unwell")
    assert hold.reason == UNWELL
    assert hold.again_seconds
    # The others of the node need not wait for it.
    assert not is_to_come(hold)


def test_an_entry_that_is_well_is_offered() -> None:
    a(Publish, only_step([filesystem()]))


def test_an_object_that_exists_is_left_as_it_is() -> None:
    entry = replace(filesystem(content=None), unwell=UNWELL)
    a(Keep, only_step([entry], [volume_of(entry)]))


def test_nothing_is_made_in_a_pool_that_has_failed() -> None:
    sound = dynamic.pool()
    dynamic.a(Make, dynamic.action(dynamic.claim(), sound))
    failed = replace(sound, report=replace(sound.report, unwell=UNWELL))
    assert capacity(sound.config, sound.report)
    assert capacity(failed.config, failed.report) == 0, "and none is published"
    back = dynamic.a(GiveBack, dynamic.action(dynamic.claim(), failed))
    assert UNWELL in back.reason


def test_nothing_grows_in_it() -> None:
    more, volume = dynamic.bound(size="3Gi"), dynamic.volume()
    sound = dynamic.pool(dynamic.record())
    dynamic.a(Grow, dynamic.action(more, volume, sound))
    failed = replace(sound, report=replace(sound.report, unwell=UNWELL))
    assert UNWELL in dynamic.a(Hold, dynamic.action(more, volume, failed)).reason


def test_what_is_to_be_removed_goes_on() -> None:
    sound = dynamic.pool(dynamic.record())
    failed = replace(sound, report=replace(sound.report, unwell=UNWELL))
    released = dynamic.volume(phase="Released", deleted=True)
    for pool in (sound, failed):
        dynamic.a(Retire, dynamic.action(released, pool))


def test_an_entry_that_has_failed_is_looked_at_again_though_nothing_told_of_it() -> None:
    """Resetting the errors of a btrfs changes no mount."""
    for entry, fresh in ((filesystem(), True), (replace(filesystem(), unwell=UNWELL), False)):
        known = Known(entry, None, time.monotonic() - 20.0)
        assert known.is_fresh(None, False, Changes(host=False), 20.0) is fresh
