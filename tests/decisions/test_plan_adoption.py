"""Adoption: an object that an older provisioner made is taken over, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import Adopt, Entry, Keep, MarkClaimed, Reclaim
from localvolume.static.plan.plan import plan
from localvolume.volumes.names import longer_volume_name, volume_name
from tests.decisions.support_plan import (
    ELSEWHERE,
    NODE,
    State,
    a,
    block,
    bound_to,
    broken,
    class_facts,
    facts_of,
    filesystem,
    held,
    only_step,
    released_from,
    step_about,
    steps_about,
    steps_of,
    volume_of,
)

NAME = volume_name("disk", NODE.name, "fast")
OTHERS_IDENTITY = {"kind": "filesystem", "fsType": "ext4", "uuid": "other", "root": "/"}


def upstreams(entry: Entry, **changes: Any) -> PersistentVolume:
    """What an upstream provisioner of this node made for the entry: without any of our marks."""
    return volume_of(entry, **{"identity": None, "finalized": False} | changes)


# --- an object without our label, met under the name a volume would have ------------------------


@pytest.mark.parametrize("content", ["empty", "holds", "busy", "unknown", None])
@pytest.mark.parametrize("phase", ["Available", "Bound", "Released", "Failed", "Pending", ""])
def test_an_older_object_for_this_volume_is_adopted_whatever_it_holds(
    content: State | None, phase: str
) -> None:
    entry = filesystem(content=content)
    older = upstreams(entry, phase=phase, claim="c" if phase in ("Bound", "Released") else "")
    action = a(Adopt, only_step([entry], asked={NAME: older}))
    assert action.volume is older
    assert action.identity == entry.identity


def test_an_older_object_under_the_longer_name_is_adopted_too() -> None:
    entry = filesystem()
    longer = longer_volume_name("disk", NODE.name, "fast")
    older = upstreams(entry, name=longer)
    foreign = volume_of(filesystem("elsewhere"), name=NAME, hostname=ELSEWHERE)
    assert a(Adopt, only_step([entry], asked={NAME: foreign, longer: older})).volume is older


@pytest.mark.parametrize(
    "provisioner",
    [
        f"local-volume-provisioner-{NODE.name}",
        f"local-volume-provisioner-{NODE.name}-{NODE.uid}",
        f"local-volume-provisioner-{NODE.name}-uid-of-the-node-before-it-was-made-anew",
    ],
)
def test_every_name_that_a_provisioner_of_this_node_ever_had_counts(provisioner: str) -> None:
    entry = filesystem()
    a(Adopt, only_step([entry], asked={NAME: upstreams(entry, provisioner=provisioner)}))


def test_an_object_that_says_what_it_is_keeps_what_it_says() -> None:
    entry = filesystem()
    own = volume_of(entry, finalized=False)
    assert a(Adopt, only_step([entry], asked={NAME: own})).identity is None


@pytest.mark.parametrize(
    ("entry", "older", "why"),
    [
        pytest.param(
            filesystem(),
            upstreams(filesystem(), class_name="slow", name=NAME),
            "its class is 'slow'",
            id="another class",
        ),
        pytest.param(
            filesystem(),
            upstreams(filesystem(), hostname=ELSEWHERE),
            "does not name this node",
            id="another node by affinity",
        ),
        pytest.param(
            filesystem(),
            upstreams(filesystem(), provisioner="local-volume-provisioner-another-node"),
            "local-volume-provisioner-another-node made it",
            id="another node by provisioner",
        ),
        pytest.param(
            filesystem(),
            upstreams(filesystem(), provisioner=None),
            "no provisioner made it",
            id="made by hand",
        ),
        pytest.param(
            filesystem(),
            volume_of(filesystem(), identity=OTHERS_IDENTITY),
            "its uuid was 'other'",
            id="another identity",
        ),
        pytest.param(
            filesystem(),
            volume_of(filesystem(), identity="scribble"),
            "unreadable",
            id="an unreadable identity",
        ),
        pytest.param(
            filesystem(),
            upstreams(filesystem(), capacity="7Gi"),
            "published with 7516192768 bytes",
            id="another size",
        ),
        pytest.param(
            filesystem(),
            upstreams(filesystem(), mode="Block"),
            "published as a block device",
            id="a block device's object for a directory",
        ),
        pytest.param(
            filesystem(),
            upstreams(filesystem(), deleting=True),
            "it is being deleted",
            id="being deleted",
        ),
    ],
)
def test_an_object_that_may_be_for_another_volume_is_left_alone(
    entry: Entry, older: PersistentVolume, why: str
) -> None:
    hold = held(only_step([entry], asked={NAME: older}), "name-taken")
    assert NAME in hold.reason
    assert why in hold.reason
    assert hold.again_seconds > 0
    assert hold.volume is None, "no Event on an object that is not ours"


def test_an_object_for_another_path_is_no_object_for_this_volume() -> None:
    """It has the name alone: this volume gets its longer name, and the object stays as it is."""
    entry = filesystem()
    other = upstreams(filesystem("elsewhere"), name=NAME)
    (action,) = plan(facts_of([entry], asked={NAME: other}))
    assert not isinstance(action, Adopt)


def test_an_unusable_entry_adopts_nothing() -> None:
    entry = filesystem()
    older = upstreams(entry)
    held(only_step([broken("unknown")], asked={NAME: older}), "unknown")
    held(only_step([broken("gone")], asked={NAME: older}), "gone")


# --- an object with our label that lacks the rest ------------------------------------------------


@pytest.mark.parametrize("phase", ["Available", "Pending", "Bound"])
def test_a_volume_without_our_finalizer_and_identity_gets_both(phase: str) -> None:
    entry = filesystem()
    volume = upstreams(entry, phase=phase, claim="c" if phase == "Bound" else "")
    first = a(Adopt, steps_of([entry], [volume])[0])
    assert first.volume is volume
    assert first.identity == entry.identity


def test_a_volume_with_the_finalizer_alone_gets_its_identity() -> None:
    entry = filesystem()
    action = a(Adopt, only_step([entry], [volume_of(entry, identity=None)]))
    assert action.identity == entry.identity


def test_a_volume_with_its_identity_alone_gets_the_finalizer() -> None:
    entry = filesystem()
    action = a(Adopt, only_step([entry], [volume_of(entry, finalized=False)]))
    assert action.identity is None, "what it says is never written over"


def test_a_volume_with_everything_is_not_adopted_again() -> None:
    entry = filesystem()
    a(Keep, only_step([entry], [volume_of(entry)]))


@pytest.mark.parametrize(
    ("now", "changes"),
    [
        pytest.param(broken("gone"), {}, id="not there now"),
        pytest.param(broken("unknown"), {}, id="not answering now"),
        pytest.param(filesystem(size=5 * 2**30), {}, id="of another size"),
        pytest.param(filesystem(), {"mode": "Block"}, id="of another kind"),
    ],
)
@pytest.mark.parametrize("phase", ["Available", "Bound"])
def test_what_cannot_be_known_to_be_the_volume_is_not_written_down_as_it(
    now: Entry, changes: dict[str, Any], phase: str
) -> None:
    volume = upstreams(filesystem(), phase=phase, claim="c" if phase == "Bound" else "", **changes)
    adopted = [s for s in steps_of([now], [volume]) if isinstance(s, Adopt)]
    assert [action.identity for action in adopted] == [None], (
        "the finalizer protects it all the same"
    )


def test_a_released_volume_is_adopted_before_it_is_reclaimed() -> None:
    """Otherwise its object would be gone at once, and its data offered to the next."""
    entry = filesystem()
    a(Adopt, only_step([entry], [released_from(entry, finalized=False)]))
    assert a(Adopt, only_step([entry], [released_from(entry, identity=None)])).identity == (
        entry.identity
    )
    a(Reclaim, only_step([entry], [released_from(entry)]))


def test_a_bound_volume_is_adopted_first_and_marked_as_claimed_next_time() -> None:
    entry = filesystem()
    actions = steps_of([entry], [upstreams(entry, phase="Bound", claim="c")])
    assert [type(action) for action in actions] == [Adopt, Keep]
    actions = steps_of([entry], [volume_of(entry, phase="Bound", claim="c")])
    assert [type(action) for action in actions] == [MarkClaimed, Keep]


def test_an_object_that_is_misplaced_is_not_adopted() -> None:
    """Our finalizer on another node's object would keep it from ever being deleted."""
    entry = filesystem()
    for foreign in (
        upstreams(entry, hostname=ELSEWHERE),
        upstreams(entry, local=False),
        upstreams(entry, path="/mnt/disks-2/disk"),
    ):
        held(step_about(steps_of([entry], [foreign]), foreign), "misplaced")


@pytest.mark.parametrize("changes", [{"hostname": ELSEWHERE}, {"local": False}])
def test_nor_is_it_while_a_claim_holds_it(changes: dict[str, Any]) -> None:
    entry = filesystem()
    foreign = upstreams(entry, phase="Bound", claim="c", **changes)
    actions = steps_about(steps_of([entry], [foreign]), foreign)
    assert actions
    assert not [action for action in actions if isinstance(action, Adopt)]


@pytest.mark.parametrize("phase", ["Released", "Failed"])
def test_what_nobody_is_to_touch_is_not_adopted_either(phase: str) -> None:
    entry = filesystem()
    volume = upstreams(entry, phase=phase, claim="c", policy="Retain")
    actions = steps_of([entry], [volume])
    assert not [action for action in actions if isinstance(action, Adopt)]


def test_a_take_over_of_a_whole_node_only_adopts() -> None:
    """Running upstream and then us changes no volume: nothing is deleted, nothing is renamed."""
    entries = [filesystem("a"), block("b"), filesystem("c", content="holds"), block("d")]
    volumes = [
        upstreams(entries[0]),
        upstreams(entries[1]),
        upstreams(entries[2], phase="Bound", claim="c"),
        upstreams(entries[3], phase="Pending"),
    ]
    for action in steps_of(entries, volumes):
        assert isinstance(action, Adopt | Keep), action
    asked = {volume.metadata.name: volume for volume in volumes}
    unlabelled = steps_of([replace(entry) for entry in entries], asked=asked)
    assert [type(action) for action in unlabelled] == [Adopt] * 4


def test_a_block_device_is_adopted_under_either_mode() -> None:
    for mode in ("Block", "Filesystem"):
        entry = block()
        classes = [class_facts(mode=mode)]
        older = upstreams(entry, mode=mode)
        a(Adopt, only_step([entry], asked={NAME: older}, classes=classes))


def test_a_claim_is_marked_on_a_volume_that_is_ours_already() -> None:
    entry = filesystem()
    a(Keep, only_step([entry], [bound_to(entry)]))
