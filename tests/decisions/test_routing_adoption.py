"""Dynamic PersistentVolumes of others: whose they become, and when their node is lost."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from localvolume.controller.model import (
    Adopt,
    DeleteClaim,
    Keep,
    MarkLost,
    MarkReturned,
    Policy,
    Report,
)
from localvolume.controller.plan.nodes import Nodes
from localvolume.kube.objects import HostPathSource, PersistentVolume
from localvolume.volumes import marks
from tests.decisions.support_controller import (
    LONG_AGO,
    a,
    action,
    node,
    on_hosts,
    requirement,
    term,
    volume,
)
from tests.decisions.support_routing import OURS
from tests.suite.names import KUTTI, LOCAL_PATH, OPENEBS

SERVED = Policy(provisioners=frozenset({OURS, KUTTI, LOCAL_PATH, OPENEBS}))
LISTED = Policy(frozenset({"fast"}), provisioners=SERVED.provisioners)
NOT_SERVED = Policy()


def on(key: str, *values: str) -> Any:
    return term(requirement(key, "In", *values))


def foreign(
    provisioner: str | None,
    *terms: Any,
    made_on: str = "",
    host_path: bool = False,
    label: str | None = None,
    **of: Any,
) -> PersistentVolume:
    """A bound one as its provisioner leaves it; `made_on` is in the annotation of kutti's or
    local-path's."""
    key = marks.KUTTI_NODE_ANNOTATION if provisioner == KUTTI else marks.LOCAL_PATH_NODE_ANNOTATION
    notes = {key: made_on} if made_on else {}
    of = {"phase": "Bound", "claim": "c", "finalizers": ()} | of
    found = volume(*terms, provisioner=provisioner, label=label, annotations=notes, **of)
    if not host_path:
        return found
    spec = msgspec.structs.replace(
        found.spec, local=None, host_path=HostPathSource(path="/opt/local-path-provisioner/x")
    )
    return msgspec.structs.replace(found, spec=spec)


N1_BY_HOST = node("n1", hostname="h1")

EACH_KIND = [
    pytest.param(
        foreign(KUTTI, on_hosts("n1"), made_on="n1"), N1_BY_HOST, id="kutti: a name as hostname"
    ),
    pytest.param(foreign(KUTTI, on_hosts("n1")), N1_BY_HOST, id="kutti without its annotation"),
    pytest.param(
        foreign(LOCAL_PATH, on_hosts("h1"), made_on="n1"), N1_BY_HOST, id="local-path: local"
    ),
    pytest.param(
        foreign(LOCAL_PATH, on_hosts("h1"), made_on="n1", host_path=True),
        N1_BY_HOST,
        id="local-path: hostPath",
    ),
    pytest.param(
        foreign(LOCAL_PATH, on_hosts("h1")), N1_BY_HOST, id="local-path before its annotation"
    ),
    pytest.param(
        foreign(LOCAL_PATH, on("rack", "r1"), made_on="n1", host_path=True),
        node("n1", rack="r1"),
        id="local-path: nodeAffinityKey",
    ),
    pytest.param(
        foreign(LOCAL_PATH, on("rack", "n1"), made_on="n1"),
        node("n1"),
        id="local-path: nodeAffinityKey that the node does not have",
    ),
    pytest.param(
        foreign(LOCAL_PATH, on("rack", "n1")), node("n1"), id="the same before its annotation"
    ),
    pytest.param(foreign(OPENEBS, on_hosts("h1")), N1_BY_HOST, id="openebs"),
    pytest.param(
        foreign(OPENEBS, on("openebs.io/nodeid", "7")),
        node("n1", **{"openebs.io/nodeid": "7"}),
        id="openebs: NodeAffinityLabels",
    ),
    pytest.param(
        foreign(
            OPENEBS,
            term(requirement("disk", "In", "d"), requirement(marks.HOSTNAME_LABEL, "In", "h1")),
        ),
        node("n1", hostname="h1", disk="d"),
        id="openebs: several labels",
    ),
    pytest.param(foreign(OURS, on_hosts("h1")), N1_BY_HOST, id="ours, whose label was lost"),
]


@pytest.mark.parametrize(("about", "there"), EACH_KIND)
def test_each_kind_is_adopted_by_its_node(about: PersistentVolume, there: Any) -> None:
    """L66, L70 as it applies to `local` and `hostPath`."""
    others = [node("n0"), node("n2", rack="r2"), node("h9", hostname="h9")]
    assert a(Adopt, action(about, [*others, there], SERVED)).node_name == "n1"


@pytest.mark.parametrize(("about", "there"), EACH_KIND[:-1])
def test_none_is_touched_without_the_flag(about: PersistentVolume, there: Any) -> None:
    """L68: neither while its node is there nor when that is lost."""
    a(Keep, action(about, [there], NOT_SERVED))
    a(Keep, action(about, [], NOT_SERVED))


@pytest.mark.parametrize(
    "provisioner",
    [
        pytest.param("example.com/other", id="L68, L71 another's"),
        pytest.param(None, id="L74 nobody's"),
        pytest.param("", id="L74 nobody's, empty"),
        pytest.param("rancher.io/local-path-2", id="L68 a longer name"),
    ],
)
@pytest.mark.parametrize("host_path", [False, True])
def test_what_nobody_made_whom_we_serve(provisioner: str | None, host_path: bool) -> None:
    a(Keep, action(foreign(provisioner, on_hosts("n1"), host_path=host_path), [node("n1")], SERVED))


def test_what_is_not_on_a_disk() -> None:
    """L72, L73, L75: of a driver, whatever it says."""
    about = foreign(OPENEBS, on_hosts("n1"))
    spec = msgspec.structs.replace(about.spec, local=None)
    a(Keep, action(msgspec.structs.replace(about, spec=spec), [node("n1")], SERVED))


def test_a_label_is_somebodys_decision() -> None:
    a(Keep, action(foreign(KUTTI, on_hosts("n1"), label="n2"), [node("n1"), node("n2")], SERVED))


# --- which node ----------------------------------------------------------------------------------


def test_a_hostname_counts_before_a_name() -> None:
    """The node `x` has another hostname; `y` has that one."""
    there = [node("x", hostname="other"), node("y", hostname="x")]
    assert a(Adopt, action(foreign(OPENEBS, on_hosts("x")), there, SERVED)).node_name == "y"


def test_but_kutti_wrote_the_name_and_says_so() -> None:
    there = [node("x", hostname="other"), node("y", hostname="x")]
    about = foreign(KUTTI, on_hosts("x"), made_on="x")
    assert a(Adopt, action(about, there, SERVED)).node_name == "x"


def test_several_nodes_have_the_label() -> None:
    there = [node("n1", rack="r"), node("n2", rack="r")]
    assert "any of" in a(Keep, action(foreign(OPENEBS, on("rack", "r")), there, SERVED)).reason
    about = foreign(LOCAL_PATH, on("rack", "r"), made_on="n2")
    assert a(Adopt, action(about, there, SERVED)).node_name == "n2"


def test_the_one_that_is_left_does_not_have_the_data() -> None:
    """It was made on n1, which is away; n2 has the same label."""
    about = foreign(LOCAL_PATH, on("rack", "r"), made_on="n1")
    assert "made on n1" in a(Keep, action(about, [node("n2", rack="r")], SERVED)).reason
    # Nor where n1 has no such label any more.
    there = [node("n1"), node("n2", rack="r")]
    assert "made on n1" in a(Keep, action(about, there, SERVED)).reason


def test_a_shared_filesystem_is_no_nodes() -> None:
    about = foreign(LOCAL_PATH, made_on="n1")
    spec = msgspec.structs.replace(about.spec, node_affinity=None)
    found = action(msgspec.structs.replace(about, spec=spec), [node("n1")], SERVED)
    assert "names no node" in a(Keep, found).reason


def test_two_values() -> None:
    there = [node("n1"), node("n2")]
    assert "any of" in a(Keep, action(foreign(KUTTI, on_hosts("n1", "n2")), there, SERVED)).reason


# --- lost nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("host_path", [False, True])
@pytest.mark.parametrize("label", [None, "gone"])
def test_a_lost_node_is_reported_as_of_static_ones(host_path: bool, label: str | None) -> None:
    about = foreign(LOCAL_PATH, on_hosts("gone"), host_path=host_path, label=label)
    assert "gone" in a(MarkLost, action(about, [node("n1")], SERVED)).reason
    about = foreign(LOCAL_PATH, on_hosts("gone"), host_path=host_path, label=label, lost=LONG_AGO)
    assert "claim" in a(Report, action(about, [node("n1")], SERVED)).would
    a(DeleteClaim, action(about, [node("n1")], LISTED))
    a(MarkReturned, action(about, [node("gone")], LISTED))


def test_a_host_path_with_our_label_is_ours() -> None:
    about = foreign(None, on_hosts("gone"), host_path=True, label="gone")
    a(MarkLost, action(about, [node("n1")], NOT_SERVED))


def test_a_host_path_in_a_listed_class_is_not() -> None:
    """Upstream deletes what is `local` there; hostPaths it never knew."""
    about = foreign(None, on_hosts("gone"), host_path=True, lost=LONG_AGO)
    a(Keep, action(about, [], Policy(frozenset({"fast"}))))


@pytest.mark.parametrize("policy", [SERVED, LISTED])
def test_a_label_of_another_key_is_lost_when_nobody_has_it(policy: Policy) -> None:
    """And only reported: a node may come that has it."""
    about = foreign(OPENEBS, on("rack", "r1"), label="gone")
    marked = a(MarkLost, action(about, [node("n2", rack="r2")], policy))
    assert "rack In r1" in marked.reason
    about = foreign(OPENEBS, on("rack", "r1"), label="gone", lost=LONG_AGO)
    found = a(Report, action(about, [node("n2", rack="r2")], policy))
    assert not found.would
    a(MarkReturned, action(about, [node("n2", rack="r1")], policy))


def test_its_own_node_is_there_without_the_label() -> None:
    about = foreign(OPENEBS, on("rack", "r1"), label="n1")
    a(Keep, action(about, [node("n1")], SERVED))


def test_a_static_volume_that_names_no_host_is_never_lost() -> None:
    about = volume(on("rack", "r1"), label="n1")
    a(Keep, action(about, [node("n2")], SERVED))


def test_what_any_term_means_counts() -> None:
    there = Nodes([node("a", rack="r1")])
    about = foreign(OPENEBS, on("rack", "r9"), on("rack", "r1"))
    assert there.serving_dynamic(about) == "a"
