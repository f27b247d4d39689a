"""A PersistentVolume deleted by hand goes only when nothing of a tenant is left, or is to stay."""

import pytest

from tests.cluster.support_agent import CLAIMED, Lab, Volume
from tests.suite.api import VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def delete(lab: Lab, volume: Volume) -> None:
    lab.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")


def terminating(lab: Lab, volume: Volume) -> bool:
    found = lab.volume(volume["metadata"]["name"])
    return bool(
        found
        and found["metadata"]["uid"] == volume["metadata"]["uid"]
        and "deletionTimestamp" in found["metadata"]
    )


def test_deleted_in_every_state_while_we_look(lab: Lab) -> None:
    fs, keep = lab.add_class("fs"), lab.add_class("keep", policy="Retain")
    fresh = lab.mount(lab.disk(), fs.path("fresh"))
    bound = lab.mount(lab.disk(), fs.path("bound"))
    kept = lab.mount(lab.disk(), keep.path("kept"))
    taken = lab.mount(lab.disk(), fs.path("taken"))
    lab.start()
    volumes = {path.name: lab.published(fs, path.name) for path in (fresh, bound, taken)}
    volumes["kept"] = lab.published(keep, "kept")
    claims = {name: lab.bound(volumes[name]) for name in ("bound", "kept", "taken")}
    for path in (bound, kept, taken):
        (path / "secret").write_text("tenant")

    # Never used: it goes at once, and returns as the volume is still there.
    delete(lab, volumes["fresh"])
    lab.published(fs, "fresh", unlike=volumes["fresh"]["metadata"]["uid"])

    # Bound: it stays as long as its claim, with its data.
    delete(lab, volumes["bound"])
    lab.settle()
    assert terminating(lab, volumes["bound"])
    assert (bound / "secret").exists()
    lab.delete_claim(claims["bound"])
    lab.published(fs, "bound", unlike=volumes["bound"]["metadata"]["uid"])
    assert not (bound / "secret").exists()

    # Retain: the object goes, the data stays, and is not offered to anybody.
    name = volumes["kept"]["metadata"]["name"]
    lab.delete_claim(claims["kept"])
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    assert lab.stays(volumes["kept"])["status"]["phase"] == "Released"
    delete(lab, volumes["kept"])
    lab.until(lambda: lab.volume(name), lambda found: found is None)
    lab.until(lambda: lab.logged("holds it: empty it, or have"), bool)
    lab.settle()
    assert lab.volumes_at(keep, "kept") == []
    assert (kept / "secret").exists()

    # Its claimRef was emptied by hand: that a claim had held it is written on the object.
    name = volumes["taken"]["metadata"]["name"]
    lab.stop()
    bound_by = {"pv.kubernetes.io/bound-by-controller": None}
    lab.delete_claim(claims["taken"])
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Released")
    lab.patch(name, {"metadata": {"annotations": bound_by}, "spec": {"claimRef": None}})
    found = lab.until(lambda: lab.volume(name), lambda v: v and v["status"]["phase"] == "Available")
    assert found is not None
    assert CLAIMED in found["metadata"]["annotations"]
    lab.start()
    delete(lab, volumes["taken"])
    lab.published(fs, "taken", unlike=volumes["taken"]["metadata"]["uid"])
    assert not (taken / "secret").exists()


def test_deleted_while_no_agent_looks(lab: Lab) -> None:
    """The object waits for its node; afterwards everything is as if the agent had been there."""
    fs, keep = lab.add_class("fs"), lab.add_class("keep", policy="Retain")
    where = lab.mount(lab.disk(), fs.path("one"))
    kept = lab.mount(lab.disk(), keep.path("kept"))
    lab.start()
    volume, other = lab.published(fs, "one"), lab.published(keep, "kept")
    lab.stop()
    volume, other = lab.released(volume), lab.released(other)
    for path in (where, kept):
        (path / "secret").write_text("tenant")
    delete(lab, volume)
    delete(lab, other)
    assert terminating(lab, volume)
    assert terminating(lab, other)
    lab.start()
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "secret").exists()
    lab.until(lambda: lab.volumes_at(keep, "kept"), lambda found: not found)
    assert (kept / "secret").exists()
