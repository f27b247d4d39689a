"""Taking over from upstream, names that collide, and nodes that were made anew."""

from typing import Any

import pytest

from localvolume.volumes.names import longer_volume_name, volume_name
from tests.cluster.support_agent import CLAIMED, GENERATION, IDENTITY, Lab, Volume
from tests.suite.api import MERGE, VOLUMES
from tests.suite.names import FINALIZER, NODE_LABEL

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def but_for_our_marks(volume: Volume) -> dict[str, Any]:
    metadata = dict(volume["metadata"])
    for key in ("resourceVersion", "managedFields"):
        metadata.pop(key, None)
    metadata["finalizers"] = [f for f in metadata["finalizers"] if f != FINALIZER]
    metadata["labels"] = {k: v for k, v in metadata.get("labels", {}).items() if k != NODE_LABEL}
    marks = (IDENTITY, CLAIMED, GENERATION)
    metadata["annotations"] = {k: v for k, v in metadata["annotations"].items() if k not in marks}
    return {"metadata": metadata, "spec": volume["spec"], "status": volume["status"]}


def marked(lab: Lab, name: str, wanted: set[str]) -> Volume:
    """The object once it has all these annotations."""

    def is_marked(volume: Volume | None) -> bool:
        return volume is not None and wanted <= set(volume["metadata"]["annotations"])

    found = lab.until(lambda: lab.volume(name), is_marked)
    assert found is not None
    return found


def test_what_upstream_made_is_taken_over_with_its_data(lab: Lab) -> None:
    """Nothing of an object changes but for our marks, in whatever state it is."""
    lab.settings |= {"labelsForPV": {"team": "storage"}, "setPVOwnerRef": True}
    fs, keep = lab.add_class("fs"), lab.add_class("keep", policy="Retain")
    names = ("empty", "full", "bound", "released")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in names}
    places["kept"] = lab.mount(lab.disk(), keep.path("kept"))
    lab.start()
    made = {name: lab.published(fs, name) for name in names}
    made["kept"] = lab.published(keep, "kept")
    lab.stop()
    upstream = {name: lab.remake(volume) for name, volume in made.items()}
    for volume in upstream.values():
        assert FINALIZER not in volume["metadata"]["finalizers"]
        assert IDENTITY not in volume["metadata"]["annotations"]
    claim = lab.claim(upstream["bound"])
    for name in ("released", "kept"):
        upstream[name] = lab.released(upstream[name])
    for name in ("full", "bound", "released", "kept"):
        (places[name] / "data").write_text("a tenant's or somebody's")
    before = {name: lab.volume(v["metadata"]["name"]) for name, v in upstream.items()}

    lab.start()
    for name in ("empty", "full", "bound", "kept"):
        object_name = made[name]["metadata"]["name"]
        wanted = {IDENTITY, CLAIMED} if name == "bound" else {IDENTITY}
        after = marked(lab, object_name, wanted)
        old = before[name]
        assert old is not None
        assert but_for_our_marks(after) == but_for_our_marks(old)
        assert after["metadata"]["labels"][NODE_LABEL] == lab.node
        assert FINALIZER in after["metadata"]["finalizers"]
        same = made[name]["metadata"]["annotations"][IDENTITY]
        assert after["metadata"]["annotations"][IDENTITY] == same
    # A Released one with Delete is cleaned first of all.
    lab.published(fs, "released", unlike=upstream["released"]["metadata"]["uid"])
    assert not (places["released"] / "data").exists()
    lab.settle()
    for name in ("full", "bound", "kept"):
        assert (places[name] / "data").exists()
    # And its life goes on with us.
    lab.delete_claim(claim)
    lab.published(fs, "bound", unlike=upstream["bound"]["metadata"]["uid"])
    assert not (places["bound"] / "data").exists()


def foreign(lab: Lab, name: str, path: str, **changes: Any) -> Volume:
    """An object of somebody else, made by hand."""
    node = changes.pop("node", lab.node)
    term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    lab.objects.make(
        VOLUMES,
        {
            "metadata": {
                "name": name,
                "annotations": {
                    "pv.kubernetes.io/provisioned-by": changes.pop(
                        "by", f"local-volume-provisioner-{node}"
                    )
                },
            },
            "spec": {
                "storageClassName": lab.classes["fs"].name,
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "volumeMode": "Filesystem",
                "local": {"path": path},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
                **changes,
            },
        },
    )
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Available")
    found = lab.volume(name)
    assert found is not None
    return found


def test_objects_of_others_are_left_alone(lab: Lab) -> None:
    """One that has our path and name is not taken over unless it is ours; one that has only our
    name gives way: 32 bits collide sooner or later, and upstream's loser fails forever."""
    # All is asked anew at each resync: it must last until all is answered, however slow that is.
    lab.settings["minResyncPeriod"] = "5s"
    fs = lab.add_class("fs")
    names = ("collides", "elsewhere", "by-others", "other-size", "both-taken")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in names}
    short = {name: volume_name(name, lab.node, fs.name) for name in names}
    long_name = longer_volume_name("collides", lab.node, fs.name)
    theirs = [
        foreign(lab, short["collides"], "/mnt/quite/another"),
        foreign(lab, short["elsewhere"], fs.host_path("elsewhere"), node="another-node"),
        foreign(lab, short["by-others"], fs.host_path("by-others"), by="somebody"),
        foreign(lab, short["other-size"], fs.host_path("other-size")),
        foreign(lab, short["both-taken"], "/mnt/one"),
        foreign(lab, longer_volume_name("both-taken", lab.node, fs.name), "/mnt/two"),
    ]
    (places["by-others"] / "data").write_text("theirs")
    lab.start()
    assert lab.published(fs, "collides")["metadata"]["name"] == long_name
    # One whose other name is taken as well gets one that nobody could take.
    spare = lab.published(fs, "both-taken")["metadata"]["name"]
    assert spare not in {volume["metadata"]["name"] for volume in theirs}
    lab.until(lambda: lab.held(fs), lambda held: held == {"name-taken": 3})
    lab.settle()
    for volume in theirs:
        assert lab.volume(volume["metadata"]["name"]) == volume
    assert len(lab.volumes()) == len(theirs) + 2
    # The name is free again: what has the longer one keeps it, and no twin appears.
    lab.remove(theirs[0])
    lab.settle()
    lab.published(fs, "collides")
    # Where it was in the way, the volume comes at the next resync, which may be any moment: that
    # the name was free in between need not be seen.
    lab.patch(short["elsewhere"], {"metadata": {"finalizers": None}})
    lab.plane.request("DELETE", f"{VOLUMES}/{short['elsewhere']}")
    again = lab.published(fs, "elsewhere", unlike=theirs[1]["metadata"]["uid"])
    assert again["metadata"]["name"] == short["elsewhere"]


def test_a_node_made_anew_keeps_its_volumes(lab: Lab) -> None:
    """Upstream's name of itself holds the node's UID: it forgets all volumes of the old one."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.stop()
    path = f"/api/v1/nodes/{lab.node}"
    old = lab.plane.request("GET", path)["metadata"]["uid"]
    lab.plane.request("DELETE", path)
    new = lab.plane.create_node(lab.node)["metadata"]["uid"]
    assert old != new
    lab.start()
    lab.stays(volume)
    assert (where / "data").exists()
    lab.delete_claim(claim)
    again = lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    by = again["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"]
    assert by == f"local-volume-provisioner-{lab.node}-{new}"


def test_without_its_node_nothing_is_done(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    path = f"/api/v1/nodes/{lab.node}"
    lab.plane.request("DELETE", path)
    lab.start(wait=False)
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 500 and "no Node" in got[1])
    lab.plane.create_node(lab.node)
    label = {"metadata": {"labels": {"kubernetes.io/hostname": None}}}
    lab.plane.request("PATCH", path, label, content_type=MERGE)
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 500 and "has no label" in got[1])
    label["metadata"]["labels"]["kubernetes.io/hostname"] = lab.node  # type: ignore[assignment]
    lab.plane.request("PATCH", path, label, content_type=MERGE)
    lab.published(fs, "one")
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 200)
