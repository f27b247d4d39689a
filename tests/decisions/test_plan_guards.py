"""The guards before anything is destroyed, each one alone.

Every case begins with a volume that would be reclaimed or cleaned, and changes one thing. The
reason is part of the test: a guard that another one covers must still be there for itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from localvolume.kube.objects import PersistentVolume
from localvolume.static.model import (
    Action,
    ClassFacts,
    Clean,
    Entry,
    Hold,
    Reclaim,
)
from localvolume.static.plan.plan import EVENT_FAILED_DELETE, plan
from tests.decisions.support_plan import (
    ELSEWHERE,
    a,
    block,
    bound_to,
    broken,
    class_facts,
    facts_of,
    filesystem,
    released_from,
    step_about,
)

IDENTITY = {"kind": "filesystem", "fsType": "ext4", "uuid": "disk", "root": "/"}


@dataclass(frozen=True)
class Case:
    """One thing that must keep a volume from being destroyed, and the words that say so.

    `about` is the object's entry at publishing, `now` what is there today; `volume` are what the
    object says differently; `others` are further objects, `more` further entries.
    """

    says: str
    about: Entry = field(default_factory=filesystem)
    now: Callable[[Entry], Entry | None] = lambda entry: entry
    volume: dict[str, Any] = field(default_factory=dict)
    more: tuple[Entry, ...] = ()
    others: tuple[PersistentVolume, ...] = ()
    classes: tuple[ClassFacts, ...] = ()


def at(path: str) -> Callable[[Entry], Entry]:
    """An entry that stands where the object says, as if discovery had found one there."""
    return lambda entry: replace(entry, host_path=path)


def as_directory(entry: Entry) -> Entry:
    """A directory in the place of a device, with whatever the device was recorded to be."""
    return replace(filesystem(size=entry.size_bytes), identity=entry.identity)


CASES = {
    # Mounted, and there at all.
    "unmounted": Case("not a valid mount point", now=lambda _: broken("gone")),
    "the entry is gone": Case("does not exist", now=lambda _: None),
    "a file in its place": Case("it is a FIFO", now=lambda _: broken("wrong-kind")),
    "hung": Case("did not answer", now=lambda _: broken("unknown")),
    "not read yet": Case("still being read", now=lambda _: broken("reading")),
    "the directory cannot be listed": Case(
        "permission denied",
        now=lambda _: None,
        classes=(class_facts(problem="permission denied"),),
    ),
    "the directory cannot be listed and the entry is an old one": Case(
        "permission denied", classes=(class_facts(problem="permission denied"),)
    ),
    # Identity.
    "another filesystem": Case("its uuid was", now=lambda _: filesystem(uuid="another")),
    "another directory of the same filesystem": Case(
        "its root was", now=lambda entry: replace(entry, identity=IDENTITY | {"root": "/other"})
    ),
    "another disk": Case("its serial was", about=block(), now=lambda _: block(serial="another")),
    "an identity that cannot be seen now": Case(
        "cannot be read now",
        now=lambda entry: replace(entry, identity={"kind": "filesystem", "fsType": "ext4"}),
    ),
    "an unreadable identity": Case("unreadable", volume={"identity": "scribble"}),
    "an identity that is no map of words": Case("unreadable", volume={"identity": '{"uuid":7}'}),
    "no identity and another size": Case(
        "published with 21474836480 bytes and now has 5368709120",
        now=lambda entry: replace(entry, size_bytes=5 * 2**30),
        volume={"identity": None},
    ),
    "no identity and no size": Case(
        "it was published with", volume={"identity": None, "capacity": "plenty"}
    ),
    "an identity that tells nothing apart and another size": Case(
        "published with 21474836480 bytes and now has 5368709120",
        now=lambda entry: replace(entry, size_bytes=5 * 2**30),
        volume={"identity": '{"kind":"filesystem"}'},
    ),
    "an identity that tells nothing apart": Case(
        "not the volume that was published", volume={"identity": '{"kind":"filesystem"}'}
    ),
    "a nameless disk of the same size and another model": Case(
        "its model was",
        about=replace(block(), identity={"kind": "block", "model": "Old", "sizeBytes": "9"}),
        now=lambda entry: replace(
            entry, identity={"kind": "block", "model": "New", "sizeBytes": "9"}
        ),
    ),
    "an empty identity and another size": Case(
        "published with 21474836480 bytes and now has 5368709120",
        now=lambda entry: replace(entry, size_bytes=5 * 2**30),
        volume={"identity": "{}"},
    ),
    "a device's object with an empty identity and a directory": Case(
        "published as a block device",
        about=block(),
        now=as_directory,
        volume={"mode": "Block", "identity": "{}"},
    ),
    "a device's object and a directory": Case(
        "published as a block device", about=block(), now=as_directory, volume={"mode": "Block"}
    ),
    "a device's object and a directory, without an identity": Case(
        "published as a block device",
        about=block(),
        now=as_directory,
        volume={"mode": "Block", "identity": None},
    ),
    # Place.
    "the discovery directory itself": Case(
        "not an entry of", now=at("/mnt/disks"), volume={"path": "/mnt/disks"}
    ),
    "the discovery directory with a slash": Case(
        "not an entry of", now=at("/mnt/disks/"), volume={"path": "/mnt/disks/"}
    ),
    "the discovery directory with a dot": Case(
        "not an entry of", now=at("/mnt/disks/."), volume={"path": "/mnt/disks/."}
    ),
    "the directory above": Case(
        "not an entry of", now=at("/mnt/disks/.."), volume={"path": "/mnt/disks/.."}
    ),
    "a directory whose name begins alike": Case(
        "not an entry of", now=at("/mnt/disks-2/disk"), volume={"path": "/mnt/disks-2/disk"}
    ),
    "two names deep": Case(
        "not an entry of", now=at("/mnt/disks/disk/sub"), volume={"path": "/mnt/disks/disk/sub"}
    ),
    "up and down again": Case(
        "not an entry of",
        now=at("/mnt/disks/../disks-2/disk"),
        volume={"path": "/mnt/disks/../disks-2/disk"},
    ),
    "the root directory": Case("not an entry of", now=at("/"), volume={"path": "/"}),
    "a relative path": Case("not an entry of", now=at("disk"), volume={"path": "disk"}),
    "another node by affinity": Case("does not name this node", volume={"hostname": ELSEWHERE}),
    "not a local volume": Case("not a local volume", now=at(""), volume={"local": False}),
    "a class that is not configured": Case(
        "not in the configuration",
        now=lambda entry: replace(entry, class_name="removed"),
        volume={"class_name": "removed"},
    ),
    "the directory of another class": Case(
        "not an entry of",
        now=lambda entry: replace(entry, class_name="slow"),
        volume={"class_name": "slow"},
        classes=(class_facts(), class_facts("slow", host_dir="/mnt/slow")),
    ),
    # Somebody else's too.
    "another object for the same path": Case(
        "offers the same data", others=(bound_to(filesystem(), name="by-hand"),)
    ),
    "another object for the same path in another class": Case(
        "offers the same data",
        others=(bound_to(filesystem(), class_name="removed", name="by-hand"),),
    ),
    "another path to the same filesystem": Case(
        "offers the same data",
        more=(filesystem("twin", device="fs-disk"),),
        others=(bound_to(filesystem("twin", device="fs-disk")),),
    ),
    "another path to the same device": Case(
        "offers the same data",
        about=block(),
        more=(block("twin", device="block-disk"),),
        others=(bound_to(block("twin", device="block-disk")),),
    ),
    "a directory inside it that is offered": Case(
        "offers the same data",
        more=(filesystem("inner", device="fs-disk", root="/data/inner"),),
        others=(bound_to(filesystem("inner", device="fs-disk", root="/data/inner")),),
    ),
    "the directory around it that is offered": Case(
        "offers the same data",
        about=filesystem(root="/data/inner"),
        more=(filesystem("outer", device="fs-disk", root="/data"),),
        others=(bound_to(filesystem("outer", device="fs-disk", root="/data")),),
    ),
    "the filesystem on the device is offered": Case(
        "offers the same data",
        about=block(device="8:0"),
        more=(filesystem("mounted", device="8:0"),),
        others=(bound_to(filesystem("mounted", device="8:0")),),
    ),
    "the device below the filesystem is offered": Case(
        "offers the same data",
        about=filesystem(device="8:0"),
        more=(block("raw", device="8:0"),),
        others=(bound_to(block("raw", device="8:0"), mode="Block"),),
    ),
    "the same disk offered from a place that cannot be read now, without an identity": Case(
        "offers the same data",
        about=filesystem(uuid="shared"),
        volume={"identity": None},
        more=(broken("unknown", "hung"),),
        others=(bound_to(filesystem("hung", uuid="shared")),),
    ),
    "the same disk offered from a place that cannot be read now": Case(
        "offers the same data",
        about=filesystem(uuid="shared"),
        more=(broken("unknown", "hung"),),
        others=(bound_to(filesystem("hung", uuid="shared")),),
    ),
}


def planned(case: Case, *, deleting: bool) -> Action:
    volume = released_from(case.about, deleting=deleting, **case.volume)
    now = case.now(case.about)
    entries = [*case.more, *([now] if now else [])]
    facts = facts_of(entries, [volume, *case.others], classes=case.classes)
    return step_about(plan(facts), volume)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
@pytest.mark.parametrize("deleting", [False, True], ids=["Released", "being deleted"])
def test_nothing_is_destroyed(case: Case, deleting: bool) -> None:
    hold = a(Hold, planned(case, deleting=deleting))
    assert hold.code == "not-cleaned"
    assert hold.event == EVENT_FAILED_DELETE
    assert hold.again_seconds > 0
    assert case.says in hold.reason
    assert "the data stays" in hold.reason


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_without_the_one_thing_it_would_have_been(case: Case) -> None:
    """The cases above hold for the reason they name and for no other."""
    sound = replace(
        case,
        now=lambda entry: entry,
        volume={"mode": "Block"} if case.about.kind == "block" else {},
        more=(),
        others=(),
        classes=(),
    )
    a(Reclaim, planned(sound, deleting=False))
    a(Clean, planned(sound, deleting=True))


@pytest.mark.parametrize(
    ("about", "other"),
    [
        pytest.param(
            filesystem(root="/a"),
            filesystem("other", device="fs-disk", root="/ab"),
            id="directories whose names begin alike",
        ),
        pytest.param(
            filesystem(root="/a"),
            filesystem("other", device="fs-disk", root="/b"),
            id="two directories of one filesystem",
        ),
        pytest.param(filesystem(), filesystem("other"), id="two filesystems"),
        pytest.param(block(), block("other"), id="two devices"),
        pytest.param(
            replace(filesystem(), device=""),
            replace(filesystem("other"), device=""),
            id="no device",
        ),
    ],
)
def test_a_neighbour_with_other_data_is_no_obstacle(about: Entry, other: Entry) -> None:
    volume = released_from(about)
    facts = facts_of([about, other], [volume, bound_to(other)])
    a(Reclaim, step_about(plan(facts), volume))


def test_a_volume_that_grew_is_cleaned_all_the_same() -> None:
    """Its identity says it is the one; only without an identity does the size have to fit."""
    volume = released_from(filesystem())
    facts = facts_of([filesystem(size=40 * 2**30)], [volume])
    a(Reclaim, step_about(plan(facts), volume))


def test_an_older_object_of_the_right_size_is_cleaned() -> None:
    volume = released_from(filesystem(), identity=None, deleting=True)
    a(Clean, step_about(plan(facts_of([filesystem()], [volume])), volume))


def test_what_lies_in_the_volume_is_no_obstacle() -> None:
    for content in ("holds", "busy", "unknown", None):
        entry = filesystem(content=content)
        a(Reclaim, step_about(plan(facts_of([entry], [volume := released_from(entry)])), volume))


def test_no_obstacle_of_one_volume_keeps_another_from_being_reclaimed() -> None:
    hung, fine = released_from(filesystem("hung")), released_from(filesystem("fine"))
    actions = plan(facts_of([broken("unknown", "hung"), filesystem("fine")], [hung, fine]))
    a(Hold, step_about(actions, hung))
    a(Reclaim, step_about(actions, fine))
