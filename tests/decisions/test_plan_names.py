"""Names in a plan: two volumes never share one, and none is left out in silence."""

from __future__ import annotations

from localvolume.static.model import Ask, CleanFirst, Keep, Publish
from localvolume.volumes.names import longer_volume_name, volume_name
from tests.decisions.support_plan import (
    NODE,
    a,
    class_facts,
    filesystem,
    held,
    only_step,
    steps_of,
    volume_of,
)

#: Two names whose FNV-1a hash is the same, on this node and in this class.
ONE, OTHER = "lsexqzd", "ztxtxde"
SHORT = volume_name(ONE, NODE.name, "fast")
LONGER_ONE = longer_volume_name(ONE, NODE.name, "fast")
LONGER_OTHER = longer_volume_name(OTHER, NODE.name, "fast")


def test_these_two_names_do_hash_alike() -> None:
    assert volume_name(OTHER, NODE.name, "fast") == SHORT
    assert LONGER_ONE != LONGER_OTHER


def test_where_a_volume_of_this_node_has_the_name_the_longer_one_is_taken() -> None:
    one, other = filesystem(ONE), filesystem(OTHER)
    kept, published = steps_of([one, other], [volume_of(one)])
    a(Keep, kept)
    assert a(Publish, published).name == LONGER_OTHER


def test_where_a_foreign_volume_has_the_name_the_longer_one_is_taken() -> None:
    foreign = volume_of(filesystem("elsewhere"), name=SHORT, hostname="another-node")
    action = a(Publish, only_step([filesystem(ONE)], asked={SHORT: foreign}))
    assert action.name == LONGER_ONE


def test_the_foreign_volume_that_made_it_longer_is_not_asked_for_again() -> None:
    foreign = volume_of(filesystem("elsewhere"), name=SHORT, hostname="another-node")
    entry = filesystem(ONE, content="holds")
    assert a(Ask, only_step([entry], asked={SHORT: foreign})).name == LONGER_ONE
    hold = only_step([entry], asked={SHORT: foreign, LONGER_ONE: None})
    held(hold, "not-empty")


def test_cleaning_before_first_use_asks_for_the_name_it_will_have() -> None:
    foreign = volume_of(filesystem("elsewhere"), name=SHORT, hostname="another-node")
    entry, classes = filesystem(ONE, content="holds"), [class_facts(first_use="clean")]
    a(Ask, only_step([entry], asked={SHORT: foreign}, classes=classes))
    action = only_step([entry], asked={SHORT: foreign, LONGER_ONE: None}, classes=classes)
    assert a(CleanFirst, action).name == LONGER_ONE


def test_where_both_names_are_taken_the_volume_is_held_and_says_so() -> None:
    elsewhere = filesystem("elsewhere")
    taken = {name: volume_of(elsewhere, name=name) for name in (SHORT, LONGER_ONE)}
    hold = held(only_step([filesystem(ONE)], asked=taken), "name-taken")
    assert "both its names" in hold.reason
    assert hold.again_seconds > 0


def test_where_both_names_are_taken_it_gets_one_that_nobody_could_know() -> None:
    elsewhere = filesystem("elsewhere")
    taken = {name: volume_of(elsewhere, name=name) for name in (SHORT, LONGER_ONE)}
    actions = [
        a(Publish, only_step([filesystem(ONE)], asked=taken, salt=salt)) for salt in ("a", "a", "b")
    ]
    assert all(action.spare for action in actions)
    first, again, other = (action.name for action in actions)
    assert first == again
    assert len({first, other, *taken}) == 4
    assert not a(Publish, only_step([filesystem(ONE)], salt="a")).spare


def test_where_both_names_are_taken_nothing_is_cleaned_first() -> None:
    elsewhere = filesystem("elsewhere")
    taken = {name: volume_of(elsewhere, name=name) for name in (SHORT, LONGER_ONE)}
    classes = [class_facts(first_use="clean")]
    action = only_step([filesystem(ONE, content="holds")], asked=taken, classes=classes)
    held(action, "name-taken")


def test_two_entries_of_one_pass_that_hash_alike_get_two_names() -> None:
    first, second = steps_of([filesystem(ONE), filesystem(OTHER)])
    assert a(Publish, first).name == SHORT
    assert a(Publish, second).name == LONGER_OTHER


def test_the_parts_of_two_classes_may_join_to_the_same_name() -> None:
    classes = [
        class_facts("test-nodey", host_dir="/mnt/one"),
        class_facts("y", host_dir="/mnt/two"),
    ]
    one = filesystem("x", "test-nodey", host_dir="/mnt/one")
    other = filesystem("xtest-node", "y", host_dir="/mnt/two")
    first, second = (a(Publish, action) for action in steps_of([one, other], classes=classes))
    assert volume_name("x", NODE.name, "test-nodey") == volume_name("xtest-node", NODE.name, "y")
    assert first.name != second.name
