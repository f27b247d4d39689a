"""Shared by the tests on a real control plane."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.cleaning import run
from localvolume.cleaning.receipt import Receipt
from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_agent import Lab, lab_for
from tests.cluster.support_controller import Ground
from tests.cluster.support_csi import CsiLab, csi_lab_for
from tests.cluster.support_dynamic import DynamicLab, dynamic_lab_for
from tests.cluster.support_objects import Objects
from tests.cluster.support_pods import Kubelet
from tests.cluster.support_replaced import PROVISIONERS
from tests.cluster.support_rights import JOB_IMAGE, TEMPLATES, Rights, of_labs
from tests.faults.support_proxy import Proxy, proxy_for

OTHERS = sorted(set(PROVISIONERS.values()))
"""The provisioners that labs replace."""


@pytest.fixture
def objects(control_plane: ControlPlane) -> Iterator[Objects]:
    made = Objects(control_plane)
    yield made
    made.clean()


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path) -> Iterator[Lab]:
    """A node of one test's own; the test adds classes and disks and starts the agent."""
    with lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def dynamic(objects: Objects, unique: str, tmp_path: Path) -> Iterator[DynamicLab]:
    """The same for volumes that are made for claims: the test adds pools, classes and claims."""
    with dynamic_lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def csi(objects: Objects, unique: str, tmp_path: Path) -> Iterator[CsiLab]:
    """The same with the kubelet's directory, for an agent that is the CSI driver too."""
    with csi_lab_for(objects, unique, tmp_path) as lab:
        yield lab


@pytest.fixture
def ground(control_plane: ControlPlane, unique: str) -> Iterator[Ground]:
    """What a controller is to judge; the test makes it and starts the controller."""
    with Ground(control_plane, unique) as ground:
        yield ground


@pytest.fixture
def proxy(ground: Ground, tmp_path: Path) -> Iterator[Proxy]:
    """Between the controller and the API server, where the test starts it with its kubeconfig."""
    with proxy_for(ground.plane, tmp_path) as proxy:
        yield proxy
        ground.stop()


@pytest.fixture
def kubelet(lab: Lab) -> Iterator[Kubelet]:
    """Runs the pods of the lab's Jobs; and the configuration wants Jobs."""
    lab.settings["useJobForCleaning"] = True
    lab.job_image = JOB_IMAGE
    with Kubelet(lab) as kubelet:
        yield kubelet
        lab.stop()


@pytest.fixture
def impatient(lab: Lab) -> None:
    """Shorten what the agent waits before it tries or looks again by itself."""
    lab.hurry(first_wait=0.4, look_again=0.5, stale=0.3, job_look=0.5, jobs_again=0.5)


@pytest.fixture
def before_cleaning(lab: Lab) -> list[Callable[[], object]]:
    """What the test puts in here happens once, after all was looked at and before the cleaning."""
    todo: list[Callable[[], object]] = []

    async def clean(*args: Any, **kwargs: Any) -> Receipt:
        while todo:
            todo.pop(0)()
        return await run.clean(*args, **kwargs)

    lab.deeds = replace(lab.deeds, clean=clean)
    return todo


@pytest.fixture(scope="session")
def rights(
    control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Rights]:
    """Accounts, roles and policies of deploy/install.yaml, for whoever acts with them; the policies
    know the classes and directories of labs in place of those that are installed."""
    values = of_labs(
        tmp_path_factory.getbasetemp(), {"controller": {"dynamicProvisioners": OTHERS}}
    )
    manifests = render(values, namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        yield made
