"""TopoLVM's lvmd.yaml and the StorageClass of its page, served from volume groups of its names.

What test_migrate_topolvm.py of tests/node/installed, which walks the page, must replace where there
is no LVM.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from localvolume.host.lvm.commands import Lvm
from tests.cluster.support_dynamic import PROVISIONER, Claim, Volume
from tests.host.support_devices import command, mounted
from tests.node.support_topolvm import LVMD
from tests.pages import MIGRATE, blocks_of
from tests.suite.api import CLASSES
from tests.suite.names import SELECTED
from tests.suite.units import MIB

from .support_lvm import DISKS, LARGE_DISK, group_on
from .support_lvm_dynamic import LvmLab, lab

__all__ = ["lab"]

TEXT = b"whose file this is" * 500


class Topo:
    """A node whose agent has TopoLVM's configuration, and the volume groups that it names."""

    def __init__(self, lab: LvmLab, lvm: Lvm, lvmd: Path) -> None:
        self.lab, self.lvm, self._lvmd = lab, lvm, lvmd

    def start(self) -> None:
        """With what the chart gives it where `classes` is empty: a ConfigMap of no pools."""
        self.lab.settings = {"storageClassMap": {}}
        self.lab.start_process("--lvmd-config", str(self._lvmd))
        self.lab.until(lambda: self.lab.http("/ready")[0], lambda status: status == 200)

    def make_class(self, **parameters: str) -> str:
        """The page's class.yaml, under its own name; with other parameters under another."""
        (text,) = (
            one.text for one in blocks_of(MIGRATE / "topolvm.md") if one.name == "class.yaml"
        )
        body: dict[str, Any] = yaml.safe_load(text)
        assert body["provisioner"] == PROVISIONER
        if parameters:
            body["metadata"]["name"] += "-other"
            body["parameters"].update(parameters)
        name: str = body["metadata"]["name"]
        self.lab.objects.make(CLASSES, body)
        self.lab.class_names.add(name)
        return name

    def claim(self, class_name: str, size: str) -> Claim:
        """As the scheduler leaves it: the class waits for a pod, and the pod is to be here."""
        return self.lab.claim(class_name, size=size, annotations={SELECTED: self.lab.node})

    def holds_an_xfs(self, volume: Volume, group: str, mib: int) -> None:
        """Whether it is a logical volume of the group, of that size, with the filesystem."""
        device = f"/dev/{group}/{volume['metadata']['name']}"
        assert volume["spec"]["local"] == {"path": device, "fsType": "xfs"}
        assert volume["spec"]["capacity"] == {"storage": f"{mib}Mi"}
        assert int(command("blockdev", "--getsize64", device)) == mib * MIB
        with mounted(device, fstype="xfs") as where:
            (where / "file").write_bytes(TEXT)
        with mounted(device) as where:
            assert (where / "file").read_bytes() == TEXT


@pytest.fixture
def topo(lab: LvmLab, lvm: Lvm, tmp_path: Path) -> Iterator[Topo]:
    lvmd = tmp_path / "lvmd.yaml"
    lvmd.write_text(LVMD)
    with contextlib.ExitStack() as stack:
        # Of a disk with more than what is to be spared.
        stack.enter_context(group_on(LARGE_DISK, "data"))
        stack.enter_context(group_on(DISKS[0], "archive"))
        lvm.create_pool("archive", "pool0", 440 * MIB)
        # Before its groups go.
        stack.callback(lab.stop)
        yield Topo(lab, lvm, lvmd)


def test_a_claim_of_the_pages_class(topo: Topo) -> None:
    """Thick, of the device class that it names, and what is to be spared of that is spared."""
    lab, group = topo.lab, topo.lvm.group("data")
    cls = topo.make_class()
    topo.start()
    room = group.free_bytes // MIB - 10 * 1024
    lab.until(lambda: lab.capacity(cls), lambda said: said == (f"{room}Mi", f"{room}Mi"))
    claim = topo.claim(cls, "400Mi")
    volume = lab.made(claim)
    topo.holds_an_xfs(volume, "data", 400)
    assert [one.name for one in topo.lvm.volumes("data")] == [volume["metadata"]["name"]]
    lab.until(lambda: lab.capacity(cls)[0], lambda said: said == f"{room - 400}Mi")
    # The group has that much, but not to give.
    much = room - 400 + 4
    assert topo.lvm.group("data").free_bytes > much * MIB
    refused = topo.claim(cls, f"{much}Mi")
    lab.claim_event(refused, "ProvisioningFailed", f"{room - 400}Mi of room left")
    assert lab.volume_of(refused) is None
    assert len(topo.lvm.volumes("data")) == 1
    lab.delete(claim)
    lab.gone(volume)
    lab.until(lambda: topo.lvm.volumes("data"), lambda left: left == [])


@pytest.mark.soak
def test_a_claim_of_a_thin_device_class(topo: Topo) -> None:
    """The page's class with the other device class: promised as often as that says."""
    lab = topo.lab
    cls = topo.make_class(**{"topolvm.io/device-class": "cheap"})
    topo.start()
    lab.until(lambda: lab.capacity(cls), lambda said: said == ("440Mi", "440Mi"))
    for _ in range(2):
        volume = lab.made(topo.claim(cls, "300Mi"))
        topo.holds_an_xfs(volume, "archive", 300)
        found = topo.lvm.volume("archive", volume["metadata"]["name"])
        assert found
        assert found.pool == "pool0"
    assert topo.lvm.volumes("data") == []
    # By the books, whatever is free in it: 2 x 440 - 2 x 300.
    lab.claim_event(topo.claim(cls, "300Mi"), "ProvisioningFailed", "of room left")
