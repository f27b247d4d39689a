"""CSIStorageCapacity objects in a real API server: made, corrected, paced, and others' let be."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from localvolume.dynamic import capacityrole
from localvolume.dynamic.paces import CapacityPaces
from localvolume.dynamic.plan import capacity
from localvolume.dynamic.plan.capacity import object_name
from localvolume.dynamic.plan.fullness import PoolSize, pools_in
from localvolume.volumes.capacity import GIB, MIB
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_accounts import account, allow, rule
from tests.cluster.support_agent import Lab
from tests.cluster.support_capacity import (
    Publisher,
    change,
    copy_of,
    eventually_role,
    publishing,
    remove,
)
from tests.cluster.support_objects import Objects
from tests.suite.api import CAPACITIES
from tests.suite.until import until

MANAGER = "csi.storage.k8s.io/managed-by"


@pytest.fixture
def node(objects: Objects, unique: str) -> str:
    objects.node(unique)
    return unique


@pytest.fixture
def publisher(objects: Objects, node: str, request: pytest.FixtureRequest) -> Iterator[Publisher]:
    """With the paces that a test asks for as its parameter."""
    with publishing(objects, node, paces=getattr(request, "param", None)) as publisher:
        yield publisher


def uids(publisher: Publisher) -> list[str]:
    return [there["metadata"]["uid"] for there in publisher.found()]


def done(publisher: Publisher) -> list[tuple[str, str]]:
    """The writes so far. What the watch still shows a second after its deletion is deleted again,
    in vain: that is none."""
    return [one for one in list(publisher.requests) if one != ("delete", "NotFound")]


def settled(publisher: Publisher) -> None:
    """Whatever the role is to do about what there is now, it has had the time for it."""
    publisher.look()
    time.sleep(2 * CapacityPaces().between)
    publisher.look()


# --- made, changed, removed -----------------------------------------------------------------------


def test_an_object_of_a_class_is_made_changed_and_removed(publisher: Publisher) -> None:
    """E17, E19, E23, E26, E32, E37."""
    publisher.room(a=(2 * GIB, 3 * GIB + 5))
    publisher.says(a=("5Gi", "3Gi"))
    made = publisher.object_of("a")
    uid = publisher.objects.get(f"/api/v1/nodes/{publisher.node}")["metadata"]["uid"]
    assert made["metadata"]["labels"] == {
        "localvolume.dev/node": publisher.node,
        "csi.storage.k8s.io/drivername": "dynamic.localvolume.dev",
        "csi.storage.k8s.io/managed-by": "localvolume",
    }
    assert made["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": publisher.node, "uid": uid}
    ]
    assert made["nodeTopology"] == {"matchLabels": {"kubernetes.io/hostname": publisher.node}}
    publisher.room(a=GIB, b=0)
    publisher.says(a="1Gi", b="0")
    assert publisher.object_of("a")["metadata"]["uid"] == made["metadata"]["uid"]
    publisher.room(b=0, c=MIB)
    publisher.says(b="0", c="1Mi")
    publisher.room(b=(), c=MIB)
    publisher.says(c="1Mi")
    publisher.forget_requests()
    publisher.room()
    publisher.says()
    # The answer may be on its way still.
    until(lambda: done(publisher), bool)
    settled(publisher)
    assert done(publisher) == [("delete", "")]


def test_the_end_of_the_process_leaves_them_and_a_new_one_takes_them_over(
    objects: Objects, node: str
) -> None:
    """E22. The name is the same at every start: no twins."""
    with publishing(objects, node) as first:
        first.room(a=GIB, b=GIB)
        first.says(a="1Gi", b="1Gi")
        before = first.found()
        first.stop()
        assert first.found() == before
        with publishing(objects, node) as second:
            second.room(a=GIB, b=GIB)
            settled(second)
            assert second.requests == []
            assert second.found() == before
            second.room(a=GIB)
            second.says(a="1Gi")


def test_what_goes_with_the_node_comes_again_with_a_new_one(
    publisher: Publisher, objects: Objects
) -> None:
    """The real garbage collector takes the old one, if we do not before."""
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (before,) = publisher.found()
    objects.plane.request("DELETE", f"/api/v1/nodes/{publisher.node}")
    objects.plane.create_node(publisher.node)
    publisher.look()
    uid = objects.get(f"/api/v1/nodes/{publisher.node}")["metadata"]["uid"]

    def owners() -> list[str]:
        return [t["metadata"]["ownerReferences"][0]["uid"] for t in publisher.found()]

    until(owners, lambda found: found == [uid])
    settled(publisher)
    assert owners() == [uid]
    assert uids(publisher) != [before["metadata"]["uid"]]


def test_without_its_node_an_object_goes(publisher: Publisher, objects: Objects) -> None:
    """Also where no agent is there to take it away."""
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    publisher.stop()
    objects.plane.request("DELETE", f"/api/v1/nodes/{publisher.node}")
    until(publisher.found, lambda found: found == [])


# --- what others do -------------------------------------------------------------------------------


def test_what_others_delete_or_spoil_is_put_right(publisher: Publisher, objects: Objects) -> None:
    """E33, E34, E36."""
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    remove(objects, made)
    until(lambda: uids(publisher), lambda found: found not in ([], [made["metadata"]["uid"]]))
    (made,) = publisher.found()
    change(objects, made, {"capacity": "7Ti", "maximumVolumeSize": None})
    publisher.says(a="1Gi")
    objects.plane.request("POST", CAPACITIES, copy_of(made, name=f"csisc-{publisher.node}"))
    publisher.says(a="1Gi")

    def nobodys() -> bool:
        """Made anew by somebody, if we are not faster, which we may be a second later."""
        remove(objects, made)
        with contextlib.suppress(RequestFailed):
            objects.plane.request("POST", CAPACITIES, copy_of(made, ownerReferences=[]))
            return True
        return False

    until(nobodys, bool)
    publisher.says(a="1Gi")
    until(
        lambda: [there["metadata"] for there in publisher.found()],
        lambda found: [("ownerReferences" in meta) for meta in found] == [True],
    )


def test_objects_of_others_are_not_touched(publisher: Publisher, objects: Objects) -> None:
    """E28, E29, E35."""
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    labels = made["metadata"]["labels"]
    theirs = [
        objects.make(CAPACITIES, copy_of(made, name=f"{publisher.node}-{number}", labels=kept))
        for number, kept in enumerate(
            [
                labels | {MANAGER: "someone-else"},
                {key: value for key, value in labels.items() if key != MANAGER},
                labels | {"localvolume.dev/node": "another"},
                {},
            ]
        )
    ]
    publisher.room(a=2 * GIB)
    until(lambda: publisher.object_of("a")["capacity"], lambda text: text == "2Gi")
    publisher.room()
    until(lambda: made["metadata"]["uid"] in uids(publisher), lambda there: not there)
    settled(publisher)
    for there in theirs:
        assert objects.get(f"{CAPACITIES}/{there['metadata']['name']}") == there | {
            "kind": "CSIStorageCapacity",
            "apiVersion": "storage.k8s.io/v1",
        }


@pytest.mark.parametrize("seen", [True, False])
def test_one_that_somebody_takes_over_is_theirs(
    publisher: Publisher, objects: Objects, seen: bool
) -> None:
    """E35: we make another, whether or not it still bears the label that we see ours by."""
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    labels: dict[str, Any] = {MANAGER: "someone-else"}
    if not seen:
        labels["localvolume.dev/node"] = None
    theirs = change(objects, made, {"metadata": {"labels": labels}, "capacity": "7Ti"})
    objects.adopt(f"{CAPACITIES}/{made['metadata']['name']}")
    second = f"{CAPACITIES}/{object_name(publisher.node, 'a', 1)}"
    until(
        lambda: [t["metadata"]["name"] for t in publisher.found()],
        lambda names: second.rpartition("/")[2] in names,
    )
    publisher.room(a=2 * GIB)
    until(lambda: objects.get(second)["capacity"], lambda text: text == "2Gi")
    assert publisher.object_of("a") == theirs


@pytest.mark.parametrize("verb", ["patch", "delete"])
def test_a_write_decided_before_somebody_took_it_over_is_not_made(
    publisher: Publisher, objects: Objects, verb: str
) -> None:
    """The API server itself refuses it: a conflict, and then it is looked at again."""
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    objects.adopt(f"{CAPACITIES}/{made['metadata']['name']}")
    publisher.forget_requests()
    publisher.before_write.append({"metadata": {"labels": {MANAGER: "someone-else"}}})
    publisher.room(a=2 * GIB if verb == "patch" else ())
    until(lambda: publisher.requests[:1], bool)
    assert publisher.requests[0] == (verb, "Conflict")
    settled(publisher)
    there = publisher.object_of("a")
    assert there["metadata"]["uid"] == made["metadata"]["uid"]
    assert there["capacity"] == "1Gi"


def test_a_conflict_that_means_nothing_is_overcome(publisher: Publisher) -> None:
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    publisher.before_write.append({"metadata": {"annotations": {"a": "b"}}})
    publisher.room(a=2 * GIB)
    publisher.says(a="2Gi")
    assert ("patch", "Conflict") in publisher.requests
    assert publisher.object_of("a")["metadata"]["annotations"] == {"a": "b"}


def test_one_that_somebody_holds_is_not_waited_for(publisher: Publisher, objects: Objects) -> None:
    """A finalizer keeps it after its deletion, under the name that we want."""
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    change(objects, made, {"metadata": {"finalizers": ["example.com/held"]}})
    publisher.room()
    until(lambda: "deletionTimestamp" in publisher.object_of("a")["metadata"], bool)
    publisher.room(a=3 * GIB)
    second = object_name(publisher.node, "a", 1)
    until(lambda: [t["metadata"]["name"] for t in publisher.found()], lambda names: second in names)


# --- when it is written ---------------------------------------------------------------------------


def test_growth_is_written_once_a_second_and_the_last_word_counts(publisher: Publisher) -> None:
    began = time.monotonic()
    for size in range(1, 101):
        publisher.room(a=size * MIB)
        time.sleep(0.02)
    publisher.says(a="100Mi")
    took = time.monotonic() - began
    assert len(publisher.requests) <= took / CapacityPaces().between + 1


@pytest.mark.parametrize("publisher", [CapacityPaces(between=3600.0)], ids=[""], indirect=True)
def test_what_shrinks_is_written_at_once(publisher: Publisher) -> None:
    publisher.room(a=(3 * GIB, 2 * GIB))
    publisher.says(a=("5Gi", "3Gi"))
    publisher.room(a=(3 * GIB, GIB))
    publisher.says(a=("4Gi", "3Gi"))
    publisher.room(a=(2 * GIB, 2 * GIB))
    publisher.says(a=("4Gi", "2Gi"))
    publisher.room(a=9 * GIB)  # waits
    time.sleep(0.3)
    publisher.says(a=("4Gi", "2Gi"))
    publisher.room(a=(GIB, 9 * GIB), b=0)  # more in all: waits, the other is new
    publisher.says(a=("4Gi", "2Gi"), b="0")
    publisher.room(a=GIB, b=0)
    publisher.says(a="1Gi", b="0")
    publisher.room()
    publisher.says()


def heard(publisher: Publisher) -> list[Mapping[str, str]]:
    """The annotations of our objects, as the role's own watch has told of them so far."""
    items = eventually_role(publisher).informer.items
    return [there.metadata.annotations for there in list(items.values())]


def used(publisher: Publisher) -> int | None:
    note = publisher.object_of("a")["metadata"]["annotations"]["localvolume.dev/pools"]
    return pools_in(note)["fast"].used_bytes


@pytest.mark.parametrize("publisher", [CapacityPaces(used=3600.0)], ids=[""], indirect=True)
def test_how_full_pools_are_waits_for_minutes_and_keeps_nothing_else_waiting(
    publisher: Publisher,
) -> None:
    publisher.pools = {"fast": PoolSize(100 * GIB, 10 * GIB)}
    publisher.room(a=50 * GIB)
    publisher.says(a="50Gi")
    publisher.pools = {"fast": PoolSize(100 * GIB, 60 * GIB)}
    publisher.forget_requests()
    settled(publisher)
    assert publisher.requests == []
    assert used(publisher) == 10 * GIB
    # It goes along with what promises less, at once and in one write.
    publisher.room(a=40 * GIB)
    publisher.says(a="40Gi")
    assert used(publisher) == 60 * GIB
    publisher.pools = {"fast": PoolSize(100 * GIB, 70 * GIB)}
    settled(publisher)
    # And with what promises more, a second later.
    publisher.room(a=45 * GIB)
    publisher.says(a="45Gi")
    assert used(publisher) == 70 * GIB
    # The answer may be on its way still.
    until(lambda: done(publisher), lambda writes: writes == [("patch", "")] * 2)


@pytest.mark.parametrize("publisher", [CapacityPaces(used=2.0)], ids=[""], indirect=True)
def test_how_full_pools_are_is_written_in_the_end(publisher: Publisher) -> None:
    publisher.pools = {"fast": PoolSize(100 * GIB, 10 * GIB)}
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    began = time.monotonic()
    publisher.forget_requests()
    for percent in range(11, 31):
        publisher.pools = {"fast": PoolSize(100 * GIB, percent * GIB)}
        publisher.look()
        time.sleep(0.1)
    until(lambda: used(publisher), lambda found: found == 30 * GIB)
    took = time.monotonic() - began
    assert len(done(publisher)) <= took / 2.0 + 1


@pytest.mark.parametrize(
    "publisher",
    [CapacityPaces(used=0.0, first_wait=3600.0, longest_wait=3600.0)],
    ids=[""],
    indirect=True,
)
def test_one_that_fails_to_say_how_full_pools_are_promises_less_at_once(
    publisher: Publisher,
) -> None:
    """The wait after that failure is its own."""
    publisher.pools = {"fast": PoolSize(100 * GIB, 10 * GIB)}
    publisher.room(a=5 * GIB)
    publisher.says(a="5Gi")
    publisher.forget_requests()
    publisher.before_write.append({"metadata": {"annotations": {"a": "b"}}})
    publisher.pools = {"fast": PoolSize(100 * GIB, 60 * GIB)}
    publisher.look()
    until(lambda: publisher.requests[:1], lambda found: found == [("patch", "Conflict")])
    # What is written before the role has heard of that change would be a conflict, too.
    until(lambda: heard(publisher), lambda found: [one.get("a") for one in found] == ["b"])
    publisher.room(a=GIB)
    publisher.says(a="1Gi")


def test_whoever_will_not_leave_off_is_answered_once_a_second(
    publisher: Publisher, objects: Objects
) -> None:
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    publisher.forget_requests()
    began = time.monotonic()
    while (took := time.monotonic() - began) < 3:
        change(objects, made, {"capacity": "7Ti"})
        time.sleep(0.02)
    publisher.says(a="1Gi")
    until(lambda: publisher.requests[:1], bool)
    assert len(publisher.requests) <= (took / CapacityPaces().between + 2) * 2


def test_nor_is_whoever_makes_again_what_is_not_wanted(
    publisher: Publisher, objects: Objects
) -> None:
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    publisher.room()
    publisher.says()
    publisher.forget_requests()
    began = time.monotonic()
    while (took := time.monotonic() - began) < 3:
        if not publisher.found():
            objects.plane.request("POST", CAPACITIES, copy_of(made))
        time.sleep(0.02)
    publisher.says()
    until(lambda: done(publisher)[:1], bool)
    assert len(done(publisher)) <= took / CapacityPaces().between + 2


def test_an_api_server_that_is_away_is_waited_for(publisher: Publisher, objects: Objects) -> None:
    publisher.room(a=GIB)
    publisher.says(a="1Gi")
    (made,) = publisher.found()
    objects.plane.stop_apiserver(0.0)
    try:
        publisher.update({"a": MIB, "b": GIB}, fresh=False)
        until(lambda: len(publisher.requests), lambda count: count > 3)
        assert eventually_role(publisher).refused == ""
    finally:
        objects.plane.start_apiserver()
    publisher.says(a="1Mi", b="1Gi")
    assert publisher.object_of("a")["metadata"]["uid"] == made["metadata"]["uid"]


# --- not being allowed to -------------------------------------------------------------------------

READ = rule("csistoragecapacities", "get", "list", "watch", group="storage.k8s.io")
WRITE = rule("csistoragecapacities", "create", "patch", "delete", group="storage.k8s.io")
EVENTS = rule("events", "create", "patch")


def test_not_being_allowed_to_write_is_said_once_and_waited_out(lab: Lab) -> None:
    kubeconfig = account(lab, [READ, EVENTS])
    soon = CapacityPaces(longest_wait=0.2)
    with publishing(lab.objects, lab.node, kubeconfig, soon) as publisher:
        publisher.room(a=GIB, b=GIB)
        role = eventually_role(publisher)
        until(lambda: role.refused, bool)
        assert "cannot create resource" in role.refused
        until(lambda: len(publisher.requests), lambda count: count > 8)
        said = lab.event(lab.node, capacityrole.EVENT_REFUSED, "cannot create resource")
        assert said["type"] == "Warning"
        assert said["count"] == 1
        assert len([e for e in lab.events(lab.node) if e["reason"] == said["reason"]]) == 1
        assert len([line for line in lab.log() if line.startswith("ERROR")]) == 1
        # What is no longer wanted is no longer refused.
        publisher.room()
        until(lambda: role.refused, lambda text: text == "")
        assert lab.event(lab.node, capacityrole.EVENT_REFUSED_OVER)["type"] == "Normal"
        allow(lab, [READ, WRITE, EVENTS])
        publisher.room(a=GIB, b=GIB)
        publisher.says(a="1Gi", b="1Gi")
        until(lambda: role.refused, lambda text: text == "")


def test_what_need_not_be_written_any_more_is_no_longer_refused(lab: Lab) -> None:
    with publishing(lab.objects, lab.node) as other:
        other.room(a=GIB)
        other.says(a="1Gi")
        other.stop()
        kubeconfig = account(lab, [READ, EVENTS])
        with publishing(lab.objects, lab.node, kubeconfig) as publisher:
            publisher.room(a=2 * GIB)
            role = eventually_role(publisher)
            until(lambda: role.refused, bool)
            assert "cannot patch resource" in role.refused
            publisher.room(a=GIB)
            until(lambda: role.refused, lambda text: text == "")


def test_not_being_allowed_to_read_is_said_and_waited_out(lab: Lab) -> None:
    kubeconfig = account(lab, [WRITE, EVENTS])
    with publishing(lab.objects, lab.node, kubeconfig) as publisher:
        publisher.room(a=GIB)
        role = eventually_role(publisher)
        until(lambda: role.refused, bool)
        assert "cannot list resource" in role.refused
        assert publisher.requests == []
        allow(lab, [READ, WRITE, EVENTS])
        publisher.says(a="1Gi")
        until(lambda: role.refused, lambda text: text == "")


def test_a_mistake_of_ours_about_one_class_does_not_end_the_others(
    publisher: Publisher, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    faults = [ZeroDivisionError("a mistake")]
    real = capacity.manifest

    def mistaken(step: Any, *others: Any) -> Any:
        if step.key == "a" and faults:
            raise faults.pop()
        return real(step, *others)

    monkeypatch.setattr(capacityrole, "manifest", mistaken)
    publisher.room(a=GIB, b=GIB)
    publisher.says(a="1Gi", b="1Gi")
    assert faults == []
    assert "unexpected" in caplog.text
