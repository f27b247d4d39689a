"""Which volumes are cleaned, and what happens when that fails: policies, phases, refusals."""

from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_objects import pause
from tests.faults.support_proxy import Order, proxy_for
from tests.host.support_devices import command
from tests.suite.api import VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

PREFIX = "local_volume_provisioner_"


def test_only_released_volumes_with_delete_are_cleaned(lab: Lab) -> None:
    fs, keep = lab.add_class("fs"), lab.add_class("keep", policy="Retain")
    names = ("available", "bound", "released", "recycled", "failed")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in names}
    places["retained"] = lab.mount(lab.disk(), keep.path("retained"))
    lab.start()
    volumes = {name: lab.published(fs, name) for name in names}
    volumes["retained"] = lab.published(keep, "retained")
    lab.stop()
    lab.claim(volumes["bound"])
    for name in ("released", "retained"):
        volumes[name] = lab.released(volumes[name])
    for path in places.values():
        (path / "data").write_text("somebody's")
    # States that the controllers would change at once: they look away.
    pause(lab.plane, "kube-controller-manager")
    try:
        recycled = volumes["recycled"]["metadata"]["name"]
        recycle = {"spec": {"persistentVolumeReclaimPolicy": "Recycle"}}
        lab.patch(recycled, recycle)
        lab.patch(recycled, {"status": {"phase": "Released"}}, status=True)
        failed = volumes["failed"]["metadata"]["name"]
        lab.patch(failed, {"status": {"phase": "Failed"}}, status=True)
        lab.start()
        lab.event(recycled, "VolumeUnsupportedReclaimPolicy")
        released = volumes["released"]["metadata"]
        lab.event(released["name"], "VolumeCleaned")
        assert not (places["released"] / "data").exists()
        for _ in range(2):
            lab.settle()
        for name in ("available", "bound", "recycled", "failed", "retained"):
            lab.stays(volumes[name])
            assert (places[name] / "data").exists(), name
        lab.holds(fs, {"policy": 1, "phase": 1})
        lab.holds(keep, {})
    finally:
        lab.plane.resume("kube-controller-manager")
    lab.stays(lab.published(fs, "released", unlike=released["uid"]))


def test_the_policy_on_the_object_counts_and_not_the_class(lab: Lab) -> None:
    """Set to Retain while it was bound, as people do to save data."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    (where / "precious").write_text("to be saved")
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    lab.delete_claim(claim)
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    lab.stays(volume)
    assert (where / "precious").exists()
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "precious").exists()


def test_a_refused_deletion_keeps_object_and_data(lab: Lab) -> None:
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    policy = lab.forbid("DELETE")
    lab.until(lambda: lab.refuses("DELETE", f"{VOLUMES}/{name}"), bool)
    lab.delete_claim(claim)
    failed = f"{PREFIX}apiserver_requests_failed_total"
    lab.until(lambda: lab.metric(failed, method="delete") or 0, lambda count: count >= 2)
    lab.stays(volume)
    assert (where / "data").exists()
    lab.plane.request("DELETE", policy)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()


def test_an_object_that_is_gone_already_is_no_failure(lab: Lab, tmp_path: Path) -> None:
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    deletion = Order("hold", ("delete",), times=1)
    with proxy_for(lab.plane, tmp_path) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        proxy.orders.append(deletion)
        lab.start()
        volume = lab.published(fs, "one")
        name = volume["metadata"]["name"]
        claim = lab.bound(volume)
        (where / "data").write_text("tenant")
        lab.delete_claim(claim)
        lab.until(lambda: deletion.met, bool)
        lab.plane.request("DELETE", f"{VOLUMES}/{name}")
        # Its protection puts a finalizer back as long as it is not being deleted.
        while lab.volume(name) is not None:
            lab.patch(name, {"metadata": {"finalizers": None}})
        deletion.release()
        # The look that sees the object gone waits for no answer: it may come before that.
        gone = {"verb": "delete", "resource": "persistentvolumes", "outcome": "NotThere"}
        lab.until(lambda: lab.metric("localvolume_api_requests_total", **gone), bool)
        assert deletion.answered
        lab.settle()
        # Its data is nobody's now, and so it is not offered to anybody.
        lab.until(lambda: lab.logged("holds it: empty it, or have"), bool)
        assert lab.volumes() == []
        assert (where / "data").exists()
        assert [e for e in lab.events(name) if e["type"] == "Warning"] == []
        deletes = {"mode": "Filesystem", "type": "process"}
        assert lab.metric(f"{PREFIX}persistentvolume_delete_failed_total", **deletes) is None
        assert not lab.metric(f"{PREFIX}apiserver_requests_failed_total", method="delete")
        lab.stop()


def test_a_failed_cleaning_of_files_is_repeated_until_it_succeeds(lab: Lab) -> None:
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    command("mount", "-o", "remount,ro", where)
    lab.delete_claim(claim)
    lab.event(name, "VolumeFailedDelete", "read-only")
    failed = f"{PREFIX}proctable_failed"
    lab.until(lambda: lab.metric(failed) or 0, lambda count: count >= 2)
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    command("mount", "-o", "remount,rw", where)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
