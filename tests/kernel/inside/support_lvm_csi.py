"""A node in the guest whose agent serves CSI from a volume group, thick or with a thin pool."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from localvolume.host.lvm.commands import Lvm
from localvolume_lab.controlplane import ControlPlane
from tests.cluster.support_csi import CsiLab
from tests.cluster.support_objects import Objects
from tests.host.support_mounts import mount, umount
from tests.suite.units import MIB

from .support_lvm import LARGE_DISK, group_on
from .support_lvm_dynamic import LvmLab, SandboxPlane

GROUP = "vg0"
_GROUPS = "/sys/fs/cgroup"
POOL = 8192 * MIB
"""Volumes of which nobody says a size have 1 GiB, and there are several at once."""


class LvmCsiLab(LvmLab, CsiLab):
    """A lab whose agent is the driver too, and whose one pool is a volume group of 12 GiB."""

    def fill_node(self, thin: bool) -> None:
        """Have its one pool, and start the agent."""
        keys: dict[str, Any] = {}
        if thin:
            self.lvm.create_pool(GROUP, "pool", POOL)
            keys = {"thinPool": "pool"}
        self.group(GROUP, **keys)
        self.serve_here(cgroup_dir=_GROUPS)


@pytest.fixture
def csi(tmp_path: Path, lvm: Lvm) -> Iterator[LvmCsiLab]:
    """Stopped before its group is taken away: an agent that lives would activate what is in it."""
    with contextlib.ExitStack() as stack:
        # Control groups of v2, where systemd has them.
        mount("cgroup2", _GROUPS, "cgroup2")
        stack.callback(umount, _GROUPS)
        stack.enter_context(group_on(LARGE_DISK, GROUP))
        plane = SandboxPlane(tmp_path)
        stack.callback(plane.stop)
        objects = Objects(cast("ControlPlane", plane))
        made = stack.enter_context(LvmCsiLab(objects, tmp_path, lvm))
        made.make_node()
        yield made
