"""What an agent tells of its node's raw disks: which, in which order, how much, and in what."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from localvolume.disks.model import DiskPlan
from localvolume.disks.plan.told import LONGEST, MOST, Step, Telling, manifest, note_of, steps
from localvolume.kube.objects import CSIStorageCapacity, OwnerReference
from localvolume.volumes.manifest import NodeFacts
from tests.decisions.support_disks import NODE, disk, inside, planned
from tests.suite.units import GIB

FACTS = NodeFacts(NODE, "uid-1", "host-1")
POD = OwnerReference(api_version="v1", kind="Pod", name="lvp-1", uid="uid-of-pod")


def told(plan: DiskPlan) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(note_of(plan))
    return found


def devices(plan: DiskPlan) -> list[str]:
    return [one["device"] for one in told(plan)["disks"]]


def test_a_disk_is_told_with_what_the_plan_says_of_it() -> None:
    plan = planned(disk())
    assert told(plan) == {
        "disks": [
            {
                "path": "/dev/disk/by-id/wwn-0x5000sda",
                "device": "/dev/sda",
                "sizeBytes": 100 * GIB,
                "model": "SAMSUNG_MZ7",
                "serial": "S-sda",
                "wwn": "naa.5000sda",
                "transport": "sata",
                "class": "fast",
                "verdict": "format",
                "reason": (
                    "it is blank, and ssds matches it: ext4 for fast; the plan is not approved"
                ),
                "plan": plan.digest,
                "approved": False,
            }
        ],
        "more": 0,
    }
    (row,) = told(planned(disk(), approved=[plan.digest]))["disks"]
    assert row["approved"] is True
    (row,) = told(planned(inside(disk(links=()), signature="ext4")))["disks"]
    assert (row["path"], row["verdict"], row["code"]) == ("/dev/sda", "hold", "signature")
    assert "approved" not in row


def test_what_somebody_may_have_to_do_something_about_comes_first() -> None:
    large, small = disk("sdc"), disk("sda", size_bytes=1)
    assert devices(planned(small, inside(disk("sdb"), signature="xfs"), large)) == [
        "/dev/sdc",
        "/dev/sdb",
        "/dev/sda",
    ]


def test_what_comes_and_goes_with_volumes_is_not_told_of() -> None:
    """A write for each volume of a pool of images would be one too many."""
    others = [
        disk("loop0", transport="loop"),
        disk("dm-0", transport="", virtual=True),
        disk("sda1", parent="sda"),
        disk("sdb", virtual=True, size_bytes=1),
    ]
    assert devices(planned(*others)) == []
    # A filter may mean one of them all the same.
    assert devices(planned(*others, disk("sdc", virtual=True))) == ["/dev/sdc"]


def test_there_is_a_bound_and_it_says_how_many_more_there_are() -> None:
    many = [disk(f"sd{number:03}") for number in range(MOST + 7)]
    found = told(planned(*many))
    assert len(found["disks"]) + found["more"] == MOST + 7
    assert 20 < len(found["disks"]) <= MOST
    long = [replace(one, model="m" * 1000, links=("l" * 1000,)) for one in many]
    note = note_of(planned(*long))
    assert len(note) <= LONGEST
    assert json.loads(note)["more"] == MOST + 7 - len(json.loads(note)["disks"])
    assert len(json.loads(note)["disks"]) > 5
    assert {len(one["model"]) for one in json.loads(note)["disks"]} == {300}
    # However little there is to say of each.
    small = [replace(one, size_bytes=1, model="", identity={}, links=()) for one in many]
    found = told(planned(*small))
    assert (len(found["disks"]), found["more"]) == (MOST, 7)


def test_no_disks_are_told_of_too() -> None:
    assert told(planned()) == {"disks": [], "more": 0}


# --- the object -----------------------------------------------------------------------------------


def telling(note: str = "note", **changes: Any) -> Telling:
    return Telling(**{"note": note, "node": FACTS, "owner": POD, **changes})


def made(of: Telling | None = None, **changes: Any) -> CSIStorageCapacity:
    """As the API server would keep it, with some differences of its metadata and itself."""
    body = manifest(of or telling(), "storage")
    body["metadata"] |= {"uid": "uid-of-it", "resourceVersion": "7"}
    for key in ("labels", "ownerReferences", "name", "deletionTimestamp"):
        if key in changes:
            body["metadata"][key] = changes.pop(key)
    return msgspec.convert({**body, **changes}, CSIStorageCapacity)


def kinds(found: list[Step]) -> list[str]:
    return [one.do for one in found]


def test_it_is_made_corrected_and_deleted_and_else_left_alone() -> None:
    assert kinds(steps(telling(), NODE, [])) == ["create"]
    assert steps(telling(), NODE, [made()]) == []
    assert kinds(steps(telling("other"), NODE, [made()])) == ["correct"]
    assert kinds(steps(None, NODE, [made()])) == ["delete"]
    assert steps(None, NODE, []) == []


def test_what_is_going_is_not_deleted_again_and_does_not_count() -> None:
    leaving = made(deletionTimestamp="2027-01-15T08:00:00Z")
    assert steps(None, NODE, [leaving]) == []
    assert kinds(steps(telling(), NODE, [leaving])) == ["create"]


def test_it_promises_room_to_nobody() -> None:
    body = manifest(telling(), "storage")
    assert "capacity" not in body
    assert "maximumVolumeSize" not in body
    assert "csi.storage.k8s.io/drivername" not in body["metadata"]["labels"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"ownerReferences": []},
        {"ownerReferences": [{"kind": "Pod", "name": "lvp-1", "uid": "of-before"}]},
        {"ownerReferences": [{"uid": "uid-of-pod"}, {"uid": "uid-of-another"}]},
        {"nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "other"}}},
        {"nodeTopology": None},
        {"storageClassName": "fast"},
        {"capacity": "1Ti"},
        {"maximumVolumeSize": "1Ti"},
    ],
)
def test_what_cannot_be_corrected_is_made_anew(wrong: dict[str, Any]) -> None:
    there = made(**wrong)
    found = steps(telling(), NODE, [there])
    assert kinds(found) == ["delete", "create"]
    assert found[0].object is there


def test_of_two_that_say_the_same_one_goes() -> None:
    first, second = made(name="a"), made(name="b")
    (step,) = steps(telling(), NODE, [second, first])
    assert (step.do, step.object) == ("delete", second)


def test_objects_of_others_are_left_alone() -> None:
    labels = made().metadata.labels
    others = [
        made(labels={**labels, "localvolume.dev/node": "node-2"}),
        made(labels={**labels, "csi.storage.k8s.io/managed-by": "localvolume"}),
        made(labels={}),
    ]
    assert steps(None, NODE, others) == []
    assert kinds(steps(telling(), NODE, others)) == ["create"]
