"""E4: names that another node's agent has taken keep no volume from being offered or cleaned.

Whoever has the token of one node's agent makes objects with the names that another's will need, as
the policies allow: on the attacker's own node, with its own label.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from localvolume.volumes.names import longer_volume_name, volume_name
from localvolume_lab.controlplane import ControlPlane
from tests.chart.support_helm import render
from tests.cluster.support_accounts import Caller
from tests.cluster.support_agent import Class, Lab
from tests.cluster.support_objects import Objects
from tests.cluster.support_pods import Kubelet
from tests.cluster.support_rights import TEMPLATES, Rights, false_job, of_labs, sample_spec
from tests.suite.api import JOBS, VOLUMES
from tests.suite.names import NODE_LABEL

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

Object = dict[str, Any]


@pytest.fixture
def rights(control_plane: ControlPlane, unique: str, tmp_path: Path) -> Any:
    values = of_labs(tmp_path, {"useJobForCleaning": True})
    manifests = render(values, release=f"{unique}-s", namespace="default", only=TEMPLATES)
    with Rights(control_plane, manifests) as made:
        yield made


@pytest.fixture
def attacker(rights: Rights, objects: Objects, unique: str) -> tuple[Caller, str]:
    """Whoever has the token of another node's agent, and that node's name."""
    node = f"{unique}-attacker"
    objects.node(node)
    return rights.caller(node), node


def squat(lab: Lab, caller: Caller, node: str, cls: Class, name: str, path: str) -> None:
    """Take the name of a PersistentVolume, as an agent may for a volume of its own node."""
    spec = sample_spec(node, storageClassName=cls.name, local={"path": path})
    body = {"metadata": {"name": name, "labels": {NODE_LABEL: node}}, "spec": spec}
    assert caller.refusal("POST", VOLUMES, body, really=True) == ""
    lab.objects.adopt(f"{VOLUMES}/{name}")


def own(lab: Lab, unlike: str = "") -> Object:
    """The one volume of the lab's node, once it is Available (and another one than that)."""

    def found() -> list[Object]:
        return [one for one in lab.volumes() if one["metadata"]["labels"][NODE_LABEL] == lab.node]

    def is_there(volumes: list[Object]) -> bool:
        return [one["metadata"]["uid"] == unlike for one in volumes] == [False]

    (volume,) = lab.until(found, is_there)
    lab.until(lambda: lab.phase(volume["metadata"]["name"]), lambda phase: phase == "Available")
    return volume


@pytest.mark.parametrize("same_path", [True, False])
def test_a_volume_whose_names_are_taken_is_offered_all_the_same(
    lab: Lab, attacker: tuple[Caller, str], same_path: bool
) -> None:
    caller, node = attacker
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    path = fs.host_path("one" if same_path else "other")
    taken = [make("one", lab.node, fs.name) for make in (volume_name, longer_volume_name)]
    for name in taken:
        squat(lab, caller, node, fs, name, path)
    lab.start()
    volume = own(lab)
    name = volume["metadata"]["name"]
    assert name not in taken
    assert all(one in lab.event(name, "VolumeNamesTaken")["message"] for one in taken)
    # The next agent, which would give another such name, knows it by its path.
    lab.stop()
    lab.start()
    lab.settle()
    assert own(lab)["metadata"]["uid"] == volume["metadata"]["uid"]
    assert len(lab.volumes()) == len(taken) + 1
    # And it is cleaned as any other. Its next name nobody learns from the first: by then it is
    # another agent's.
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    assert own(lab, unlike=volume["metadata"]["uid"])["metadata"]["name"] not in (*taken, name)
    assert not (where / "data").exists()


def test_a_volume_whose_job_is_named_by_another_is_cleaned_all_the_same(
    lab: Lab, kubelet: Kubelet, attacker: tuple[Caller, str]
) -> None:
    """Also while that Job's pod, which is labelled with the volume's UID, has not ended."""
    caller, node = attacker
    kubelet.admit = lambda pod: pod["metadata"]["labels"][NODE_LABEL] != node
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    meta = volume["metadata"]
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    name = f"cleanup-{meta['uid']}"
    job = false_job(node, name, meta["uid"])
    assert caller.refusal("POST", JOBS, job, really=True) == ""
    lab.objects.adopt(f"{JOBS}/{name}")
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=meta["uid"])
    assert not (where / "data").exists()
    lab.event(
        meta["name"], "VolumeCleaningWaits", f"{name} has its name, but belongs to another node"
    )
    assert len(kubelet.began) == 1
    assert lab.plane.request("GET", f"{JOBS}/{name}")["metadata"]["labels"][NODE_LABEL] == node


def test_no_pod_of_a_job_has_another_nodes_label(attacker: tuple[Caller, str], unique: str) -> None:
    """A pod with the label of a volume's own node would be waited for before it is cleaned."""
    caller, node = attacker
    job = false_job(node, f"cleanup-{unique}", "none")
    assert caller.refusal("POST", JOBS, job) == ""
    for value in ("attacked", None):
        job["spec"]["template"]["metadata"]["labels"] = {"pvuuid": "none"} | (
            {NODE_LABEL: value} if value else {}
        )
        assert "pods only with the label" in caller.refusal("POST", JOBS, job)


def test_the_next_agent_finds_the_job_that_has_another_name(
    lab: Lab, kubelet: Kubelet, attacker: tuple[Caller, str]
) -> None:
    """It is known by its labels, and no second one is made beside it."""
    caller, node = attacker
    kubelet.admit = lambda _: False
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    uid = volume["metadata"]["uid"]
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    name = f"cleanup-{uid}"
    assert caller.refusal("POST", JOBS, false_job(node, name, uid), really=True) == ""
    lab.objects.adopt(f"{JOBS}/{name}")
    lab.delete_claim(claim)

    def own() -> list[str]:
        items = lab.plane.request("GET", JOBS)["items"]
        return [
            one["metadata"]["name"]
            for one in items
            if one["metadata"]["labels"].get("pvuuid") == uid
            and one["metadata"]["labels"].get(NODE_LABEL) == lab.node
        ]

    (first,) = lab.until(own, bool)
    assert first.startswith(f"{name}-")
    lab.stop()
    # With its own name free again, another Job could be made.
    lab.plane.request("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
    # The first agent may have said it as well.
    before = len(lab.log())
    lab.start()
    lab.until(lambda: f"{first} is not finished" in "\n".join(lab.log()[before:]), bool)
    assert own() == [first]
    kubelet.admit = lambda _: True
    lab.published(fs, "one", unlike=uid)
    assert not (where / "data").exists()
    assert len(kubelet.began) == 1
