"""What was said of a volume made for a claim, and is over: the agent says so, and `status` shows it
no longer. It is what the volume's own agent says that counts."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import pytest

from localvolume.volumes.moments import written
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_dynamic import Claim, DynamicLab, MadePool, Volume
from tests.cluster.support_seeing import Seeing, agent_pod
from tests.host.support_devices import immutable
from tests.suite.api import CLASSES, EVENTS, VOLUMES

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


@pytest.fixture
def seeing(control_plane: ControlPlane, capsys: pytest.CaptureFixture[str]) -> Seeing:
    return Seeing(control_plane, capsys)


@pytest.fixture(autouse=True)
def impatience(dynamic: DynamicLab) -> None:
    """Attempts follow each other soon."""
    dynamic.hurry_dynamic(first_wait=0.2, longest_wait=2.0)


def _used(lab: DynamicLab, **parameters: str) -> tuple[MadePool, Claim, Volume]:
    pool = lab.pool()
    cls = lab.storage_class(parameters=parameters)
    lab.start()
    agent_pod(lab.objects, lab.node)
    claim = lab.claim(cls)
    volume = lab.made(claim)
    lab.claim_event(claim, "ProvisioningSucceeded")
    return pool, claim, volume


def _shown(lab: DynamicLab, seeing: Seeing) -> tuple[str, list[str]]:
    """The state of the node's one volume, and the problems, as `status` shows them."""
    status = seeing.ask("status", "--node", lab.node, "-o", "json").json
    (volume,) = status["volumes"]
    return volume["state"], [one["reason"] for one in status["problems"]]


def _becomes(lab: DynamicLab, seeing: Seeing, state: str) -> None:
    lab.until(lambda: _shown(lab, seeing), lambda shown: shown == (state, []))


def _put_right(lab: DynamicLab, name: str) -> list[str]:
    return [one["message"] for one in lab.events(name) if one["reason"] == "VolumePutRight"]


def _from_another_node(lab: DynamicLab, volume: Volume) -> None:
    """What the agent of another node may write, if somebody has taken that over."""
    now, host = written(time.time()), f"{lab.unique}-taken"
    name = volume["metadata"]["name"]
    event: dict[str, Any] = {
        "metadata": {"name": f"{name}.forged"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "name": name,
            "uid": volume["metadata"]["uid"],
        },
        "type": "Normal",
        "reason": "VolumePutRight",
        "message": "forged",
        "count": 1,
        "firstTimestamp": now,
        "lastTimestamp": now,
        "source": {"component": "local-volume-provisioner", "host": host},
        "reportingComponent": "local-volume-provisioner",
        "reportingInstance": host,
    }
    lab.objects.make(EVENTS, event)


def test_a_removal_that_failed_and_is_not_wanted_any_more(
    dynamic: DynamicLab, seeing: Seeing
) -> None:
    _, claim, volume = _used(dynamic)
    name = volume["metadata"]["name"]
    policy = dynamic.forbid("DELETE")
    dynamic.until(lambda: dynamic.refuses("DELETE", f"{VOLUMES}/{name}"), bool)
    dynamic.delete(claim)
    dynamic.event(name, "VolumeFailedDelete", "not now")
    assert _shown(dynamic, seeing)[0] == "held"
    # Only its own agent can take that back.
    _from_another_node(dynamic, volume)
    state, (problem,) = _shown(dynamic, seeing)
    assert state == "held"
    assert "not now" in problem
    words = ["undo", name, "--kubeconfig", str(dynamic.plane.kubeconfig)]
    subprocess.run([sys.executable, "-m", "localvolume", *words], check=True, timeout=300)
    dynamic.event(name, "VolumePutRight", "what was said of it is over: ")
    _becomes(dynamic, seeing, "available")
    said = [text for text in _put_right(dynamic, name) if text != "forged"]
    dynamic.settle()
    assert [text for text in _put_right(dynamic, name) if text != "forged"] == said
    dynamic.plane.request("DELETE", policy)


def test_a_hold_whose_cause_is_gone(dynamic: DynamicLab, seeing: Seeing) -> None:
    """Nobody could tell for how long it was to be kept, as its class was gone."""
    _, claim, volume = _used(dynamic, undoPeriod="1h")
    name, cls = volume["metadata"]["name"], claim["spec"]["storageClassName"]
    dynamic.stop()
    dynamic.plane.request("DELETE", f"{CLASSES}/{cls}")
    dynamic.delete(claim)
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    dynamic.start()
    dynamic.event(name, "VolumeFailedDelete", "or delete the PersistentVolume")
    assert _shown(dynamic, seeing)[0] == "held"
    assert _put_right(dynamic, name) == []
    dynamic.storage_class(parameters={"undoPeriod": "1h"})
    dynamic.event(name, "VolumePutRight", "its claim is gone, and that can still be undone")
    _becomes(dynamic, seeing, "released")


def test_a_local_volume_is_not_kept_from_its_claim_for_want_of_a_note(
    dynamic: DynamicLab, seeing: Seeing
) -> None:
    """The kubelet mounts it without asking us, so no pod waits."""
    pool, claim, volume = _used(dynamic)
    name, cls = volume["metadata"]["name"], claim["spec"]["storageClassName"]
    record = pool.directory / ".localvolume" / "records" / f"{name}.json"
    dynamic.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    dynamic.delete(claim)
    dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Released")
    other = dynamic.claim(cls, volumeName=name)
    meta = other["metadata"]
    with immutable(record.parent):
        ref = {"namespace": "default", "name": meta["name"], "uid": meta["uid"]}
        dynamic.patch(name, {"spec": {"claimRef": {**ref, "resourceVersion": None}}})
        dynamic.until(lambda: dynamic.phase(name), lambda phase: phase == "Bound")
        dynamic.until(
            lambda: [one for one in dynamic.log() if name in one and "it is tried again" in one],
            lambda failed: len(failed) >= 2,
        )
        assert meta["uid"] not in record.read_text()
        assert _shown(dynamic, seeing) == ("bound", [])
    dynamic.until(record.read_text, lambda text: meta["uid"] in text)
    dynamic.settle()
    found = {one["reason"] for one in dynamic.events(name) if one["type"] == "Warning"}
    assert found == set()
    assert _put_right(dynamic, name) == []
