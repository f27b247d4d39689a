"""`localvolume move-to-csi`: a volume of the kind `local` becomes one of the CSI driver, its data
untouched, whatever is killed meanwhile; and no volume is moved under a pod."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_csi import CsiLab
from tests.cluster.support_moving import MOVED_FROM, Moving, register
from tests.host.support_devices import unmount
from tests.host.support_mounts import MS_BIND, mount
from tests.suite.api import CLAIMS, CLASSES, MERGE, PODS
from tests.suite.names import CSI, FINALIZER, NATIVE, PROVISIONED_BY
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

MOVING = "localvolume.dev/moving"

#: The command's steps that change something, in their order.
STEPS = ["keep", "retain", "delete", "let go", "create"]

DIRECTORY: dict[str, Any] = {"backend": "directory"}
IMAGE: dict[str, Any] = {"backend": "image", "size": 256 * MIB}


def made(csi: CsiLab, keys: dict[str, Any], *, known: bool = True, **fields: Any) -> Moving:
    """A bound volume, with a file in it that a pod has written; its agent runs."""
    csi.csi_pool(**keys)
    cls = csi.storage_class(**fields)
    if known:
        register(csi)
    csi.serve()
    moving = anew(csi, cls)
    with used(moving) as place:
        (place / "rows").write_text("precious")
    return moving


def anew(csi: CsiLab, cls: str) -> Moving:
    claim = csi.claim(cls, size="32Mi")
    return Moving(csi, claim, csi.made(claim))


@contextmanager
def used(moving: Moving) -> Iterator[Path]:
    """The volume as the kubelet mounts one of the kind `local` for a pod."""
    path = moving.lab.path_of(moving.before)
    place = moving.lab.kubelet / "pods/pod-0/volumes/kubernetes.io~local-volume" / moving.name
    place.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        mount(str(path), str(place), flags=MS_BIND)
    else:
        mount(str(path.resolve()), str(place), "ext4")
    try:
        yield place
    finally:
        unmount(place)


def is_untouched(moving: Moving) -> None:
    """Nothing was done, and nothing was written down."""
    assert moving.kept() == []
    assert moving.now() == moving.before


@pytest.mark.parametrize("keys", [DIRECTORY, IMAGE], ids=["directory", "image"])
def test_the_data_stays_and_the_object_is_made_anew(csi: CsiLab, keys: dict[str, Any]) -> None:
    moving = made(csi, keys)
    before, was = moving.before, csi.path_of(moving.before).resolve()
    # What people have changed of the object stays so, and what only a claim of its own had.
    csi.patch(moving.name, {"metadata": {"labels": {"team": "red"}}})
    planned = moving.command("--dry-run")
    assert (planned.returncode, moving.row(planned)) == (0, "would move")
    assert moving.kept() == []
    done = moving.command("--yes")
    assert (done.returncode, moving.row(done)) == (0, "moved"), done.stderr
    after = moving.moved()
    assert moving.kept() == []
    spec, was_spec = dict(after["spec"]), dict(before["spec"])
    source = spec.pop("csi")
    fs_type = was_spec.pop("local").get("fsType")
    assert (source["driver"], source["volumeHandle"]) == (CSI, moving.name)
    assert source.get("fsType") == fs_type
    for one in (spec, was_spec):
        one["claimRef"].pop("resourceVersion", None)
    assert spec == was_spec
    metadata = after["metadata"]
    assert metadata["uid"] != before["metadata"]["uid"]
    assert metadata["labels"] == {**before["metadata"]["labels"], "team": "red"}
    assert metadata["annotations"][PROVISIONED_BY] == CSI
    assert FINALIZER in metadata["finalizers"]
    csi.event(moving.name, "VolumeMoved", CSI)
    assert moving.content() == "precious"
    assert was.exists()
    again = moving.command("--yes")
    assert (again.returncode, moving.row(again)) == (0, "is moved it is a volume of the driver")
    # It lives on as any volume of the driver, though its class is the provisioner's.
    csi.delete(moving.claim)
    csi.gone(after)
    pool = csi.made_pools[0]
    csi.until(lambda: (pool.records(), pool.trash()), lambda left: left == ([], []))


def test_a_raw_device(csi: CsiLab) -> None:
    """Also while a pod has it: the kubelet mounts the device itself on a file."""
    csi.csi_pool(**IMAGE)
    cls = csi.storage_class()
    register(csi)
    csi.serve()
    claim = csi.claim(cls, size="32Mi", volumeMode="Block")
    moving = Moving(csi, claim, csi.made(claim))
    device = csi.path_of(moving.before).resolve()
    device.write_bytes(b"precious")
    place = csi.kubelet / "pods" / "pod-0"
    place.touch()
    mount(str(device), str(place), flags=MS_BIND)
    try:
        assert moving.command("--yes", wait=0.0).returncode == 1
        csi.event(moving.name, "VolumeNotMoved", "is in use: it is mounted at")
    finally:
        unmount(place)
    after = moving.moved()
    assert after["spec"]["volumeMode"] == "Block"
    assert "fsType" not in after["spec"]["csi"]
    moving.caller.stage(moving.name, block=True)
    with moving.caller.publish(moving.name, block=True).open("rb") as file:
        assert file.read(8) == b"precious"
    moving.caller.leave(moving.name)
    assert moving.command("--yes").returncode == 0


@pytest.mark.needs("xfs")
def test_a_moved_volume_grows_and_has_snapshots(csi: CsiLab) -> None:
    csi.csi_pool(backend="image", fs_type="xfs", size=512 * MIB)
    cls = csi.storage_class()
    register(csi)
    csi.serve()
    moving = anew(csi, cls)
    with used(moving) as place:
        (place / "rows").write_text("precious")
    assert moving.command("--yes").returncode == 0
    moving.moved()
    csi.grow(moving.claim, "48Mi")
    csi.until(
        lambda: csi.read_claim(moving.claim),
        lambda claim: claim and claim["status"]["capacity"]["storage"] == "48Mi",
    )
    cut = moving.caller.call("CreateSnapshot", name="before", source_volume_id=moving.name)
    assert cut.snapshot.size_bytes == 48 * MIB
    assert moving.content() == "precious"
    moving.caller.call("DeleteSnapshot", snapshot_id=cut.snapshot.snapshot_id)


@pytest.mark.parametrize("count", range(1, len(STEPS) + 1), ids=STEPS)
def test_a_call_that_was_killed_is_repeated(csi: CsiLab, count: int) -> None:
    """After each of its writes; the agent is killed and started anew as well."""
    moving = made(csi, DIRECTORY)
    assert moving.steps(count) == STEPS[:count]
    csi.stop()
    csi.serve()
    csi.settle()
    assert (csi.made_pools[0].directory / moving.name / "rows").read_text() == "precious"
    done = moving.command("--yes")
    assert done.returncode == 0, done.stdout
    after = moving.moved()
    assert after["spec"]["persistentVolumeReclaimPolicy"] == "Delete"
    assert moving.kept() == []
    assert moving.content() == "precious"


def test_nothing_is_done_without_a_yes(csi: CsiLab) -> None:
    moving = made(csi, DIRECTORY)
    done = moving.command()
    assert (done.returncode, moving.row(done)) == (1, "would move")
    assert "nothing is done" in done.stderr
    is_untouched(moving)


def test_a_pod_uses_the_claim(csi: CsiLab) -> None:
    """One that has begun, or only waits to: also while the object is being deleted already."""
    moving = made(csi, DIRECTORY)
    name = f"{csi.unique}-pod"
    moving.pod(name)
    done = moving.command("--yes")
    why = f"refused pods use its claim: {name}: stop them first"
    assert (done.returncode, moving.row(done)) == (1, why)
    is_untouched(moving)
    csi.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert moving.steps(3) == STEPS[:3]
    moving.pod(name)
    done = moving.command("--yes")
    assert done.returncode == 1
    assert moving.row(done).startswith(f"{why}; moving it is begun")
    held = moving.now()
    assert held is not None
    assert held["metadata"]["uid"] == moving.before["metadata"]["uid"]
    csi.plane.request("DELETE", f"{PODS}/{name}", {"gracePeriodSeconds": 0})
    assert moving.command("--yes").returncode == 0
    assert moving.content() == "precious"


@pytest.mark.parametrize("keys", [DIRECTORY, IMAGE], ids=["directory", "image"])
def test_a_mount_that_nobody_knows_of_holds_the_agent_up(csi: CsiLab, keys: dict[str, Any]) -> None:
    """As of a pod that began between the last look and the end of the former object."""
    moving = made(csi, keys)
    with used(moving):
        done = moving.command("--yes", wait=0.0)
        assert done.returncode == 1
        assert moving.row(done).startswith("waits its agent has not taken it over yet")
        csi.event(moving.name, "VolumeNotMoved", "is in use: it is mounted at")
        found = moving.now()
        assert found is not None
        assert MOVED_FROM in found["metadata"]["annotations"]
        assert moving.caller.listed() == []
    moving.moved()
    assert moving.command("--yes").returncode == 0
    assert moving.kept() == []
    assert moving.content() == "precious"


def test_the_driver_is_not_known_on_its_node(csi: CsiLab) -> None:
    moving = made(csi, DIRECTORY, known=False)
    done = moving.command("--yes")
    assert done.returncode == 1
    assert "does not know csi.localvolume.dev: switch it on there" in moving.row(done)
    is_untouched(moving)


def test_the_claim_goes_meanwhile(csi: CsiLab) -> None:
    """Its policy would remove the volume: it is kept, and a person is to say."""
    moving = made(csi, DIRECTORY)
    assert moving.steps(4) == STEPS[:4]
    csi.delete(moving.claim)
    csi.until(lambda: csi.read_claim(moving.claim), lambda found: found is None)
    assert moving.command("--yes").returncode == 0
    found = csi.until(moving.now, lambda one: one and one["status"].get("phase") == "Released")
    assert found is not None
    assert found["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    csi.settle()
    assert (csi.made_pools[0].directory / moving.name / "rows").read_text() == "precious"


def test_a_person_keeps_the_data_meanwhile(csi: CsiLab) -> None:
    """The object goes already, and has the command's Retain: that is said, and how to keep it."""
    moving = made(csi, DIRECTORY)
    assert moving.steps(3) == STEPS[:3]
    row = moving.row(moving.command("--dry-run"))
    assert "its reclaim policy is Delete again afterwards" in row
    csi.patch(moving.name, {"metadata": {"annotations": {MOVING: None}}})
    assert moving.row(moving.command("--dry-run")) == "would move it was begun before"
    # The object may go at any moment: what it is made anew from is there at all times.
    note = moving.note()
    assert moving.steps(1) == ["keep"]
    over = moving.note()
    assert over["metadata"]["uid"] == note["metadata"]["uid"]
    assert "deletionTimestamp" not in note["data"]["persistentvolume.json"]
    assert "deletionTimestamp" in over["data"]["persistentvolume.json"]
    assert moving.command("--yes").returncode == 0
    after = moving.moved()
    assert after["spec"]["persistentVolumeReclaimPolicy"] == "Retain"
    assert MOVING not in after["metadata"]["annotations"]
    assert moving.kept() == []
    assert moving.content() == "precious"


def test_what_two_calls_write_down_at_once(csi: CsiLab) -> None:
    """The one that has looked before the other wrote writes nothing, and looks again."""
    moving = made(csi, DIRECTORY)
    assert moving.steps(1) == STEPS[:1]
    csi.patch(moving.name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    assert moving.late() == ["keep"]
    assert moving.command("--yes").returncode == 0
    assert moving.moved()["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_another_object_of_that_name(csi: CsiLab) -> None:
    """Somebody has made one between two calls: neither is taken for the other."""
    moving = made(csi, DIRECTORY)
    assert moving.steps(4) == STEPS[:4]
    spec = {**moving.before["spec"], "claimRef": dict(moving.before["spec"]["claimRef"])}
    spec["claimRef"].pop("resourceVersion", None)
    kept = ("name", "labels", "annotations")
    metadata = {key: moving.before["metadata"][key] for key in kept}
    csi.plane.request("POST", "/api/v1/persistentvolumes", {"metadata": metadata, "spec": spec})
    done = moving.command("--yes")
    assert done.returncode == 1
    assert moving.row(done) == ("refused what was kept of it is of an earlier object of that name")
    csi.settle()
    assert (csi.made_pools[0].directory / moving.name / "rows").read_text() == "precious"


def test_an_object_that_says_so_without_having_been_moved(csi: CsiLab) -> None:
    """Who makes an object for the driver by hand must know whose place it took."""
    moving = made(csi, DIRECTORY)
    assert moving.steps(4) == STEPS[:4]
    assert moving.before["metadata"]["uid"] in moving.note()["data"]["persistentvolume.json"]
    spec = dict(moving.before["spec"])
    spec.pop("local")
    spec["claimRef"] = {k: spec["claimRef"][k] for k in ("namespace", "name", "uid")}
    spec["csi"] = {"driver": CSI, "volumeHandle": moving.name}
    notes = {**moving.before["metadata"]["annotations"], PROVISIONED_BY: CSI, MOVED_FROM: "0-1-2"}
    metadata = {
        "name": moving.name,
        "labels": moving.before["metadata"]["labels"],
        "annotations": notes,
    }
    csi.plane.request("POST", "/api/v1/persistentvolumes", {"metadata": metadata, "spec": spec})
    csi.event(moving.name, "VolumeNotMoved", "is not of the object '0-1-2'")
    assert moving.caller.listed() == []
    record = csi.made_pools[0].directory / ".localvolume/records" / f"{moving.name}.json"
    assert CSI not in record.read_text()


def test_a_namespace_that_is_not_there(csi: CsiLab) -> None:
    moving = made(csi, DIRECTORY)
    done = moving.command("--yes", "--release-namespace", "nowhere")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no namespace nowhere: --release-namespace names it" in done.stderr
    is_untouched(moving)


def test_a_class_of_the_same_name_for_the_driver(csi: CsiLab) -> None:
    """As the page says: from then on new claims of it have volumes of the driver from the start."""
    moving = made(csi, {**DIRECTORY, "size": 128 * MIB})
    cls = moving.claim["spec"]["storageClassName"]
    assert moving.command("--yes").returncode == 0
    csi.plane.request("DELETE", f"{CLASSES}/{cls}")
    csi.storage_class(provisioner=CSI)
    # Claims and classes are told of by watches of their own.
    csi.settle()
    second = anew(csi, cls)
    assert second.before["spec"]["csi"]["volumeHandle"] == second.name
    assert moving.content() == "precious"
    assert second.row(second.command("--dry-run")) == "is moved it is a volume of the driver"
    assert NATIVE not in str(csi.volumes())


def test_the_claim_is_being_deleted(csi: CsiLab) -> None:
    moving = made(csi, DIRECTORY)
    path = f"{CLAIMS}/{moving.claim['metadata']['name']}"
    held = {"metadata": {"finalizers": ["example.com/held"]}}
    csi.plane.request("PATCH", path, held, content_type=MERGE)
    csi.delete(moving.claim)
    done = moving.command("--yes")
    assert (done.returncode, moving.row(done)) == (1, "refused its claim is being deleted")
    csi.plane.request("PATCH", path, {"metadata": {"finalizers": None}}, content_type=MERGE)
    assert os.listdir(csi.made_pools[0].directory)
