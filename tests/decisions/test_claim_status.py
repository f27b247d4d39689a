"""The patches of a claim's status: what is ours in it changes, and what others wrote stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from localvolume.kube.objects import Condition, ModifyVolumeStatus, PersistentVolumeClaim
from localvolume.volumes import growing, modifying
from localvolume.volumes.capacity import GIB
from tests.decisions.support_dynamic import bound

NOW = 1_800_000_000.0
AT = "2027-01-15T08:00:00Z"
UNUSED = Condition(type="Unused", status="True")
RESIZING = Condition(type="Resizing", status="True")
TESTS = [
    {"op": "test", "path": "/metadata/uid", "value": "1"},
    {"op": "test", "path": "/metadata/resourceVersion", "value": "7"},
]


def with_status(*conditions: Condition, **status: Any) -> PersistentVolumeClaim:
    found = bound(size="3Gi")
    return replace(found, status=replace(found.status, conditions=conditions, **status))


def added(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": f"/status/{path}", "value": value}


def removed(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": f"/status/{path}"}


def failed(type_: str, why: str) -> Mapping[str, str]:
    return {"type": type_, "status": "True", "lastTransitionTime": AT, "message": why}


def test_ours_are_replaced_from_the_last_on_and_others_are_not_touched() -> None:
    """Who takes one away moves all that come after it."""
    given = with_status(RESIZING, UNUSED, Condition(type="NodeResizeError", status="True"))
    patch = growing.infeasible(given, 3 * GIB, "no room", NOW)
    assert patch.body == [
        *TESTS,
        added("allocatedResources", {"storage": "3Gi"}),
        added("allocatedResourceStatuses", {"storage": "ControllerResizeInfeasible"}),
        removed("conditions/2"),
        removed("conditions/0"),
        added("conditions/-", failed("ControllerResizeError", "no room")),
    ]


def test_the_first_one_makes_the_list() -> None:
    patch = growing.resizing(with_status(), 3 * GIB, NOW)
    assert patch is not None
    resizing = {"type": "Resizing", "status": "True", "lastTransitionTime": AT}
    assert patch.body[-1] == added("conditions", [resizing])


@pytest.mark.parametrize("type_", ["Resizing", "FileSystemResizePending"])
def test_what_is_said_of_growing_is_not_written_again(type_: str) -> None:
    given = with_status(
        UNUSED,
        Condition(type=type_, status="True"),
        allocated_resources={"storage": "3Gi"},
        allocated_resource_statuses={"storage": "ControllerResizeInProgress"},
    )
    assert growing.resizing(given, 3 * GIB, NOW) is None
    assert growing.resizing(given, 4 * GIB, NOW) is not None


def test_once_it_has_grown_nothing_of_ours_is_left() -> None:
    given = with_status(
        UNUSED, RESIZING, allocated_resource_statuses={"storage": "ControllerResizeInProgress"}
    )
    assert growing.claim_grown(given, 3 * GIB).body == [
        *TESTS,
        added("capacity", {"storage": "3Gi"}),
        removed("allocatedResourceStatuses"),
        removed("conditions/1"),
    ]


def test_a_long_reason_is_cut_and_known_again() -> None:
    why = "no room " * 1000
    (*_, condition) = growing.infeasible(with_status(), 3 * GIB, why, NOW).body
    (said,) = condition["value"]
    assert len(said["message"]) == 1000
    given = with_status(
        Condition(type="ControllerResizeError", status="True", message=said["message"]),
        allocated_resources={"storage": "3Gi"},
        allocated_resource_statuses={"storage": "ControllerResizeInfeasible"},
    )
    assert growing.is_infeasible(given, 3 * GIB, why, NOW)


def test_a_change_of_attributes_leaves_growing_alone() -> None:
    given = with_status(UNUSED, RESIZING, Condition(type="ModifyingVolume", status="True"))
    patch = modifying.told(given, "gold", "Infeasible", "no such key", NOW)
    assert patch.body == [
        *TESTS,
        added(
            "modifyVolumeStatus",
            {"targetVolumeAttributesClassName": "gold", "status": "Infeasible"},
        ),
        removed("conditions/2"),
        added("conditions/-", failed("ModifyVolumeError", "no such key")),
    ]


def test_a_change_ends_whether_or_not_it_was_said_to_go_on() -> None:
    """A field that is not there cannot be taken away: the API server would refuse all of it."""
    assert modifying.modified_claim(with_status(UNUSED), "gold").body == [
        *TESTS,
        added("currentVolumeAttributesClassName", "gold"),
    ]
    under_way = ModifyVolumeStatus(target_volume_attributes_class_name="gold", status="InProgress")
    given = with_status(
        Condition(type="ModifyingVolume", status="True"), modify_volume_status=under_way
    )
    assert modifying.modified_claim(given, "gold").body == [
        *TESTS,
        removed("modifyVolumeStatus"),
        added("currentVolumeAttributesClassName", "gold"),
        removed("conditions/0"),
    ]
