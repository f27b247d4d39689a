"""A node that was deleted and made again under its name keeps its volumes, whoever made them.

Upstream writes the Node's UID into its name of itself: after that it fails AlreadyExists forever.
"""

import json
from pathlib import Path

import pytest

from tests.cluster.support_agent import IDENTITY, Class, Lab, Volume
from tests.cluster.support_objects import pause
from tests.host.support_devices import unmount
from tests.suite.names import FINALIZER, NODE_LABEL

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

BY = "pv.kubernetes.io/provisioned-by"
ALPHA = "volume.alpha.kubernetes.io/node-affinity"
FORMS = ("with the UID", "by name only", "alpha affinity")


def uid_of(lab: Lab) -> str:
    return str(lab.plane.request("GET", f"/api/v1/nodes/{lab.node}")["metadata"]["uid"])


def delete_node(lab: Lab) -> None:
    lab.plane.request("DELETE", f"/api/v1/nodes/{lab.node}")
    if lab.agent is not None:
        lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 500 and "no Node" in got[1])


def create_node(lab: Lab) -> str:
    return str(lab.plane.create_node(lab.node)["metadata"]["uid"])


def name_of(volume: Volume) -> str:
    return str(volume["metadata"]["name"])


def as_upstream(lab: Lab, volume: Volume, form: str) -> Volume:
    """The object that an upstream provisioner of this Node would have made for the volume."""
    by = f"local-volume-provisioner-{lab.node}"
    if form != "by name only":
        by += f"-{uid_of(lab)}"
    annotations = {BY: by}
    if form == "alpha affinity":
        # The API server asks for the field of today besides, whatever the annotation says.
        required = volume["spec"]["nodeAffinity"]["required"]
        alpha = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        annotations[ALPHA] = json.dumps(alpha)
    made = lab.remake(volume, annotations=annotations)
    assert FINALIZER not in made["metadata"]["finalizers"]
    assert NODE_LABEL not in made["metadata"].get("labels", {})
    return made


def served(lab: Lab, volume: Volume) -> Volume:
    """The same object once it has our marks, with everything upstream wrote as it was."""

    def is_ours(found: Volume | None) -> bool:
        return found is not None and {IDENTITY} <= set(found["metadata"]["annotations"])

    found = lab.until(lambda: lab.volume(name_of(volume)), is_ours)
    assert found is not None
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    assert FINALIZER in found["metadata"]["finalizers"]
    assert found["metadata"]["labels"][NODE_LABEL] == lab.node
    for key in (BY, ALPHA):
        was = volume["metadata"]["annotations"].get(key)
        assert found["metadata"]["annotations"].get(key) == was
    assert found["spec"] == volume["spec"]
    return found


def again(lab: Lab, cls: Class, name: str, before: Volume, node_uid: str) -> None:
    """It was cleaned, and is offered as an object of the new Node's."""
    fresh = lab.published(cls, name, unlike=before["metadata"]["uid"])
    by = fresh["metadata"]["annotations"][BY]
    assert by == f"local-volume-provisioner-{lab.node}-{node_uid}"
    assert name_of(fresh) == name_of(before)


def nobody_fails(lab: Lab, cls: Class) -> None:
    """Nothing is held, and no attempt to create what exists is made any more."""
    lab.settle()
    attempts = sum("exists already" in line for line in lab.log())
    lab.settle()
    assert sum("exists already" in line for line in lab.log()) == attempts
    lab.until(lambda: lab.held(cls), lambda held: held == {})


def until_released(lab: Lab, volume: Volume) -> None:
    lab.until(lambda: lab.phase(name_of(volume)), lambda phase: phase == "Released")


@pytest.mark.parametrize("form", FORMS)
def test_what_upstream_made_for_the_node_before_is_served_from_the_start(
    lab: Lab, form: str
) -> None:
    fs = lab.add_class("fs")
    places = {
        name: lab.mount(lab.disk(), fs.path(name))
        for name in ("empty", "full", "bound", "released")
    }
    lab.start()
    made = {name: lab.published(fs, name) for name in places}
    lab.stop()
    upstream = {name: as_upstream(lab, volume, form) for name, volume in made.items()}
    claim = lab.claim(upstream["bound"])
    upstream["released"] = lab.released(upstream["released"])
    upstream["bound"] = lab.volume(name_of(upstream["bound"])) or {}
    for name in ("full", "bound", "released"):
        (places[name] / "data").write_text("a tenant's or somebody's")

    delete_node(lab)
    new = create_node(lab)
    lab.start()
    for name in ("empty", "full", "bound"):
        served(lab, upstream[name])
    again(lab, fs, "released", upstream["released"], new)
    assert not (places["released"] / "data").exists()
    nobody_fails(lab, fs)
    assert len(lab.volumes()) == len(places)
    for name in ("full", "bound"):
        assert (places[name] / "data").exists()
    lab.delete_claim(claim)
    again(lab, fs, "bound", upstream["bound"], new)
    assert not (places["bound"] / "data").exists()


@pytest.mark.parametrize("form", [*FORMS, "our own"])
def test_the_node_is_made_anew_under_a_running_agent(lab: Lab, form: str) -> None:
    """Nothing is done while there is no Node; afterwards, all that was left to do."""
    fs, keep = lab.add_class("fs"), lab.add_class("keep", policy="Retain")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in ("offered", "bound", "left")}
    kept = lab.mount(lab.disk(), keep.path("kept"))
    lab.start()
    volumes = {name: lab.published(fs, name) for name in places}
    volumes["kept"] = lab.published(keep, "kept")
    if form != "our own":
        lab.stop()
        volumes = {name: as_upstream(lab, volume, form) for name, volume in volumes.items()}
        lab.start()
        volumes = {name: served(lab, volume) for name, volume in volumes.items()}
    claims = {name: lab.bound(volumes[name]) for name in ("bound", "left", "kept")}
    for place in (places["bound"], places["left"], kept):
        (place / "data").write_text("a tenant's")

    delete_node(lab)
    for name in ("left", "kept"):
        lab.delete_claim(claims[name])
        until_released(lab, volumes[name])
    assert "deletionTimestamp" not in (lab.volume(name_of(volumes["left"])) or {})["metadata"]
    assert (places["left"] / "data").exists()

    new = create_node(lab)
    again(lab, fs, "left", volumes["left"], new)
    assert not (places["left"] / "data").exists()
    nobody_fails(lab, fs)
    for name in ("offered", "bound", "kept"):
        lab.stays(volumes[name])
    assert (places["bound"] / "data").exists()
    assert (kept / "data").exists()
    lab.delete_claim(claims["bound"])
    again(lab, fs, "bound", volumes["bound"], new)
    assert not (places["bound"] / "data").exists()


def exchange(lab: Lab, place: Path, size: int | None = None) -> None:
    """Another disk, with somebody's data, where the volume's disk was mounted."""
    unmount(place)
    lab.mount(lab.disk(size=size), place)
    (place / "precious").write_text("somebody else's")


def test_a_disk_that_came_with_the_new_node_is_not_the_old_volume(lab: Lab) -> None:
    """A machine that was replaced has the old one's name and paths, and none of its disks."""
    fs = lab.add_class("fs")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in ("bound", "left", "upstreams")}
    lab.start()
    volumes = {name: lab.published(fs, name) for name in places}
    claims = {name: lab.bound(volumes[name]) for name in ("bound", "left")}
    lab.stop()
    volumes["upstreams"] = as_upstream(lab, volumes["upstreams"], "with the UID")
    delete_node(lab)
    lab.delete_claim(claims["left"])
    for name in ("bound", "left"):
        exchange(lab, places[name])
    # Upstream writes down no identity: the size is all there is to tell by.
    exchange(lab, places["upstreams"], size=80 << 20)
    create_node(lab)
    lab.start()
    lab.event(name_of(volumes["bound"]), "VolumeReplaced", "its uuid was")
    lab.event(name_of(volumes["left"]), "VolumeFailedDelete", "not the volume that was published")
    lab.until(lambda: lab.held(fs), lambda held: held.get("name-taken") == 1)
    # It is counted before it is said.
    taken = f"{name_of(volumes['upstreams'])} has its name and path, but"
    lab.until(lambda: lab.logged(taken), bool)
    lab.delete_claim(claims["bound"])
    lab.event(name_of(volumes["bound"]), "VolumeFailedDelete", "not the volume that was published")
    lab.settle()
    for name, place in places.items():
        assert (place / "precious").exists()
        lab.stays(volumes[name])
    assert (lab.volume(name_of(volumes["upstreams"])) or {}) == volumes["upstreams"]


def test_what_the_controller_labelled_and_is_another_disk_says_so(lab: Lab) -> None:
    """Adopted by its label alone, while nobody could see the disk."""
    fs = lab.add_class("fs")
    place = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    made = lab.published(fs, "one")
    lab.stop()
    volume = lab.released(as_upstream(lab, made, "with the UID"))
    delete_node(lab)
    exchange(lab, place, size=80 << 20)
    lab.patch(name_of(volume), {"metadata": {"labels": {NODE_LABEL: lab.node}}})
    create_node(lab)
    lab.start()
    said = lab.event(name_of(volume), "VolumeFailedDelete", "not the volume that was published")
    assert "published with" in said["message"]
    lab.stays(volume)
    assert (place / "precious").exists()


def test_labelled_volumes_are_served_once_their_disk_is_there(lab: Lab) -> None:
    """The cluster's controller labels what upstream made; the identity comes with the disk."""
    fs = lab.add_class("fs")
    disks = {name: lab.disk() for name in ("bound", "left")}
    places = {name: lab.mount(disk, fs.path(name)) for name, disk in disks.items()}
    lab.start()
    volumes = {name: lab.published(fs, name) for name in places}
    lab.stop()
    volumes = {n: as_upstream(lab, volume, "with the UID") for n, volume in volumes.items()}
    lab.claim(volumes["bound"])
    volumes["left"] = lab.released(volumes["left"])
    for name, place in places.items():
        (place / "data").write_text("a tenant's")
        unmount(place)
        label = {"metadata": {"labels": {NODE_LABEL: lab.node}}}
        volumes[name] = lab.patch(name_of(volumes[name]), label)
    delete_node(lab)
    new = create_node(lab)
    lab.start()
    lab.event(name_of(volumes["left"]), "VolumeFailedDelete", "not a valid mount point")
    for name, disk in disks.items():
        lab.stays(volumes[name])
        lab.mount(disk, places[name])
    served(lab, volumes["bound"])
    again(lab, fs, "left", volumes["left"], new)
    assert not (places["left"] / "data").exists()
    assert (places["bound"] / "data").exists()


def test_a_new_hostname_is_another_place(lab: Lab) -> None:
    """The affinity of the old volumes names a host that this Node is not."""
    fs = lab.add_class("fs")
    place = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    volume = lab.released(volume)
    (place / "data").write_text("a tenant's")
    delete_node(lab)
    lab.plane.create_node(lab.node, {"kubernetes.io/hostname": f"{lab.node}-other"})
    lab.start()
    lab.event(name_of(volume), "VolumeFailedDelete", "its node affinity does not name this node")
    lab.stays(volume)
    assert (place / "data").exists()
    assert len(lab.volumes()) == 1


def is_going(lab: Lab, volume: Volume) -> bool:
    found = lab.volume(name_of(volume))
    return bool(found and "deletionTimestamp" in found["metadata"])


def until_going(lab: Lab, volume: Volume) -> None:
    lab.until(lambda: is_going(lab, volume), bool)


@pytest.mark.parametrize("running", [True, False])
def test_owned_volumes_are_cleaned_before_they_go_with_their_node(lab: Lab, running: bool) -> None:
    """setPVOwnerRef: the garbage collector deletes what the Node owned; our finalizer keeps it."""
    lab.settings["setPVOwnerRef"] = True
    fs, keep = lab.add_class("fs"), lab.add_class("keep", policy="Retain")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in ("offered", "bound", "left")}
    places["kept"] = lab.mount(lab.disk(), keep.path("kept"))
    lab.start()
    volumes = {name: lab.published(fs, name) for name in ("offered", "bound", "left")}
    volumes["kept"] = lab.published(keep, "kept")
    claims = {name: lab.bound(volumes[name]) for name in ("bound", "left", "kept")}
    for name in claims:
        (places[name] / "data").write_text("a tenant's")
    if not running:
        lab.stop()
    # Until the agent has heard that its Node is gone, it lets go what no claim ever held.
    pause(lab.plane, "kube-controller-manager")
    try:
        delete_node(lab)
    finally:
        lab.plane.resume("kube-controller-manager")
    for volume in volumes.values():
        until_going(lab, volume)
    for name in ("left", "kept"):
        lab.delete_claim(claims[name])
    # With no Node nothing is cleaned, and nothing goes.
    for volume in volumes.values():
        assert is_going(lab, volume)
    for name in claims:
        assert (places[name] / "data").exists()

    new = create_node(lab)
    if not running:
        lab.start()
    for name in ("offered", "left"):
        again(lab, fs, name, volumes[name], new)
    assert not (places["left"] / "data").exists()
    # Retain: the object goes with its owner, the data stays and is offered to nobody.
    lab.until(lambda: lab.volume(name_of(volumes["kept"])), lambda found: found is None)
    lab.until(lambda: lab.held(keep), lambda held: held == {"recorded": 1})
    assert (places["kept"] / "data").exists()
    # What a claim holds waits for it, with its data.
    lab.settle()
    assert is_going(lab, volumes["bound"])
    assert (places["bound"] / "data").exists()
    lab.delete_claim(claims["bound"])
    again(lab, fs, "bound", volumes["bound"], new)
    assert not (places["bound"] / "data").exists()


def test_what_nobody_had_adopted_goes_with_its_node_and_its_data_stays(lab: Lab) -> None:
    """Upstream's objects have no finalizer of ours: gone uncleaned, so never offered as clean."""
    # All is asked anew at each resync: it must last until all is answered, however slow that is.
    lab.settings |= {"setPVOwnerRef": True, "minResyncPeriod": "5s"}
    fs = lab.add_class("fs")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in ("bound", "left")}
    lab.start()
    made = {name: lab.published(fs, name) for name in places}
    lab.stop()
    owner = {"apiVersion": "v1", "kind": "Node", "name": lab.node, "uid": uid_of(lab)}
    by = {BY: f"local-volume-provisioner-{lab.node}-{uid_of(lab)}"}
    volumes = {
        name: lab.remake(volume, annotations=by, ownerReferences=[owner])
        for name, volume in made.items()
    }
    claim = lab.claim(volumes["bound"])
    lab.released(volumes["left"])
    for place in places.values():
        (place / "data").write_text("a tenant's")
    delete_node(lab)
    lab.until(lambda: lab.volume(name_of(volumes["left"])), lambda found: found is None)
    until_going(lab, volumes["bound"])
    create_node(lab)
    lab.start()
    lab.until(lambda: lab.held(fs), lambda held: sum(held.values()) == 2)
    assert is_going(lab, volumes["bound"])
    lab.delete_claim(claim)
    lab.until(lambda: lab.volume(name_of(volumes["bound"])), lambda found: found is None)
    lab.until(lambda: lab.held(fs), lambda held: held == {"not-empty": 2})
    for place in places.values():
        assert (place / "data").exists()
    assert lab.volumes() == []
