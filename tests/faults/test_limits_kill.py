"""kill -9 of the agent at each step of limiting a volume in use: a repeated call gets its result.

What is said to be in force is in force in the pod's control group, whoever died meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from localvolume.host.mount.mounts import read_mount_table
from tests.cluster.support_csi import CsiLab
from tests.faults.support_lives import Zygote
from tests.faults.test_csi_kill import Stage
from tests.host.support_cgroups import Groups, control_groups
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane", "throttling")

POD = "0f7c1f5e-0c3f-4d0a-9a3e-000000000001"
# Within one agent's life, in the order in which each round comes to them.
_POINTS = (("record-offered", 1), ("limit", 1), ("answer", 1), ("limit", 2), ("put-mount", 1))
_MOST_ROUNDS = 30


@pytest.fixture
def groups() -> Iterator[Groups]:
    with control_groups() as made:
        yield made


@pytest.fixture
def zygote(csi: CsiLab, groups: Groups, tmp_path: Path) -> Iterator[Zygote]:
    csi.csi_pool(backend="image", size=256 * MIB)
    csi.configure()
    where = str(csi.config_directory)
    arguments = ["--csi", f"--cgroup-dir={groups.directory}", "--config", where]
    environment = {
        "MY_NODE_NAME": csi.node,
        "KUBECONFIG": str(csi.plane.kubeconfig),
        "KUBELET_DIR": str(csi.kubelet),
        "RECORDS_DIR": str(csi.records),
    }
    hurried = {"dynamic": {"unwanted": 0.4, "first_wait": 0.2}}
    with Zygote(
        tmp_path, [*arguments, "--listen-address", "127.0.0.1:0"], environment, hurried
    ) as made:
        yield made


def test_limits_through_deaths(csi: CsiLab, groups: Groups, zygote: Zygote) -> None:
    group = groups.pod(POD)
    stage = Stage(csi, zygote, _POINTS)
    caller, insist = stage.caller, stage.lives.insist
    handle = insist(partial(caller.create, "limited", 16 * MIB))
    insist(partial(caller.stage, handle))
    for number in range(1, _MOST_ROUNDS):
        place = insist(partial(caller.publish, handle, POD))
        mount = read_mount_table().at(str(place))
        assert mount is not None
        wanted = {} if number == 1 else {"riops": 100 + number - 1}
        assert groups.has(group, mount.device) == wanted
        modify = partial(
            caller.call,
            "ControllerModifyVolume",
            volume_id=handle,
            mutable_parameters={"readOps": str(100 + number)},
        )
        insist(modify)
        assert groups.has(group, mount.device) == {"riops": 100 + number}
        insist(partial(caller.unpublish, handle, POD))
        # By somebody else: it is set again before the next pod has the volume.
        groups.hierarchy.limit(group, mount.device, {"riops": 0})
        if stage.lives.are_over:
            break
    stage.lives.check_each_met()
    insist(partial(caller.unstage, handle))
    insist(partial(caller.delete, handle))
    stage.is_empty()
