"""Claims served from volume groups by the agent: thick and thin, mounted and raw, for life."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pytest

from localvolume.backends.lvm.zeroing import Zeroing
from localvolume.health.model import Patience
from localvolume.host.lvm.commands import Lvm
from tests.host.support_devices import command, mounted
from tests.suite.api import MERGE, VOLUMES
from tests.suite.units import MIB

from .support_lvm_dynamic import LvmLab, lab
from .support_lvm_store import read, write

__all__ = ["lab"]

NO_FINALIZERS = {"metadata": {"finalizers": None}}
TEXT = b"whose file this is" * 500


def size_of(device: str) -> int:
    return int(command("blockdev", "--getsize64", device))


def pool_keys(thin: bool, group: str, lvm: Lvm) -> dict[str, Any]:
    if thin:
        lvm.create_pool(group, "pool", 64 * MIB)
    return {"thinPool": "pool"} if thin else {}


@pytest.mark.parametrize(
    "thin",
    [pytest.param(False, id="thick", marks=pytest.mark.soak), pytest.param(True, id="thin")],
)
def test_the_life_of_a_filesystem(thin: bool, lab: LvmLab, volume_group: str, lvm: Lvm) -> None:
    lab.group(volume_group, **pool_keys(thin, volume_group, lvm))
    cls = lab.storage_class(parameters={"fsType": "ext4"} if thin else {})
    lab.start()
    free = lvm.group(volume_group).free_bytes
    claim = lab.claim(cls, size=str(12 * MIB + 1))
    volume = lab.made(claim)
    device = f"/dev/{volume_group}/{volume['metadata']['name']}"
    assert volume["spec"]["local"] == {"path": device, "fsType": "ext4"}
    # Rounded up to extents, and all three say so.
    assert volume["spec"]["capacity"] == {"storage": "16Mi"}
    lab.until(lambda: lab.has(claim), lambda size: size == "16Mi")
    assert size_of(device) == 16 * MIB
    with mounted(device) as where:
        (where / "file").write_bytes(TEXT)
        before = os.statvfs(where)
        lab.grow(claim, str(30 * MIB + 1))
        lab.until(lambda: lab.has(claim), lambda size: size == "32Mi")
        grown = lab.volume(volume["metadata"]["name"])
        assert grown
        assert grown["spec"]["capacity"] == {"storage": "32Mi"}
        after = os.statvfs(where)
        assert after.f_blocks * after.f_frsize - before.f_blocks * before.f_frsize > 10 * MIB
        lab.claim_event(claim, "VolumeResizeSuccessful", "32Mi")
        lab.settle()
        # Nothing goes on afterwards: what was told is what there is.
        events = len(lab.events(claim["metadata"]["name"]))
        lab.settle()
        assert len(lab.events(claim["metadata"]["name"])) == events
    with mounted(device) as where:
        assert (where / "file").read_bytes() == TEXT
    lab.delete(claim)
    lab.gone(volume)
    lab.until(lambda: lab.lv(volume), lambda found: found is None)
    assert lvm.group(volume_group).free_bytes == free
    assert not os.path.exists(device)
    lab.stop()


@pytest.mark.parametrize(
    ("thin", "removal"),
    [(False, "overwrite"), pytest.param(True, "discard", marks=pytest.mark.soak)],
)
def test_the_life_of_a_raw_device(
    thin: bool, removal: str, lab: LvmLab, volume_group: str, lvm: Lvm
) -> None:
    """Zeroed in pieces, of which nobody hears as of a failure."""
    lab.hurry_dynamic(zeroing=Zeroing(piece=4 * MIB, seconds=1e-6))
    # What an earlier tenant left on the group's disk.
    old = "old"
    lvm.create(volume_group, old, 64 * MIB)
    subprocess.run(
        f"yes secret | dd of=/dev/{volume_group}/{old} bs=1M count=64 iflag=fullblock",
        shell=True,
        check=True,
        capture_output=True,
    )
    found = lvm.volume(volume_group, old)
    assert found
    lvm.remove(found)
    lab.group(volume_group, **pool_keys(thin, volume_group, lvm))
    cls = lab.storage_class(parameters={"onRemoval": removal})
    lab.start()
    claim = lab.claim(cls, size="8Mi", volumeMode="Block")
    volume = lab.made(claim)
    device = f"/dev/{volume_group}/{volume['metadata']['name']}"
    assert volume["spec"]["local"] == {"path": device}
    assert read(device, 8 * MIB) == bytes(8 * MIB)
    write(device, TEXT, 4 * MIB)
    lab.grow(claim, "13Mi")
    lab.until(lambda: lab.has(claim), lambda size: size == "16Mi")
    assert size_of(device) == 16 * MIB
    assert read(device, len(TEXT), 4 * MIB) == TEXT
    assert read(device, 8 * MIB, 8 * MIB) == bytes(8 * MIB)
    lab.claim_event(claim, "VolumeResizeSuccessful")
    assert {one["type"] for one in lab.events(claim["metadata"]["name"])} == {"Normal"}
    lab.delete(claim)
    lab.gone(volume)
    lab.until(lambda: lab.lv(volume), lambda found: found is None)
    lab.stop()


def test_a_group_without_room_gives_the_claim_back(lab: LvmLab, volume_group: str) -> None:
    lab.group(volume_group, reserve="500Mi")
    cls = lab.storage_class(waits=True)
    lab.start()
    selected = {"volume.kubernetes.io/selected-node": lab.node}
    claim = lab.claim(cls, size="12Mi", annotations=selected)
    lab.claim_event(claim, "ProvisioningFailed", "8Mi of room left")

    def given_back() -> bool:
        found = lab.read_claim(claim)
        assert found
        return not {*found["metadata"].get("annotations", {})} & selected.keys()

    lab.until(given_back, bool)
    assert lab.volumes() == []
    assert [one.name for one in lab.lvm.volumes(volume_group)] == []
    lab.stop()


def test_a_pattern_is_a_pool_for_each_group(
    lab: LvmLab, volume_group: str, second_group: str
) -> None:
    lab.settings["pools"]["data"] = {"backend": "lvm", "volumeGroupPattern": "vg[0-9]"}
    cls = lab.storage_class(parameters={"pool": "data"})
    lab.start()
    lab.until(lambda: lab.capacity(cls), lambda said: said == ("1016Mi", "508Mi"))
    claims = [lab.claim(cls, size="300Mi") for _ in range(2)]
    volumes = [lab.made(claim) for claim in claims]
    homes = sorted(v["metadata"]["annotations"]["localvolume.dev/pool"] for v in volumes)
    assert [home.partition("/")[0] for home in homes] == ["data.vg0", "data.vg1"]
    lab.until(lambda: lab.capacity(cls), lambda said: said == ("416Mi", "208Mi"))
    assert lab.orphans() == []
    # Without its object a volume is an orphan, in whichever group.
    name = volumes[1]["metadata"]["name"]
    lab.stop()
    lab.plane.request("PATCH", f"{VOLUMES}/{name}", NO_FINALIZERS, content_type=MERGE)
    lab.plane.request("DELETE", f"{VOLUMES}/{name}")
    home = volumes[1]["metadata"]["annotations"]["localvolume.dev/pool"].partition("/")[0]
    assert [(one["pool"], one["place"]) for one in lab.orphans()] == [(home, name)]


def deactivate(group: str) -> None:
    command("vgchange", "--quiet", "--activate", "n", group)


def test_inactive_after_a_reboot_it_is_activated(lab: LvmLab, volume_group: str, lvm: Lvm) -> None:
    """Its thin pool, too; thick ones in test_lvm_store_guards.py."""
    lab.group(volume_group, **pool_keys(True, volume_group, lvm))
    cls = lab.storage_class()
    lab.start()
    claim = lab.claim(cls, size="12Mi")
    volume = lab.made(claim)
    device = lab.path_of(volume)
    with mounted(str(device)) as where:
        (where / "file").write_bytes(TEXT)
    lab.stop()
    deactivate(volume_group)
    assert not device.exists()
    # However long it takes, it is not told to be gone.
    lab.start(patience=Patience(gone=600))
    lab.until(device.exists, bool)
    with mounted(str(device)) as where:
        assert (where / "file").read_bytes() == TEXT
    assert lab.volume(volume["metadata"]["name"]) == volume
    # Deleted while it is inactive, it goes like any other.
    lab.stop()
    deactivate(volume_group)
    lab.delete(claim)
    lab.start()
    lab.gone(volume)
    lab.until(lambda: lab.lv(volume), lambda found: found is None)
    lab.stop()


def test_a_thin_pool_that_fills_is_warned_of(
    lab: LvmLab, volume_group: str, thin_pool: str
) -> None:
    lab.group(volume_group, thinPool=thin_pool, overbook=3)
    cls = lab.storage_class()
    lab.start()
    claim = lab.claim(cls, size="60Mi", volumeMode="Block")
    volume = lab.made(claim)
    assert lab.metric("localvolume_pool_warnings", pool="fast") == 0
    device = str(lab.path_of(volume))
    write(device, os.urandom(58 * MIB))
    lab.touch()
    lab.event(lab.node, "PoolWarning", f"the data of {volume_group}/{thin_pool}")
    lab.until(
        lambda: lab.metric("localvolume_pool_data_percent", pool="fast") or 0, lambda p: p > 85
    )
    lab.until(lambda: lab.metric("localvolume_pool_warnings", pool="fast"), lambda n: n == 1)
    # A warning is no problem: the agent is ready.
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)
    # Its group is taken away before the lab is: an agent that lives would activate what is in it.
    lab.stop()


def test_a_missing_group_is_a_problem_and_nothing_is_given_up(
    lab: LvmLab, volume_group: str
) -> None:
    lab.settings["pools"]["data"] = {"backend": "lvm", "volumeGroupPattern": "vg0"}
    cls = lab.storage_class()
    lab.start()
    claim = lab.claim(cls, size="12Mi")
    volume = lab.made(claim)
    lab.stop()
    deactivate(volume_group)
    command("vgrename", "--quiet", volume_group, "away")
    try:
        lab.start(wait=False)
        lab.until(lambda: lab.http("/ready")[1], lambda text: "pool data.vg0" in text)
        lab.delete(claim)
        lab.settle()
        lab.settle()
        assert lab.volume(volume["metadata"]["name"])
        assert [one.name for one in lab.lvm.volumes("away")] == [volume["metadata"]["name"]]
    finally:
        lab.stop()
        command("vgrename", "--quiet", "away", volume_group)
    lab.start()
    lab.gone(volume)
    lab.stop()
