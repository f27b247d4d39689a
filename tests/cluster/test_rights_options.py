"""The flows that take a right of their own, which only the value that switches them on gives."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import Values, render
from tests.cluster import test_flex_daemon as flexvolume
from tests.cluster import test_jobs_cleaning as jobs
from tests.cluster import test_jobs_of_others as others
from tests.cluster import test_node_taint as taint
from tests.cluster.support_agent import Lab, lab_for
from tests.cluster.support_flex import QUICK, flex_lab_for
from tests.cluster.support_objects import Objects
from tests.cluster.support_pods import Kubelet, job_of, jobs_of
from tests.cluster.support_rights import TEMPLATES, Flow, Rights, done_with, of_labs, refusals
from tests.suite.api import VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

JOBS = {"useJobForCleaning": True}
TAINT = {"removeNodeNotReadyTaint": True, "provisionerNotReadyNodeTaintKey": taint.KEY}
FLEXVOLUME = {
    "flexvolume": {"driver": "bindmount"},
    # As the tests' nodes are called.
    "confinement": {"hostname": "variables.node.replace('-node', '.example')"},
}

OPTIONS: dict[str, Values] = {
    "none": {},
    "jobs": JOBS,
    "taint": TAINT,
    "flexvolume": FLEXVOLUME,
}
FLOWS: list[tuple[str, Flow]] = [
    ("jobs", jobs.test_a_filesystem_is_emptied_by_a_job),
    ("jobs", jobs.test_a_device_is_zeroed_by_a_job),
    ("jobs", partial(others.test_upstreams_job_is_waited_for_and_not_trusted, by_jobs=True)),
    ("none", partial(others.test_upstreams_job_is_waited_for_and_not_trusted, by_jobs=False)),
    ("taint", taint.test_it_goes_when_the_volumes_are_offered_and_the_others_stay),
    ("flexvolume", flexvolume.test_the_first_mount_binds_the_volume_to_the_node),
    ("flexvolume", flexvolume.test_a_deleted_volume_goes_after_its_object),
    ("flexvolume", flexvolume.test_elastics_volumes_are_taken_over),
    ("flexvolume", flexvolume.test_a_pod_that_does_not_use_the_claim_gets_nothing),
]


@pytest.fixture
def lab(
    request: pytest.FixtureRequest, objects: Objects, unique: str, tmp_path: Path
) -> Iterator[Lab]:
    of = flex_lab_for if request.node.callspec.params["option"] == "flexvolume" else lab_for
    with of(objects, unique, tmp_path) as made:
        yield made


@pytest.fixture
def impatient(lab: Lab) -> None:
    """Of the agent's roles, and of FlexVolume's."""
    lab.hurry(first_wait=0.4, job_look=0.5, jobs_again=0.5)
    lab.paces = replace(lab.paces, flexvolume=QUICK)


@pytest.fixture(scope="module")
def options(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Rights]]:
    """The rights with each of the values, all at the same time under names of their own."""
    made: dict[str, Rights] = {}
    with contextlib.ExitStack() as stack:
        for name, values in OPTIONS.items():
            known = of_labs(tmp_path_factory.getbasetemp(), values)
            manifests = render(known, release=name, namespace="default", only=TEMPLATES)
            made[name] = stack.enter_context(Rights(control_plane, manifests))
        yield made


@pytest.mark.parametrize(
    ("option", "flow"),
    FLOWS,
    ids=[getattr(flow, "func", flow).__name__.removeprefix("test_") for _, flow in FLOWS],
)
def test_an_agent_needs_no_more(
    option: str, flow: Flow, options: dict[str, Rights], request: pytest.FixtureRequest
) -> None:
    done_with(options[option], flow, request)


@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.parametrize("option", ["none"])
def test_a_job_that_waits_is_waited_for_once_jobs_are_turned_off(
    option: str, cleans: bool, lab: Lab, kubelet: Kubelet, options: dict[str, Rights]
) -> None:
    """Not seeing it, the agent would clean and offer the volume, and the Job wipe the tenant's."""
    kubelet.admit = lambda _: False
    kubelet.waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    options["jobs"].confine(lab)
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("a tenant's")
    lab.delete_claim(claim)
    lab.until(lambda: job_of(lab, volume), bool)
    lab.stop()
    told = _told_of_waiting(lab)
    options[option].confine(lab)
    lab.settings["useJobForCleaning"] = False
    lab.start()
    lab.until(lambda: _told_of_waiting(lab), lambda now: now > told)
    lab.settle()
    (found,) = lab.volumes()
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    assert (where / "data").exists()
    if not cleans:
        kubelet.argv_of = lambda _: ["/bin/true"]
    kubelet.admit = lambda _: True
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    assert len(kubelet.began) == 1
    lab.until(lambda: jobs_of(lab), lambda jobs: jobs == [])
    assert refusals(lab) == []


def _told_of_waiting(lab: Lab) -> int:
    return sum("waits: ImagePullBackOff" in line for line in lab.log())


@pytest.mark.parametrize("option", ["unconfined"])
def test_without_confinement_a_used_volume_waits_for_somebody_to_delete_it(
    option: str, lab: Lab, control_plane: ControlPlane
) -> None:
    """The agent may delete nothing; what is being deleted it cleans and offers anew."""
    values = {"confinement": {"enabled": False}}
    manifests = render(values, release=option, namespace="default", only=TEMPLATES[:-1])
    with Rights(control_plane, manifests) as rights:
        fs = lab.add_class("fs")
        where = lab.mount(lab.disk(), fs.path("one"))
        rights.confine(lab)
        lab.start()
        volume = lab.published(fs, "one")
        name = volume["metadata"]["name"]
        claim = lab.bound(volume)
        (where / "data").write_text("a tenant's")
        lab.delete_claim(claim)
        lab.until(lambda: lab.logged('cannot delete resource "persistentvolumes"'), bool)
        assert lab.phase(name) == "Released"
        assert (where / "data").exists()
        lab.plane.request("DELETE", f"{VOLUMES}/{name}")
        lab.published(fs, "one", unlike=volume["metadata"]["uid"])
        assert not (where / "data").exists()
        lab.stop()
