"""CSIStorageCapacity objects: what a node's room asks for, and whose objects are let alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from localvolume.dynamic.plan.capacity import (
    Action,
    CapacityFacts,
    ClassCapacity,
    Create,
    Delete,
    Desired,
    Patch,
    desired_objects,
    manifest,
    notes,
    object_name,
    ours,
    plan_objects,
    shrinks,
)
from localvolume.dynamic.plan.fullness import PoolSize, pools_in
from localvolume.kube.objects import (
    CSIStorageCapacity,
    LabelSelector,
    NodeSelectorRequirement,
    OwnerReference,
)
from localvolume.volumes.capacity import GIB, KIB, MIB, bytes_of
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.marks import (
    DRIVER_LABEL,
    DYNAMIC_PROVISIONER,
    MANAGER_LABEL,
    NODE_LABEL,
    POOLS_ANNOTATION,
    PROBLEM_ANNOTATION,
    driver_label,
)

NODE = NodeFacts("node-a", "uid-a", "host-a")
OTHER = NodeFacts("node-b", "uid-b", "host-b")
NAMESPACE = "storage"

World = dict[str, CSIStorageCapacity]


def room(name: str = "fast", *rooms: int, provisioner: str = DYNAMIC_PROVISIONER) -> ClassCapacity:
    return ClassCapacity(name, provisioner, rooms or (10 * GIB,))


def facts(*classes: ClassCapacity, node: NodeFacts = NODE) -> CapacityFacts:
    return CapacityFacts(node, classes)


def made(action: Create, node: NodeFacts) -> CSIStorageCapacity:
    """As the API server would keep it."""
    body = manifest(action, node, NAMESPACE)
    body["metadata"]["uid"] = f"uid-of-{action.name}"
    return msgspec.convert(body, CSIStorageCapacity)


def made_anew(about: ClassCapacity) -> CSIStorageCapacity:
    (action,) = plan_objects(facts(about), [])
    assert isinstance(action, Create)
    return made(action, NODE)


def thing(
    about: ClassCapacity | None = None,
    *,
    node: NodeFacts = NODE,
    name: str = "",
    labels: Mapping[str, str | None] | None = None,
    meta: Mapping[str, Any] | None = None,
    **fields: Any,
) -> CSIStorageCapacity:
    """The object that there should be, with some differences; None removes a label."""
    (action,) = plan_objects(facts(about or room(), node=node), [])
    assert isinstance(action, Create)
    there = made(action, node)
    kept = {**there.metadata.labels, **(labels or {})}
    metadata = msgspec.structs.replace(
        there.metadata,
        name=name or there.metadata.name,
        labels={key: value for key, value in kept.items() if value is not None},
        **(meta or {}),
    )
    return msgspec.structs.replace(there, metadata=metadata, **fields)


def carried_out(actions: Sequence[Action], world: World, node: NodeFacts = NODE) -> World:
    """The objects after the actions, as an API server would have them."""
    world = dict(world)
    for action in actions:
        if isinstance(action, Create):
            assert action.name not in world
            world[action.name] = made(action, node)
        elif isinstance(action, Patch):
            name = action.object.metadata.name
            assert world[name] is action.object
            sizes = {"capacity": action.desired.sizes["capacity"]}
            sizes["maximum_volume_size"] = action.desired.sizes["maximumVolumeSize"]
            world[name] = msgspec.structs.replace(action.object, **sizes)
        elif isinstance(action, Delete):
            assert world.pop(action.object.metadata.name) is action.object
    return world


def kinds(actions: Sequence[Action]) -> list[str]:
    return [f"{type(action).__name__} {action.key}" for action in actions]


# --- external-provisioner's cases -----------------------------------------------------------------

A, B, C = room("a", 2 * GIB), room("b", GIB), room("c", 3 * GIB)
TWICE = thing(A, name="csisc-twin")
FOREIGN = {MANAGER_LABEL: "someone-else"}
THREE_LEVELS = NodeFacts("node-a", "uid-a", "host-a", {"zone": "z", "region": "r"})


@pytest.mark.parametrize(
    ("given_facts", "existing", "expected"),
    [
        # E14, E16: without a node, whoever knows the facts has none to give.
        pytest.param(facts(), [], [], id="E15-E16-no-class"),
        pytest.param(facts(ClassCapacity("a", "p", ())), [], [], id="E14-no-pool-here"),
        pytest.param(facts(A), [], ["Create a"], id="E17-one-class"),
        pytest.param(facts(A), [thing(A)], [], id="E22-unchanged"),
        pytest.param(facts(A), [thing(room("a", GIB))], ["Patch a"], id="E23-E37-new-capacity"),
        pytest.param(
            facts(A),
            [thing(A, meta={"owner_references": ()})],
            ["Delete a", "Create a"],
            id="E18-E24-owner-missing",
        ),
        pytest.param(
            facts(A),
            [
                thing(
                    A,
                    meta={
                        "owner_references": (
                            OwnerReference(uid="more", kind="Pod", name="p", api_version="v1"),
                            OwnerReference(
                                uid="uid-a", kind="Node", name="node-a", api_version="v1"
                            ),
                        )
                    },
                )
            ],
            [],
            id="E25-owner-kept",
        ),
        pytest.param(facts(), [thing(A)], ["Delete a"], id="E26-class-missing"),
        pytest.param(
            facts(ClassCapacity("a", "p", ())), [thing(A)], ["Delete a"], id="E26-no-pool"
        ),
        pytest.param(
            facts(A),
            [thing(A, node=NodeFacts("node-a", "uid-a", "another-host"))],
            ["Delete a", "Create a"],
            id="E27-segment-missing",
        ),
        pytest.param(facts(), [thing(A, labels=FOREIGN)], [], id="E28-other-manager"),
        pytest.param(facts(), [thing(A, labels={MANAGER_LABEL: None})], [], id="E28-no-manager"),
        pytest.param(facts(), [thing(A, labels={NODE_LABEL: None})], [], id="E29-unlabelled"),
        pytest.param(facts(A, B), [], ["Create a", "Create b"], id="E30-creates"),
        pytest.param(
            facts(A, B),
            [thing(room("b", 9 * GIB)), thing(room("a", 9 * GIB))],
            ["Patch a", "Patch b"],
            id="E31-updates",
        ),
        pytest.param(
            facts(A, C), [thing(A), thing(B)], ["Delete b", "Create c"], id="E32-adds-removes"
        ),
        pytest.param(facts(A, B), [thing(B)], ["Create a"], id="E33-deleted"),
        pytest.param(facts(A), [thing(A), TWICE], ["Delete a"], id="E34-duplicate"),
        pytest.param(facts(A), [TWICE], [], id="E34-not-a-duplicate"),
        pytest.param(facts(A), [thing(A, labels=FOREIGN)], ["Create a"], id="E35-another-owner"),
        pytest.param(facts(A), [thing(A, capacity="7Ti")], ["Patch a"], id="E36-wrong-capacity"),
        pytest.param(
            facts(A), [thing(A, maximum_volume_size=None)], ["Patch a"], id="E36-no-maximum"
        ),
        pytest.param(
            facts(A), [thing(A, maximum_volume_size="7Ti")], ["Patch a"], id="E36-wrong-maximum"
        ),
        pytest.param(facts(A, node=OTHER), [thing(A)], ["Create a"], id="E38-E39-segment-added"),
        pytest.param(facts(node=OTHER), [thing(A)], [], id="E40-another-node-s"),
        pytest.param(
            facts(A), [thing(A, node=OTHER), thing(B)], ["Create a", "Delete b"], id="E41-both"
        ),
        pytest.param(
            facts(A, room("b", 8 * GIB)), [thing(A), thing(B)], ["Patch b"], id="E42-one-class"
        ),
        pytest.param(
            facts(A, B, node=NodeFacts("node-a", "uid-a", "renamed")),
            [thing(A), thing(B)],
            ["Delete a", "Create a", "Delete b", "Create b"],
            id="E43-topology-changes-all-classes",
        ),
        pytest.param(facts(A, node=THREE_LEVELS), [thing(A)], [], id="E44-three-levels"),
        pytest.param(
            facts(A),
            [thing(A), thing(B, node=NodeFacts("node", "uid", "host"))],
            [],
            id="E45-E47-unknown-or-truncated-segment",
        ),
        pytest.param(facts(A), [thing(A), thing(B, labels=FOREIGN)], [], id="E46-another-s-class"),
    ],
)
def test_what_external_provisioner_does(
    given_facts: CapacityFacts, existing: list[CSIStorageCapacity], expected: list[str]
) -> None:
    actions = plan_objects(given_facts, existing)
    assert kinds(actions) == expected
    assert all(action.reason for action in actions)
    # And once that is done, there is nothing left to do.
    node = given_facts.node
    world = {f"{number}": there for number, there in enumerate(existing)}
    world = {there.metadata.name: there for there in world.values()}
    assert plan_objects(given_facts, carried_out(actions, world, node).values()) == []


@pytest.mark.parametrize("mode", ["E20", "E21", "E39"])
def test_the_binding_mode_makes_no_difference(mode: str) -> None:
    """Immediate claims are routed by the same objects: the facts do not even tell the mode."""
    assert "binding" not in str(ClassCapacity.__dataclass_fields__)
    assert kinds(plan_objects(facts(A), [])) == ["Create a"]


def test_two_nodes_keep_to_their_own() -> None:
    """E30 to E32: 2x2 are made, changed, and two replaced by two; no action crosses over."""
    world: World = {}
    for classes in ([A, B], [room("a", 7 * GIB), room("b", 8 * GIB)], [A, C]):
        for node in (NODE, OTHER):
            before = {n: there for n, there in world.items() if not ours(there, node.name)}
            actions = plan_objects(facts(*classes, node=node), world.values())
            assert len(actions) >= 2
            world = carried_out(actions, world, node)
            assert before.items() <= world.items()
        assert len(world) == 4
    assert sorted(there.storage_class_name for there in world.values()) == ["a", "a", "c", "c"]


# --- what an object says --------------------------------------------------------------------------


def test_a_whole_object() -> None:
    """E17, E19: and it goes when its Node goes."""
    (action,) = plan_objects(facts(room("fast", 2 * GIB, 3 * GIB + KIB)), [])
    assert isinstance(action, Create)
    assert manifest(action, NODE, NAMESPACE) == {
        "metadata": {
            "name": object_name("node-a", "fast"),
            "namespace": NAMESPACE,
            "annotations": {},
            "labels": {
                "localvolume.dev/node": "node-a",
                "csi.storage.k8s.io/drivername": "dynamic.localvolume.dev",
                "csi.storage.k8s.io/managed-by": "localvolume",
            },
            "ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-a"}
            ],
        },
        "storageClassName": "fast",
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": "host-a"}},
        "capacity": "5Gi",
        "maximumVolumeSize": "3Gi",
    }


def test_names_are_the_same_at_every_start_and_of_one_class_and_node() -> None:
    assert object_name("node-a", "fast") == "csisc-b8302a9f0f10dd8f"
    names = {
        object_name(node, cls, number)
        for node in ("a", "a.b", "x" * 253)
        for cls in ("a", "a.b", "b")
        for number in (0, 1)
    }
    assert len(names) == 18
    assert all(len(name) <= 63 for name in names)


@pytest.mark.parametrize(
    ("provisioner", "label"),
    [
        ("dynamic.localvolume.dev", "dynamic.localvolume.dev"),
        ("rancher.io/local-path", "rancher.io_local-path"),
    ],
)
def test_a_provisioner_as_a_label(provisioner: str, label: str) -> None:
    assert driver_label(provisioner) == label


def test_a_provisioner_too_long_for_a_label_is_shortened() -> None:
    one, other = (driver_label(f"{'x' * 100}.dev/{end}") for end in "ab")
    assert one != other
    assert len(one) <= 63


@pytest.mark.parametrize(
    ("rooms", "capacity", "maximum"),
    [
        ((5 * GIB,), 5 * GIB, 5 * GIB),
        ((MIB - 1,), 0, 0),
        ((2 * MIB - 1, MIB - 1), 2 * MIB, MIB),
        ((0,), 0, 0),
        ((0, 3 * MIB), 3 * MIB, 3 * MIB),
        ((-5 * GIB, 3 * MIB), 3 * MIB, 3 * MIB),
        ((-5 * GIB,), 0, 0),
        ((1 << 70,), (1 << 63) - MIB, (1 << 63) - MIB),
    ],
)
def test_sizes(rooms: tuple[int, ...], capacity: int, maximum: int) -> None:
    """Whole MiB below what there is; a pool with a problem has none, and takes nothing away."""
    desired = desired_objects([ClassCapacity("a", "p", rooms)])["a"]
    assert (desired.capacity, desired.maximum) == (capacity, maximum)
    assert [bytes_of(text) for text in desired.sizes.values()] == [capacity, maximum]


def test_a_pool_with_a_problem_keeps_the_object_at_zero() -> None:
    """So that the scheduler keeps away; without the object it would too, but nobody saw why."""
    (action,) = plan_objects(facts(room("a", 0)), [thing(A)])
    assert isinstance(action, Patch)
    assert action.desired.sizes == {"capacity": "0", "maximumVolumeSize": "0"}
    assert action.reason == (
        "the scheduler is told the room that is left: capacity 0 (before: 2Gi), "
        "maximumVolumeSize 0 (before: 2Gi)"
    )


def test_an_object_says_why_pools_cannot_serve_the_class() -> None:
    """In one line, and no more than an Event holds."""
    unable = ClassCapacity("a", DYNAMIC_PROVISIONER, (0,), "pool fast: no\nquotas " + "x" * 2000)
    (action,) = plan_objects(facts(unable), [])
    assert isinstance(action, Create)
    (said,) = manifest(action, NODE, NAMESPACE)["metadata"]["annotations"].items()
    assert said[0] == PROBLEM_ANNOTATION
    assert said[1].startswith("pool fast: no quotas xxx")
    assert len(said[1]) == 1000
    there = made(action, NODE)
    assert plan_objects(facts(unable), [there]) == []
    (patch,) = plan_objects(facts(room("a", 0)), [there])
    assert isinstance(patch, Patch)
    assert patch.reason == "no problem is left"
    (patch,) = plan_objects(facts(unable), [made_anew(room("a", 0))])
    assert patch.reason == "its pools have a problem"


def pools(*rooms: int, **sizes: PoolSize) -> ClassCapacity:
    """The class "a", with pools of these sizes."""
    return ClassCapacity("a", DYNAMIC_PROVISIONER, rooms or (GIB,), pools=tuple(sizes.items()))


def noted(action: Action) -> str | None:
    assert isinstance(action, Create)
    said: str | None = manifest(action, NODE, NAMESPACE)["metadata"]["annotations"].get(
        POOLS_ANNOTATION
    )
    return said


def test_an_object_says_how_large_the_pools_are() -> None:
    sized = pools(fast=PoolSize(9 * GIB + 1))
    (action,) = plan_objects(facts(sized), [])
    assert noted(action) == f'{{"fast":{{"totalBytes":{9 * GIB}}}}}'
    assert plan_objects(facts(sized), [made_anew(sized)]) == []
    for other in (pools(fast=PoolSize(10 * GIB)), room("a", GIB)):
        (patch,) = plan_objects(facts(other), [made_anew(sized)])
        assert isinstance(patch, Patch)
        assert not patch.only_used
        assert patch.reason == "its pools have other sizes"


def test_an_object_says_how_full_the_pools_are() -> None:
    """In whole percent; if nothing else changed, the write may wait."""
    half = pools(fast=PoolSize(100 * GIB, 50 * GIB), slow=PoolSize(GIB))
    (action,) = plan_objects(facts(half), [])
    assert noted(action) == (
        f'{{"fast":{{"totalBytes":{100 * GIB},"usedBytes":{50 * GIB}}},'
        f'"slow":{{"totalBytes":{GIB}}}}}'
    )
    there = made_anew(half)
    assert plan_objects(facts(half), [there]) == []
    fuller = pools(fast=PoolSize(100 * GIB, 50 * GIB + 1), slow=PoolSize(GIB))
    (patch,) = plan_objects(facts(fuller), [there])
    assert isinstance(patch, Patch)
    assert patch.only_used
    assert pools_in(notes(patch.desired, there)[POOLS_ANNOTATION])["fast"].used_bytes == 51 * GIB
    # A write that promises less never waits.
    less = ClassCapacity("a", DYNAMIC_PROVISIONER, (MIB,), pools=fuller.pools)
    (patch,) = plan_objects(facts(less), [there])
    assert isinstance(patch, Patch)
    assert not patch.only_used


def test_what_an_agent_of_an_earlier_build_wrote_is_written_anew() -> None:
    known = pools(fast=PoolSize(GIB))
    (action,) = plan_objects(facts(known), [])
    assert isinstance(action, Create)
    old = thing(room("a", GIB), meta={"annotations": {POOLS_ANNOTATION: f'{{"fast":{GIB}}}'}})
    (patch,) = plan_objects(facts(known), [old])
    assert isinstance(patch, Patch)
    assert patch.only_used


def test_a_change_below_a_mebibyte_is_no_change() -> None:
    assert plan_objects(facts(room("a", 2 * GIB + MIB - 1)), [thing(A)]) == []
    assert kinds(plan_objects(facts(room("a", 2 * GIB - 1)), [thing(A)])) == ["Patch a"]


SIZES = st.integers(0, 2**70) | st.integers(0, 3 * MIB)


@given(st.builds(PoolSize, SIZES, st.none() | SIZES))
@example(PoolSize(MIB - 1, 1))
def test_what_was_just_written_is_not_written_again(size: PoolSize) -> None:
    """However large or small the pool is."""
    of_any = pools(fast=size)
    assert plan_objects(facts(of_any), [made_anew(of_any)]) == []


def test_the_same_size_in_other_words_is_no_change() -> None:
    same = thing(A, capacity="2048Mi", maximum_volume_size=str(2 * GIB))
    assert plan_objects(facts(A), [same]) == []


# --- which object is kept -------------------------------------------------------------------------


def test_a_node_created_anew_replaces_the_object() -> None:
    """The old one would go with the Node of before."""
    anew = NodeFacts(NODE.name, "uid-2", NODE.hostname)
    old = thing(A)
    actions = plan_objects(facts(A, node=anew), [old])
    assert kinds(actions) == ["Delete a", "Create a"]
    assert isinstance(actions[0], Delete)
    assert actions[0].object is old
    assert isinstance(actions[1], Create)
    assert actions[1].name == old.metadata.name


def test_a_class_with_another_provisioner_replaces_the_object() -> None:
    actions = plan_objects(
        facts(room("a", 2 * GIB, provisioner="rancher.io/local-path")), [thing(A)]
    )
    assert kinds(actions) == ["Delete a", "Create a"]


@pytest.mark.parametrize(
    "topology",
    [
        None,
        LabelSelector(),
        LabelSelector(match_labels={"kubernetes.io/hostname": "host-a", "zone": "z"}),
        LabelSelector(
            match_labels={"kubernetes.io/hostname": "host-a"},
            match_expressions=(NodeSelectorRequirement(key="zone", operator="Exists"),),
        ),
    ],
)
def test_any_other_topology_is_wrong(topology: LabelSelector | None) -> None:
    """E44, E47: one that is too wide or too narrow lies about other nodes or about this one."""
    actions = plan_objects(facts(A), [thing(A, node_topology=topology)])
    assert kinds(actions) == ["Delete a", "Create a"]


def test_of_two_the_one_that_is_right_is_kept() -> None:
    wrong, right = thing(A, node_topology=None), TWICE
    (action,) = plan_objects(facts(A), [wrong, right])
    assert isinstance(action, Delete)
    assert action.object is wrong


def test_of_two_right_ones_the_one_with_our_name_is_kept() -> None:
    """Of any others the first by name: the same answer at every look."""
    later = thing(A, name="csisc-00000")
    for existing in ([thing(A), later], [later, thing(A)]):
        (action,) = plan_objects(facts(A), existing)
        assert isinstance(action, Delete)
        assert action.object is later
    (action,) = plan_objects(facts(A), [TWICE, later])
    assert isinstance(action, Delete)
    assert action.object is TWICE


def test_a_duplicate_goes_before_the_kept_one_is_corrected() -> None:
    actions = plan_objects(facts(room("a", GIB)), [TWICE, thing(A)])
    assert kinds(actions) == ["Delete a", "Patch a"]


def test_a_name_that_another_object_has_is_passed_over() -> None:
    """E35: it is not taken from it. Whether it is seen here or not."""
    names = [object_name(NODE.name, "a", number) for number in range(3)]
    (action,) = plan_objects(facts(A), [thing(A, labels=FOREIGN)], taken=[names[1]])
    assert isinstance(action, Create)
    assert action.name == names[2]
    # And what was made under such a name is kept.
    kept = thing(A, name=names[2])
    assert plan_objects(facts(A), [thing(A, labels=FOREIGN), kept]) == []


def test_a_name_that_our_object_of_another_class_has_is_passed_over() -> None:
    """Nobody but a person makes such a thing; there is one in every cluster."""
    (action,) = plan_objects(facts(A, B), [thing(B, name=object_name(NODE.name, "a"))])
    assert isinstance(action, Create)
    assert action.name == object_name(NODE.name, "a", 1)


def test_an_object_that_is_going_is_neither_kept_nor_in_the_way() -> None:
    going = thing(A, meta={"deletion_timestamp": "2026-01-02T03:04:05Z"})
    (action,) = plan_objects(facts(A), [going])
    assert isinstance(action, Create)
    assert action.name == object_name(NODE.name, "a", 1)
    assert plan_objects(facts(), [going]) == []


# --- what must be known at once -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((5, 5), (5, 5), False),
        ((5, 5), (6, 6), False),
        ((5, 5), (4, 5), True),
        ((5, 5), (6, 4), True),
        ((5, 5), None, True),
        (None, (5, 5), False),
        (None, None, False),
    ],
)
def test_what_shrinks(
    before: tuple[int, int] | None, after: tuple[int, int] | None, expected: bool
) -> None:
    def desired(sizes: tuple[int, int] | None) -> Desired | None:
        return Desired("a", "p", *sizes) if sizes else None

    assert shrinks(desired(before), desired(after)) is expected


# --- anything -------------------------------------------------------------------------------------

NODES = st.sampled_from([NODE, OTHER, NodeFacts("node-a", "uid-2", "host-a")])
SIZES = st.integers(-MIB, 20 * MIB)
CLASSES = st.lists(
    st.builds(
        ClassCapacity,
        st.sampled_from("abc"),
        st.sampled_from(["p", "q/r"]),
        st.lists(SIZES, max_size=3).map(tuple),
    ),
    max_size=4,
)
LABELS = st.dictionaries(
    st.sampled_from([NODE_LABEL, MANAGER_LABEL, DRIVER_LABEL]),
    st.sampled_from([None, "x", "node-a", "node-b", "localvolume"]),
    max_size=2,
)
THINGS = st.builds(
    lambda about, node, name, labels, size, going: thing(
        about,
        node=node,
        name=name,
        labels=labels,
        maximum_volume_size=size,
        meta={"deletion_timestamp": going},
    ),
    st.builds(
        ClassCapacity, st.sampled_from("abc"), st.just("p"), st.lists(SIZES, min_size=1).map(tuple)
    ),
    NODES,
    st.sampled_from(["", "", "csisc-x", object_name("node-a", "a"), object_name("node-a", "a", 1)]),
    LABELS,
    st.sampled_from([None, "0", "1Mi", "9Mi", "nonsense"]),
    st.sampled_from([None, None, None, "2026-01-02T03:04:05Z"]),
)


@given(CLASSES, st.lists(THINGS, max_size=6), NODES)
def test_whatever_there_is_one_round_makes_it_right(
    classes: list[ClassCapacity], things: list[CSIStorageCapacity], node: NodeFacts
) -> None:
    """One right object for each class, no other of ours, and nothing of others is touched."""
    world = {there.metadata.name: there for there in things}

    def is_kept(there: CSIStorageCapacity) -> bool:
        return ours(there, node.name) and not there.metadata.deletion_timestamp

    others = {name: there for name, there in world.items() if not is_kept(there)}
    given_facts = facts(*classes, node=node)
    after = carried_out(plan_objects(given_facts, world.values()), world, node)
    assert others.items() <= after.items()
    own = {there.storage_class_name: there for there in after.values() if is_kept(there)}
    assert len(own) == len(after) - len(others)
    wanted = desired_objects(classes)
    assert own.keys() == wanted.keys()
    for name, there in own.items():
        assert bytes_of(there.capacity or "") == wanted[name].capacity
        assert bytes_of(there.maximum_volume_size or "") == wanted[name].maximum
        assert there.node_topology == LabelSelector(
            match_labels={"kubernetes.io/hostname": node.hostname}
        )
        assert node.uid in {owner.uid for owner in there.metadata.owner_references}
    assert plan_objects(given_facts, after.values()) == []
