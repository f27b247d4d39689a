"""S4: what a PersistentVolume of somebody else names is theirs, and is not offered beside it."""

from pathlib import Path
from typing import Any

import pytest

from localvolume.cli.main import main
from tests.cluster.support_agent import Lab, Volume
from tests.suite.api import VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def by_hand(lab: Lab, kind: str, path: str, *, host_path: bool = False) -> Volume:
    """A PersistentVolume as an administrator makes it: no label, no name of ours."""
    spec: dict[str, Any] = {
        "storageClassName": f"{lab.unique}-by-hand",
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "volumeMode": "Filesystem",
        "persistentVolumeReclaimPolicy": "Retain",
    }
    if host_path:
        spec["hostPath"] = {"path": path}
    else:
        term = {"key": "kubernetes.io/hostname", "operator": "In", "values": [lab.node]}
        spec["local"] = {"path": path}
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    metadata = {"name": f"{lab.unique}-{kind}"}
    return lab.objects.make(VOLUMES, {"metadata": metadata, "spec": spec})


def test_what_a_claim_has_by_another_object_is_not_offered_again(lab: Lab) -> None:
    """Published beside it, both were bound, and the first tenant's file was deleted."""
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    taken = by_hand(lab, "exact", fs.host_path("one"))
    lab.claim(taken)
    lab.start()
    name = taken["metadata"]["name"]
    lab.until(lambda: lab.held(fs), lambda held: held == {"duplicate": 1})
    said = f"the PersistentVolume {name} names {fs.host_path('one')}"
    lab.until(lambda: lab.logged(said), bool)
    (path / "file").write_text("the first tenant's")
    lab.settle()
    assert lab.volumes() == []


def test_each_way_to_name_it_counts_until_the_object_is_gone(
    lab: Lab, capsys: pytest.CaptureFixture[str]
) -> None:
    fs = lab.add_class("fs")
    block = lab.add_class("block", volumeMode="Block")
    for entry in ("within", "unpinned", "free"):
        lab.mount(lab.disk(), fs.path(entry))
    device = lab.raw_disk()
    lab.link(device, block.path("raw"))
    made = [
        by_hand(lab, "within", fs.host_path("within") + "/some/where"),
        by_hand(lab, "unpinned", fs.host_path("unpinned") + "/", host_path=True),
        by_hand(lab, "raw", device.path),
        # Around every volume of every node: not what is offered here.
        by_hand(lab, "around", str(Path(fs.host_dir).parent), host_path=True),
    ]
    lab.start()
    lab.published(fs, "free")
    lab.until(lambda: lab.held(fs), lambda held: held == {"duplicate": 2})
    lab.until(lambda: lab.held(block), lambda held: held == {"duplicate": 1})
    words = ["--config", str(lab.config_directory), "--node", lab.node]
    assert main(["plan", *words, "--kubeconfig", str(lab.plane.kubeconfig)]) == 0
    assert capsys.readouterr().out.count(": it may be somebody's") == 3
    assert len(lab.volumes()) == 1
    for volume in made:
        lab.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
    lab.stop()
    lab.start()
    for entry in ("within", "unpinned"):
        lab.published(fs, entry)
    lab.published(block, "raw")


def test_what_surrounds_it_on_this_node_counts_too(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    by_hand(lab, "around", fs.host_dir)
    lab.start()
    lab.until(lambda: lab.held(fs), lambda held: held == {"duplicate": 1})
    lab.settle()
    assert lab.volumes() == []
