"""A token of node B against all that is node A's, by hand: refused, each for its own reason.

What the API server said to each is printed.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_accounts import Caller
from tests.cluster.support_attempts_others import (
    beyond_its_role,
    on_capacities,
    on_events,
    on_jobs,
    on_nodes,
    on_upstreams_jobs,
    upstreams_jobs,
)
from tests.cluster.support_attempts_volumes import on_claims, on_others, on_volumes, others
from tests.cluster.support_confinement import (
    Attempt,
    Belongings,
    belongings,
    for_nobody,
    permitted,
)
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import JOB_IMAGE, TEMPLATES, Rights, show

pytestmark = pytest.mark.needs("controlplane")

EVERYTHING = {
    "useJobForCleaning": True,
    "removeNodeNotReadyTaint": True,
    "flexvolume": {"driver": "bindmount"},
    "image": JOB_IMAGE,
    "classes": [{"name": "none", "hostDir": "/"}],
}
"""Whatever gives an agent a right."""


@dataclass(frozen=True)
class Two:
    """Two nodes, the rights of their agents, and B's token."""

    plane: ControlPlane
    objects: Objects
    rights: Rights
    a: Belongings
    b: Belongings
    thief: Caller


@pytest.fixture(scope="module")
def two(control_plane: ControlPlane) -> Iterator[Two]:
    manifests = render(EVERYTHING, release="everything", namespace="default", only=TEMPLATES)
    objects = Objects(control_plane)
    try:
        with Rights(control_plane, manifests) as rights:
            a, b = (belongings(control_plane, objects, f"confined-{one}") for one in "ab")
            yield Two(control_plane, objects, rights, a, b, rights.caller(b.node))
    finally:
        objects.clean()


def tried(
    two: Two, capsys: pytest.CaptureFixture[str], caller: Caller, attempts: list[Attempt]
) -> None:
    """Each is answered as it must be, and nothing of A's has changed."""
    before = [two.objects.get(path) for path in two.a.paths]
    rows, wrong = [], []
    for one in attempts:
        answer = caller.refusal(one.method, one.path, one.body, really=bool(one.said))
        if one.said:
            rows.append((f"{one.what}: {one.method} {one.path}", answer or "DONE"))
        if (one.said not in answer) if one.said else answer:
            wrong.append(f"{one.what}: {answer or 'done'}; expected: {one.said or 'done'}")
    show(capsys, f"What the agent of {two.b.node} is refused:", rows)
    assert not wrong, "\n".join(wrong)
    assert [two.objects.get(path) for path in two.a.paths] == before


def test_volumes(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    tried(two, capsys, two.thief, [*on_volumes(two.a, two.b), *permitted(two.b)])


def test_volumes_that_no_agent_made(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    paths = others(two.objects, two.a, two.b)
    tried(two, capsys, two.thief, [*on_others(paths, two.a, two.b)])


def test_claims(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    tried(two, capsys, two.thief, [*on_claims(two.a, two.b)])


def test_capacities(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    tried(two, capsys, two.thief, [*on_capacities(two.a, two.b)])


def test_jobs(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    paths = upstreams_jobs(two.objects, two.a, two.b)
    attempts = [*on_jobs(two.a, two.b), *on_upstreams_jobs(paths, two.b)]
    tried(two, capsys, two.thief, attempts)


def test_nodes(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    tried(two, capsys, two.thief, [*on_nodes(two.a, two.b)])


def test_events(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    tried(two, capsys, two.thief, [*on_events(two.a, two.b)])


def test_what_no_role_gives(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    tried(two, capsys, two.thief, [*beyond_its_role(two.a, two.b)])


def test_a_token_without_a_node_does_nothing(two: Two, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where it has B's label on everything: it is of no node."""
    kinds = (on_claims, on_capacities, on_jobs, on_nodes, on_events)
    groups = [permitted(two.b), *(each(two.a, two.b) for each in kinds)]
    allowed = [one for group in groups for one in group if not one.said]
    tried(two, capsys, two.rights.caller(), for_nobody(allowed))


def test_the_api_server_finds_no_mistake_in_the_policies(two: Two) -> None:
    two.rights.check_types()
