"""When a node's volumes are all known: what still counts as to come, and what never will."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import ClassFacts, Entry
from localvolume.static.plan.plan import is_to_come
from localvolume.volumes.names import volume_name
from tests.decisions.support_plan import (
    NODE,
    bound_to,
    broken,
    class_facts,
    filesystem,
    released_from,
    steps_of,
    volume_of,
)


def to_come(
    entries: Iterable[Entry],
    volumes: Iterable[PersistentVolume] = (),
    *,
    classes: tuple[ClassFacts, ...] = (),
    asked: bool = True,
) -> bool:
    listed = list(entries)
    names = [volume_name(entry.name, NODE.name, entry.class_name) for entry in listed]
    known = dict.fromkeys(names) if asked else {}
    actions = steps_of(listed, volumes, classes=classes, asked=known)
    return any(is_to_come(action) for action in actions)


def test_what_is_to_be_offered_is_to_come() -> None:
    assert to_come([filesystem()])


def test_what_was_not_looked_into_yet_is_to_come() -> None:
    assert to_come([filesystem(content=None)])


def test_what_is_still_being_read_is_to_come() -> None:
    assert to_come([broken("reading")])


def test_what_must_be_asked_for_is_to_come() -> None:
    assert to_come([filesystem(content="holds")], asked=False)


def test_what_is_cleaned_before_its_first_use_is_to_come() -> None:
    assert to_come([filesystem(content="holds")], classes=(class_facts(first_use="clean"),))


@pytest.mark.parametrize("code", ["gone", "wrong-kind", "unknown"])
def test_a_stray_or_dead_entry_is_waited_for_by_nobody(code: str) -> None:
    assert not to_come([broken(code)])  # type: ignore[arg-type]


@pytest.mark.parametrize("content", ["holds", "busy", "unknown", "unfinished"])
def test_what_is_held_for_its_content_is_waited_for_by_nobody(content: str) -> None:
    assert not to_come([filesystem(content=content)])  # type: ignore[arg-type]


def test_what_has_its_object_is_there() -> None:
    entry = filesystem(content=None)
    for volume in (volume_of(entry), bound_to(entry), released_from(entry)):
        assert not to_come([entry], [volume])


def test_what_is_wrong_with_an_offered_volume_is_waited_for_by_nobody() -> None:
    """Its content is not looked into: it may be a tenant's."""
    there = filesystem(uuid="another", content=None)
    for volume in (volume_of(filesystem()), bound_to(filesystem())):
        assert not to_come([there], [volume])


def test_one_more_that_is_to_come_counts() -> None:
    there = filesystem("a", content=None)
    assert to_come([there, filesystem("b")], [volume_of(there)])
