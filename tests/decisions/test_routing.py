"""Which claims are ours, and where they go: the ids are those of dynamic-acceptance.md."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from localvolume.controller.plan.claims import (
    Keep,
    Nowhere,
    Refusal,
    Reschedule,
    Route,
    Unroute,
    refusal,
    refusals,
)
from localvolume.controller.plan.nodes import Nodes
from localvolume.kube.objects import CSIStorageCapacity
from localvolume.volumes import marks
from tests.decisions.support_controller import node
from tests.decisions.support_routing import (
    BETA,
    BETA_CLASS,
    OURS,
    a,
    action,
    capacity,
    claim,
    made,
    storage_class,
)
from tests.suite.names import LOCAL_PATH
from tests.suite.units import GIB

# --- whose it is ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("about", "served"),
    [
        pytest.param({}, (OURS,), id="L46 by our name; L57, L58 with a selected node; E01"),
        pytest.param({"provisioner_key": BETA}, (OURS,), id="L46 by the beta key"),
        pytest.param(
            {"class_name": "local-path", "provisioner": LOCAL_PATH},
            (OURS, LOCAL_PATH),
            id="L47 by an additional name",
        ),
        pytest.param(
            {"class_name": "others", "annotations": {BETA_CLASS: "late"}},
            (OURS,),
            id="the class by the beta annotation first",
        ),
        pytest.param(
            {"class_name": None, "annotations": {BETA_CLASS: "late"}},
            (OURS,),
            id="the class by the beta annotation only",
        ),
    ],
)
def test_ours(about: dict[str, Any], served: tuple[str, ...]) -> None:
    assert a(Route, action(claim(selected="n2", **about), served=served)).key == "n2"


@pytest.mark.parametrize(
    "about",
    [
        pytest.param({"volume_name": "pvc-1"}, id="L48 bound"),
        pytest.param({"provisioner": None, "class_name": "missing"}, id="L49 no class, no name"),
        pytest.param({"class_name": "missing"}, id="L07 no class"),
        pytest.param({"class_name": None}, id="no class named"),
        pytest.param({"provisioner": "example.com/other"}, id="L50 another's"),
        pytest.param(
            {"provisioner": "example.com/other", "provisioner_key": BETA}, id="L51 by the beta key"
        ),
        pytest.param({"provisioner": None}, id="L52 no annotation"),
        pytest.param({"provisioner": ""}, id="L52 empty"),
        pytest.param({"provisioner": f"{OURS}.example"}, id="L53 a longer name"),
        pytest.param(
            {"provisioner": "example.com/other", "annotations": {BETA: OURS}},
            id="the beta key counts only where the other is missing",
        ),
        pytest.param({"class_name": "others"}, id="the class is another provisioner's"),
        pytest.param(
            {"annotations": {BETA_CLASS: "others"}}, id="the class by the beta annotation first"
        ),
        pytest.param(
            {"class_name": "local-path", "provisioner": LOCAL_PATH}, id="L54 one not opted into"
        ),
        pytest.param({"deleted": True}, id="being deleted"),
    ],
)
@pytest.mark.parametrize("label", [None, "n1"])
def test_not_ours(about: dict[str, Any], label: str | None) -> None:
    """Not touched, not even where it has our label."""
    found = a(Keep, action(claim(selected="n2", label=label, **about)))
    assert not found.here


# --- a selected node -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["late", "now"])
@pytest.mark.parametrize("label", [None, "n1", "gone"])
def test_the_selected_node_decides(mode: str, label: str | None) -> None:
    """E01, E03, E04: whatever label it had; also where the class is Immediate."""
    found = a(Route, action(claim(mode, selected="n2", label=label)))
    assert (found.key, found.gone) == ("n2", "")


def test_what_is_right_stays() -> None:
    assert a(Keep, action(claim(selected="n2", label="n2"))).here == "n2"


def test_a_long_name_makes_a_key() -> None:
    name = "n" * 70
    key = marks.node_key(name)
    assert key != name
    assert a(Route, action(claim(selected=name), [node(name)])).key == key
    assert a(Keep, action(claim(selected=name, label=key), [node(name)])).here == key


@pytest.mark.parametrize("selected", [None, ""])
def test_none_selected(selected: str | None) -> None:
    """E02, L56."""
    assert not a(Keep, action(claim(selected=selected))).here
    a(Unroute, action(claim(selected=selected, label="n1")))


@pytest.mark.parametrize("mode", ["late", "now"])
@pytest.mark.parametrize("label", [None, "n9", "n1"])
def test_the_selected_node_is_gone(mode: str, label: str | None) -> None:
    """E09, and what the library did in v11: the scheduler chooses again."""
    found = a(Reschedule, action(claim(mode, selected="n9", label=label)))
    assert found.node == "n9"
    assert "n9 does not exist" in found.reason


def test_a_hostname_is_no_node() -> None:
    """Defect 2, the other way round: the annotation has the Node's name."""
    a(Reschedule, action(claim(selected="host"), [node("n1", hostname="host")]))


RACK = (
    storage_class("late", "WaitForFirstConsumer", allowed=[{"rack": ["a", "b"]}]),
    storage_class("now", "Immediate", allowed=[{"rack": ["a", "b"]}]),
)


def test_allowed_topologies_match() -> None:
    """E07."""
    there = [node("n1", rack="b"), node("n2", rack="c")]
    assert a(Route, action(claim(selected="n1"), there, classes=RACK)).key == "n1"


@pytest.mark.parametrize("labels", [{"rack": "c"}, {}])
@pytest.mark.parametrize("mode", ["late", "now"])
def test_allowed_topologies_do_not_match(labels: dict[str, str], mode: str) -> None:
    """E08: another node must be chosen."""
    found = action(claim(mode, selected="n1"), [node("n1", **labels)], classes=RACK)
    assert "allowedTopologies" in a(Reschedule, found).reason


def test_a_selected_node_is_not_asked_for_room() -> None:
    """The scheduler has seen to it, or the agent says no."""
    there = [capacity("n1", "1Mi", class_name="late")]
    found = action(claim(selected="n1", size="1Ti"), capacities=there)
    assert a(Route, found).key == "n1"


def test_a_node_that_was_selected_again_gets_it_again() -> None:
    about = claim(selected="n1", refused="n1 2027-01-15T07:59:00Z")
    assert a(Route, action(about)).key == "n1"


# --- Immediate -----------------------------------------------------------------------------------

ROOMS = (capacity("n1", "2Gi"), capacity("n2", "9Gi"), capacity("n3", "5Gi"))


def test_the_most_room() -> None:
    """E05, but that nobody is selected: our label alone says where."""
    found = a(Route, action(claim("now"), capacities=ROOMS))
    assert (found.key, found.gone) == ("n2", "")


def test_no_room_anywhere() -> None:
    """E06: nothing is touched; people are told why of each node."""
    found = a(Nowhere, action(claim("now", size="10Gi"), capacities=ROOMS))
    assert found.reason == (
        "no node takes 10Gi: n1: at most 2Gi fit; n2: at most 9Gi fit; n3: at most 5Gi fit"
    )


def test_nobody_publishes_room() -> None:
    found = a(Nowhere, action(claim("now")))
    assert found.reason == "no node publishes room for its class, of 1Gi that it asks for"


def test_the_binding_mode_is_immediate_unless_said() -> None:
    classes = (storage_class("now", None),)
    assert a(Route, action(claim("now"), capacities=ROOMS, classes=classes)).key == "n2"


def test_a_routed_claim_stays_where_it_is() -> None:
    """Its volume may be in the making, and the room less for that very reason."""
    full = (capacity("n1", "0"), capacity("n2", "9Gi"))
    for there in (ROOMS, full, ()):
        assert a(Keep, action(claim("now", label="n1"), capacities=there)).here == "n1"


def test_a_node_that_gave_it_back_is_not_asked_for_five_minutes() -> None:
    for label in (None, "n2"):
        found = action(
            claim("now", label=label, refused="n2 2027-01-15T07:55:01Z"), capacities=ROOMS
        )
        assert a(Route, found).key == "n3"
    found = action(claim("now", refused="n2 2027-01-15T07:55:00Z"), capacities=ROOMS)
    assert a(Route, found).key == "n2"


def test_a_clock_that_runs_ahead_refuses_for_a_while_only() -> None:
    soon = claim("now", refused="n2 2027-01-15T08:01:00Z")
    assert a(Route, action(soon, capacities=ROOMS)).key == "n3"
    far = claim("now", refused="n2 2027-01-15T09:00:00Z")
    assert a(Route, action(far, capacities=ROOMS)).key == "n2"


@pytest.mark.parametrize("text", ["", "n2", "n2 ", " 2027-01-15T07:59:00Z", "n2 soon", "n2 9"])
def test_a_refusal_that_cannot_be_read_is_none(text: str) -> None:
    assert a(Route, action(claim("now", refused=text), capacities=ROOMS)).key == "n2"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("n2 2027-01-15T07:59:00Z pool fast: no", "pool fast: no"),
        ("n2 2027-01-15T07:59:00Z", ""),
        # An older agent, of another node or at another time, left it as it was.
        ("n1 2027-01-15T07:59:00Z pool fast: no", ""),
        ("n2 2027-01-15T07:58:00Z pool fast: no", ""),
        ("", ""),
    ],
)
def test_why_it_was_given_back(said: str, why: str) -> None:
    notes = {marks.REFUSED_WHY_ANNOTATION: said}
    told = refusal(claim("now", refused="n2 2027-01-15T07:59:00Z", annotations=notes))
    assert told == ("n2", Refusal(1_800_000_000.0 - 60, why))


def test_whatever_is_written_on_a_claim_little_is_remembered_of_it() -> None:
    """Its owner may write there what they like, as often as they like."""
    now, known = 1_800_000_000.0, dict[str, Refusal]()
    nodes = Nodes([node("n1"), node("n2")])
    for number in range(100):
        for name in ("n1", f"none-{number}"):
            said = f"{name} 2027-01-15T07:5{number % 5 + 5}:30Z"
            notes = {marks.REFUSED_WHY_ANNOTATION: f"{said} {'x' * 200_000}"}
            known = refusals(known, claim("now", refused=said, annotations=notes), nodes, now)
    assert known == {"n1": Refusal(now - 30, "x" * 1000)}
    for when in ("2999-01-15T08:00:00Z", "2027-01-15T08:05:00Z", "2027-01-15T07:55:00Z"):
        assert refusals({}, claim("now", refused=f"n2 {when}"), nodes, now) == {}
    ahead = claim("now", refused="n2 2027-01-15T08:04:59Z")
    assert sorted(refusals(known, ahead, nodes, now)) == ["n1", "n2"]


def test_all_gave_it_back() -> None:
    since = 1_800_000_000.0 - 60
    refused = dict.fromkeys(("n1", "n2"), Refusal(since))
    refused["n3"] = Refusal(since, "pool fast: its disk is away")
    found = action(claim("now"), capacities=ROOMS, refused=refused)
    assert a(Nowhere, found).reason.endswith(
        "n1: it gave the claim back; n2: it gave the claim back; "
        "n3: it gave the claim back: pool fast: its disk is away"
    )
    found = action(claim("now", label="n2"), capacities=ROOMS, refused=refused)
    assert a(Unroute, found).gone == ""


UNABLE = "pool fast: sizes cannot be enforced"


@pytest.mark.parametrize(
    ("rooms", "said", "lack"),
    [
        ([capacity("n1", "0", problem=UNABLE)], f"n1: {UNABLE}", "node"),
        ([capacity("n1", "1Mi", problem=UNABLE)], f"n1: at most 1Mi fit; {UNABLE}", "room"),
        (
            [capacity("n1", "0", problem=UNABLE), capacity("n2", "1Mi")],
            f"n1: {UNABLE}; n2: at most 1Mi fit",
            "room",
        ),
    ],
)
@pytest.mark.parametrize(("name", "asked"), [("now", OURS), ("late", OURS), ("late", None)])
def test_pools_that_cannot_serve_the_class(
    rooms: list[CSIStorageCapacity], said: str, lack: str, name: str, asked: str | None
) -> None:
    """Also while it waits for its first pod, before which no provisioner is asked: the scheduler
    will say of no pool why."""
    there = [msgspec.structs.replace(one, storage_class_name=name) for one in rooms]
    found = a(Nowhere, action(claim(name, provisioner=asked), capacities=there))
    assert (found.reason, found.lack) == (f"no node takes 1Gi: {said}", lack)


def test_what_waits_is_left_to_the_scheduler_where_a_node_has_room_or_none_has_a_problem() -> None:
    full = capacity("n1", "1Mi", class_name="late")
    unable = capacity("n1", "0", class_name="late", problem=UNABLE)
    for there in ([], [full], [unable, capacity("n2", "9Gi", class_name="late")]):
        found = a(Keep, action(claim(), capacities=there))
        assert found.reason == "no node is selected for it yet"
        a(Keep, action(claim(provisioner=None), capacities=there))
    others = [capacity("n1", "0", class_name="others", problem=UNABLE)]
    a(Keep, action(claim("others", provisioner=None), capacities=others))
    # A label that it was left with goes first.
    a(Unroute, action(claim(label="n1"), capacities=[unable]))


def test_the_node_it_was_routed_to_is_gone() -> None:
    """That it really is, is asked for live."""
    found = a(Route, action(claim("now", label="n9"), capacities=ROOMS))
    assert (found.key, found.gone) == ("n2", "n9")
    assert a(Unroute, action(claim("now", label="n9"))).gone == "n9"


def test_what_is_on_its_way_is_not_there_any_more() -> None:
    taken = {(OURS, "n2"): 5 * GIB, (LOCAL_PATH, "n3"): 5 * GIB}
    assert a(Route, action(claim("now"), capacities=ROOMS, taken=taken)).key == "n3"
    taken = {(OURS, "n2"): 8 * GIB, (OURS, "n3"): 5 * GIB, (OURS, "n1"): 2 * GIB}
    assert a(Route, action(claim("now"), capacities=ROOMS, taken=taken)).key == "n2"
    found = action(claim("now", size="2Gi"), capacities=ROOMS, taken=taken)
    assert "n2: 1Gi are left besides what is being made" in a(Nowhere, found).reason


# --- bound claims --------------------------------------------------------------------------------


def bound(label: str | None = None, **more: Any) -> Any:
    """As the cache has it: only the volume's name and our label are left."""
    return claim(None, provisioner=None, volume_name="pvc-1", label=label, **more)


@pytest.mark.parametrize("label", [None, "n2"])
@pytest.mark.parametrize(
    "volume",
    [
        pytest.param(made(), id="ours"),
        pytest.param(made(provisioner=None), id="by its pool"),
        pytest.param(made(pool=False), id="by its provisioner"),
        pytest.param(made(pool=False, provisioner=LOCAL_PATH), id="adopted"),
        pytest.param(made(pool=False, provisioner=LOCAL_PATH, source="hostPath"), id="hostPath"),
    ],
)
def test_a_bound_claim_has_its_volumes_label(label: str | None, volume: Any) -> None:
    served = (OURS, LOCAL_PATH)
    assert a(Route, action(bound(label), volumes=[volume], served=served)).key == "n1"
    right = a(Keep, action(bound("n1"), volumes=[volume], served=served))
    assert not right.here, "it takes no more room"


@pytest.mark.parametrize(
    "volume",
    [
        pytest.param(made(label=None, provisioner="example.com/other", pool=False), id="another's"),
        pytest.param(
            made(provisioner="local-volume-provisioner-n1", pool=False), id="a static one"
        ),
        pytest.param(made(provisioner=None, pool=False), id="made by hand"),
        pytest.param(made(label=None), id="ours, but not labelled"),
        pytest.param(made(holder="another-uid"), id="another claim's"),
        pytest.param(made(source="nfs", pool=False, provisioner=None), id="no disk of a node"),
    ],
)
def test_a_claim_bound_elsewhere_loses_the_label(volume: Any) -> None:
    a(Unroute, action(bound("n1"), volumes=[volume]))
    a(Keep, action(bound(), volumes=[volume]))


@pytest.mark.parametrize(
    "volumes",
    [
        pytest.param([], id="not seen yet"),
        pytest.param([made(holder=None)], id="not bound yet"),
        pytest.param([made(holder="")], id="reserved"),
        pytest.param([made(pool=False, provisioner=LOCAL_PATH)], id="of one not opted into"),
        pytest.param([made(source="nfs")], id="on no disk of a node, whatever it says"),
    ],
)
@pytest.mark.parametrize("label", [None, "n2"])
def test_what_is_not_sure_changes_nothing(volumes: Any, label: str | None) -> None:
    a(Keep, action(bound(label), volumes=volumes))


def test_a_claim_that_goes_is_left_alone() -> None:
    a(Keep, action(bound("n2", deleted=True), volumes=[made()]))
