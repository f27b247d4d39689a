"""The snapshot-controller with the rights that the chart gives it, for snapshots and groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_accounts import kubeconfig, roles_in_force, token
from tests.cluster.support_groups import GroupLab
from tests.cluster.support_objects import Objects
from tests.cluster.support_program import Program
from tests.cluster.support_rights import COLLECTIONS, in_default
from tests.cluster.support_snapshots import kinds_of_snapshots
from tests.suite import csitools

pytestmark = pytest.mark.needs("root", "loop", "ext4", "xfs", "controlplane", "snapshots", "go")

VALUES = {"csi": {"enabled": True, "snapshotController": {"enabled": True}}}


@pytest.fixture
def controller(control_plane: ControlPlane, objects: Objects, tmp_path: Path) -> Iterator[Program]:
    """As the chart has it, arguments and account, where the kinds are there."""
    manifests = render(VALUES, only=["snapshotcontroller.yaml"], namespace="default")
    rights = [one for one in in_default(manifests) if one["kind"] in COLLECTIONS]
    for one in rights:
        objects.make(COLLECTIONS[one["kind"]], one)
    roles_in_force(control_plane, rights)
    (deployment,) = (one for one in manifests if one["kind"] == "Deployment")
    pod = deployment["spec"]["template"]["spec"]
    bearer = token(control_plane, pod["serviceAccountName"])
    (tmp_path / "controller").mkdir()
    argv = [
        str(csitools.provide("snapshot-controller")),
        f"--kubeconfig={kubeconfig(control_plane, bearer, tmp_path / 'controller')}",
        "--retry-interval-start=100ms",
        "--retry-interval-max=1s",
        *pod["containers"][0]["args"],
    ]
    with kinds_of_snapshots(control_plane):
        program = Program(argv, {}, tmp_path / "snapshot-controller.log")
        try:
            yield program
            program.check()
        finally:
            program.stop()


def test_it_may_do_all_that_it_does(lab: GroupLab, controller: Program) -> None:
    pool = lab.image_pool()
    lab.serve()
    claims = lab.together(2)
    snapshot, group = lab.ready(lab.snapshot(claims[0])), lab.group_ready(lab.group())
    members = lab.members(group)
    assert set(members) == {one["metadata"]["name"] for one in claims}
    assert len(pool.records()) == 5
    lab.take_away(snapshot)
    lab.take_group_away(group)
    for member in members.values():
        lab.until(lambda one=member: lab.read_snapshot(one), lambda left: left is None)  # type: ignore[misc]
    lab.until(lambda: (len(pool.records()), pool.trash()), lambda left: left == (2, []))
    assert [line for line in controller.log.read_text().splitlines() if "orbidden" in line] == []
