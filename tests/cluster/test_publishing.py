"""From an entry of a discovery directory to its PersistentVolume, and round again."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.faults.support_proxy import Order, proxy_for
from tests.host.support_devices import LoopDevice
from tests.host.support_failing import count_an_error

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def test_the_whole_round_without_anybody_waiting(lab: Lab) -> None:
    """Published, claimed, written, released, cleaned, published anew: no period in between."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    first = lab.published(fs, "one")
    claim = lab.bound(first)
    (where / "secret").write_text("tenant")
    lab.delete_claim(claim)
    second = lab.published(fs, "one", unlike=first["metadata"]["uid"])
    assert second["metadata"]["name"] == first["metadata"]["name"]
    assert "claimRef" not in second["spec"]
    assert not (where / "secret").exists()
    assert (where / "lost+found").is_dir()
    name = first["metadata"]["name"]
    assert lab.event(name, "VolumeCleaned", "read back empty")["type"] == "Normal"
    assert "localvolume.dev/cleaned" not in first["metadata"]["annotations"]
    receipt = second["metadata"]["annotations"]["localvolume.dev/cleaned"]
    said = lab.event(name, "VolumeCleaned")["message"]
    assert re.fullmatch(rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\dZ {re.escape(said)}", receipt)
    assert lab.event(name, "VolumeDelete")["involvedObject"]["uid"] == first["metadata"]["uid"]


def test_looking_again_and_starting_again_change_nothing(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    before = lab.published(fs, "one")
    lab.settle()
    lab.stop()
    lab.start()
    lab.settle()
    assert lab.volumes() == [before]
    made = "local_volume_provisioner_persistentvolume_discovery_total"
    assert not lab.metric(made, mode="Filesystem")


def test_later_entries_directories_and_classes(lab: Lab) -> None:
    """What comes after the start is found, and what is missing stops nothing else."""
    fs, empty = lab.add_class("fs"), lab.add_class("empty")
    missing = lab.add_class("missing", mountDir=str(lab.directory / "not-yet"))
    stranger = lab.add_class("stranger", storage_class=False)
    lab.mount(lab.disk(), fs.path("early"))
    lab.mount(lab.disk(), stranger.path("one"))
    lab.start()
    lab.published(fs, "early")
    assert len(lab.volumes()) == 1
    classes = (missing, stranger, empty, fs)
    lab.until(
        lambda: lab.http("/ready"),
        lambda got: (
            got[0] == 500 and [one.name in got[1] for one in classes] == [True, True, False, False]
        ),
    )

    lab.mount(lab.disk(), fs.path("late"))
    lab.published(fs, "late")
    lab.make_storage_class(stranger.name, "Retain")
    assert lab.published(stranger, "one")["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    missing.directory.mkdir()
    lab.mount(lab.disk(), missing.path("one"))
    lab.published(missing, "one")
    assert lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 200)
    assert len(lab.volumes()) == 4


def test_two_classes_share_a_directory_by_their_patterns(lab: Lab) -> None:
    red = lab.add_class("red", namePattern="red-*,crimson")
    blue = lab.add_class(
        "blue", namePattern="blue-?", mountDir=str(red.directory), hostDir=red.host_dir
    )
    for name in ("red-1", "crimson", "blue-1", "blue-22"):
        lab.mount(lab.disk(), red.path(name))
    lab.start()
    for cls, name in ((red, "red-1"), (red, "crimson"), (blue, "blue-1")):
        lab.published(cls, name)
    lab.settle()
    assert len(lab.volumes()) == 3
    assert not lab.logged("blue-22")  # not meant: not a word about it


@pytest.mark.usefixtures("impatient")
def test_a_refused_creation_is_repeated_until_it_succeeds(lab: Lab) -> None:
    fs = lab.add_class("fs")
    policy = lab.forbid_creation()
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    failed = "local_volume_provisioner_apiserver_requests_failed_total"
    lab.until(lambda: lab.metric(failed, method="create") or 0, lambda count: count >= 2)
    assert lab.logged("not now")
    assert lab.volumes() == []
    # What was refused is not remembered as clean: what came in meanwhile is seen. Allowed only
    # then: an attempt that had looked before it came in could still succeed.
    (where / "found").write_text("somebody's")
    lab.until(lambda: lab.logged("it holds found"), bool)
    lab.plane.request("DELETE", policy)
    lab.settle()
    assert lab.volumes() == []
    (where / "found").unlink()
    lab.published(fs, "one")


def write_to(_disk: LoopDevice, where: Path) -> str:
    (where / "found").write_text("somebody's")
    return "it holds found"


def damage(disk: LoopDevice, _where: Path) -> str:
    count_an_error(disk)
    return "counts errors"


@pytest.mark.parametrize("meanwhile", [write_to, damage])
def test_what_happens_before_its_turn_is_seen(
    lab: Lab, tmp_path: Path, meanwhile: Callable[[LoopDevice, Path], str]
) -> None:
    """A volume was empty and well when all were looked at, and others are published first."""
    lab.hurry(publishers=1)
    fs = lab.add_class("fs")
    disks = {name: lab.disk() for name in ("one", "two")}
    places = {name: lab.mount(disk, fs.path(name)) for name, disk in disks.items()}
    with proxy_for(lab.plane, tmp_path) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        # Each of them: one that was held for too long is given up, and tried again.
        publishing = Order("hold", ("post",), "persistentvolumes")
        proxy.orders.append(publishing)
        lab.start()
        lab.until(lambda: publishing.met, bool)
        (said,) = {meanwhile(disks[name], places[name]) for name in disks}
        publishing.release()
        lab.until(lambda: lab.logged(said) or len(lab.volumes()) > 1, bool)
        # None, where the first was given up while it was held.
        assert len(lab.volumes()) <= 1
        lab.stop()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("first_use", ["require-empty", "trust", "clean"])
def test_what_holds_data_before_its_first_use(lab: Lab, first_use: str) -> None:
    fs = lab.add_class("fs", firstUse=first_use)
    block = lab.add_class("block", firstUse=first_use, volumeMode="Block")
    where = lab.mount(lab.disk(), fs.path("one"))
    (where / "old").write_text("data")
    device = lab.disk("ext4")
    lab.link(device, block.path("raw"))
    lab.start()
    if first_use == "require-empty":
        lab.until(lambda: lab.logged("it holds old"), bool)
        lab.until(lambda: lab.logged("it holds a signature: ext4"), bool)
        lab.settle()
        assert lab.volumes() == []
        assert (where / "old").exists()
        lab.holds(fs, {"not-empty": 1})
        (where / "old").unlink()
        lab.published(fs, "one")
        # What mkfs left beyond the signature counts too.
        with open(device.path, "wb") as file:
            file.write(bytes(os.path.getsize(device.backing)))
        lab.published(block, "raw")
        return
    lab.published(fs, "one")
    lab.published(block, "raw")
    start = Path(device.path).read_bytes()[: 1 << 20]
    assert (where / "old").exists() == (first_use == "trust")
    assert any(start) == (first_use == "trust")


@pytest.mark.usefixtures("impatient")
def test_the_alpha_affinity_is_sent_and_its_refusal_is_said(lab: Lab) -> None:
    """Current API servers refuse a local volume without nodeAffinity, and so they tell."""
    fs = lab.add_class("fs")
    lab.settings["useAlphaAPI"] = True
    lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    lab.until(lambda: lab.logged("Local volume requires node affinity"), bool)
    assert lab.volumes() == []
    lab.settings["useAlphaAPI"] = False
    lab.configure()
    lab.published(fs, "one")
