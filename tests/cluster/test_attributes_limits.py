"""Limits of reading and writing from the class to a control group, and through deaths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from localvolume.host.mount.mounts import read_mount_table
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_csicalls import Caller
from tests.cluster.support_dynamic import Claim
from tests.cluster.support_program import Program
from tests.cluster.test_attributes import agrees, change, claim, has, kind
from tests.faults.support_proxy import Order, proxy_for
from tests.host.support_cgroups import Groups, control_groups
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane", "throttling")

POD = "0f7c1f5e-0c3f-4d0a-9a3e-000000000001"


@pytest.fixture
def groups() -> Iterator[Groups]:
    with control_groups() as made:
        yield made


class Limited:
    """A claim whose volume a pod has."""

    def __init__(self, lab: CsiLab, groups: Groups, made: Claim) -> None:
        self._groups = groups
        self._pod = groups.pod(POD)
        self.caller = Caller(lab.kubelet)
        self.handle = lab.made(made)["metadata"]["name"]
        self.caller.stage(self.handle)
        target = self.caller.publish(self.handle, POD)
        mount = read_mount_table().at(str(target))
        assert mount is not None
        self._device = mount.device

    def has(self) -> dict[str, int]:
        return self._groups.has(self._pod, self._device)

    def set(self, **limits: int) -> None:
        """As somebody else would."""
        self._groups.hierarchy.limit(self._pod, self._device, limits)


def serve(csi: CsiLab, groups: Groups) -> Program:
    return csi.serve(f"--cgroup-dir={groups.directory}")


def test_limits_follow_the_class_and_outlive_the_agent(csi: CsiLab, groups: Groups) -> None:
    csi.csi_pool(backend="image", size=512 * MIB)
    slow = kind(csi, "slow", {"writeBytesPerSecond": "2Mi", "readOps": "500"})
    other = kind(csi, "other", {"readOps": "9", "undoPeriod": "0s"})
    serve(csi, groups)
    made = claim(csi, slow, size="32Mi")
    pod = Limited(csi, groups, made)
    assert pod.has() == {"wbps": 2 * MIB, "riops": 500}
    change(csi, made, other)
    # In force before it is said.
    csi.until(lambda: has(csi, made)[1], lambda name: name == other)
    assert pod.has() == {"riops": 9}
    agrees(csi, made, other)
    csi.stop()
    pod.set(riops=0, wbps=5 * MIB)
    serve(csi, groups)
    csi.until(pod.has, lambda found: found == {"riops": 9})


STEPS = {"the volume": ("persistentvolumes", 0), "done": ("persistentvolumeclaims", 1)}


@pytest.mark.parametrize("step", STEPS)
def test_an_agent_killed_meanwhile_is_gone_on_with(
    csi: CsiLab, groups: Groups, tmp_path: Path, step: str
) -> None:
    csi.csi_pool(backend="image", size=512 * MIB)
    slow = kind(csi, "slow", {"readOps": "500"})
    with proxy_for(csi.plane, tmp_path) as proxy:
        csi.kubeconfig = proxy.kubeconfig
        agent = serve(csi, groups)
        made = claim(csi, size="32Mi")
        pod = Limited(csi, groups, made)
        csi.claim_event(made, "ProvisioningSucceeded")
        resource, before = STEPS[step]
        stopped = Order("hold", ("patch",), resource)
        passed = Order("delay", ("patch",), resource, times=before)
        proxy.orders += [passed, stopped] if before else [stopped]
        change(csi, made, slow)
        csi.until(lambda: stopped.met, bool)
        agent.kill()
        # The kernel keeps it, whatever becomes of the agent.
        assert pod.has() == {"riops": 500}
        pod.set(riops=0)
        proxy.orders.clear()
        serve(csi, groups)
        agrees(csi, made, slow)
        assert pod.has() == {"riops": 500}
        csi.stop()


def test_they_are_infeasible_where_they_cannot_be_kept(csi: CsiLab, groups: Groups) -> None:
    csi.csi_pool()
    slow = kind(csi, "slow", {"readOps": "500"})
    serve(csi, groups)
    made = claim(csi)
    csi.made(made)
    change(csi, made, slow)
    csi.claim_event(made, "VolumeModifyFailed", "share a device with others")
    csi.stop()
    csi.serve()
    csi.claim_event(made, "VolumeModifyFailed", "csi.ioLimits")
    infeasible = {"targetVolumeAttributesClassName": slow, "status": "Infeasible"}
    assert has(csi, made) == ("", "", infeasible)


def test_once_they_are_switched_off_no_further_pod_gets_the_volume(
    csi: CsiLab, groups: Groups
) -> None:
    csi.csi_pool(backend="image", size=512 * MIB)
    slow, none = kind(csi, "slow", {"readOps": "500"}), kind(csi, "none", {"readOps": "max"})
    serve(csi, groups)
    made = claim(csi, slow, size="32Mi")
    pod = Limited(csi, groups, made)
    csi.stop()
    csi.serve()
    further = pod.caller.to_publish(pod.handle, "another")
    status, text = pod.caller.refused("NodePublishVolume", **further)
    assert (status.name, "csi.ioLimits" in text) == ("UNAVAILABLE", True)
    assert pod.has() == {"riops": 500}
    csi.event(pod.handle, "VolumeLimitsNotKept", "csi.ioLimits")
    change(csi, made, none)
    agrees(csi, made, none)
    pod.caller.publish(pod.handle, "another")
