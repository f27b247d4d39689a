"""E6: where the policies are not in force, the agent says so, and is not ready."""

from __future__ import annotations

import pytest

from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_agent import ADMISSION, Lab
from tests.cluster.support_rights import COLLECTIONS, TEMPLATES, Rights, in_default, of_labs
from tests.suite.api import VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

KIND = "ValidatingAdmissionPolicy"


def test_an_agent_without_its_policies_is_not_ready(
    lab: Lab, control_plane: ControlPlane, unique: str
) -> None:
    """As after `kubectl apply` where that kind is not served: roles without what confines them."""
    values = of_labs(lab.directory)
    manifests = render(values, release=f"{unique}-u", namespace="default", only=TEMPLATES)
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    roles = [one for one in manifests if not one["kind"].startswith(KIND)]
    with Rights(control_plane, roles) as rights:
        rights.confine(lab)
        lab.start(confined=True)
        lab.until(
            lambda: lab.http("/ready"),
            lambda got: got[0] == 500 and "confinement: the agent is not confined" in got[1],
        )
        assert lab.logged("the agent is not confined to its node")
        # Nothing was made by trying.
        names = [one["metadata"]["name"] for one in control_plane.request("GET", VOLUMES)["items"]]
        assert "local-pv-forbidden" not in names
        # They are applied: it finds that out by itself.
        for one in manifests:
            if one["kind"].startswith(KIND):
                plural = "policies" if one["kind"] == KIND else "policybindings"
                lab.objects.make(f"{ADMISSION}/validatingadmission{plural}", one)
        lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 200)
        assert lab.logged("the agent is confined to its node now")


def test_roles_that_come_after_the_agent_do_not_confine_it(
    lab: Lab, control_plane: ControlPlane, unique: str
) -> None:
    """Until then the API server refuses it everything, and so what the policies would."""
    values = of_labs(lab.directory)
    manifests = render(values, release=f"{unique}-l", namespace="default", only=TEMPLATES)
    roles = [one for one in manifests if not one["kind"].startswith(KIND)]
    late = [one for one in roles if one["kind"] == "ClusterRoleBinding"]
    with Rights(control_plane, [one for one in roles if one not in late]) as rights:
        rights.confine(lab)
        lab.start(confined=True, wait=False)
        lab.until(lambda: lab.logged('cannot create resource "persistentvolumes"'), bool)
        for one in in_default(late):
            rights.objects.make(COLLECTIONS[one["kind"]], one)
        lab.until(
            lambda: lab.http("/ready"),
            lambda got: got[0] == 500 and "confinement: the agent is not confined" in got[1],
        )


def test_an_agent_that_is_told_of_no_policies_does_not_ask(lab: Lab) -> None:
    """`confinement.enabled: false`, or another identity than the pod's."""
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 200)
    assert not lab.logged("not confined")
