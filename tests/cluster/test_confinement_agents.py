"""Two agents of different nodes do all their work, and one's token is worth nothing on the other's.

They are processes as the DaemonSet runs them, with the rights of deploy/install.yaml. What the API
server says to the thief is printed.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.volumes.marks import POOLS_ANNOTATION
from tests.cluster.support_agent import Class
from tests.cluster.support_dynamic import PROVISIONER, Claim, DynamicLab, Volume
from tests.cluster.support_objects import Objects
from tests.cluster.support_rights import Rights, refusals, show
from tests.suite.api import CAPACITIES, CLAIMS, CLASSES, VOLUMES
from tests.suite.names import NODE_LABEL

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

Object = dict[str, Any]


class Both(DynamicLab):
    """A node with prepared volumes and a pool; `begin` starts its agent."""

    def begin(self, rights: Rights) -> None:
        self.settings["storageClassMap"] = {}
        self.pool()
        self.prepared: Class = self.add_class("fs")
        self.made_class = self.storage_class()
        self.mount(self.disk(), self.prepared.path("one"))
        rights.confine(self)
        self.start_process()

    def static(self) -> Volume:
        """The prepared volume, offered."""
        self.class_names.add(self.prepared.name)
        return self.published(self.prepared, "one")

    def room(self) -> Object:
        """What is published of the pool for the node's own class."""
        own = f"{CAPACITIES}?labelSelector={NODE_LABEL}={self.node}"

        def published() -> list[Object]:
            items = self.plane.request("GET", own)["items"]
            return [one for one in items if one["storageClassName"] == self.made_class]

        return self.until(published, bool)[0]

    def is_there(self, path: str) -> tuple[object, ...]:
        """What of an object must not change under the agent's own hands. It says itself how full
        its pools are, and may do so only now."""
        meta = self.plane.request("GET", path)["metadata"]
        meta.get("annotations", {}).pop(POOLS_ANNOTATION, None)
        keys = ("uid", "labels", "finalizers", "deletionTimestamp", "annotations")
        return tuple(meta.get(key) for key in keys)

    def lives(self) -> tuple[Volume, Claim, Volume]:
        """A round of both kinds of volumes; one of each is there in the end."""
        first = self.static()
        name = self.claim_for(first)
        (self.prepared.path("one") / "data").write_text("a tenant's")
        self.delete_claim(name)
        offered = self.published(self.prepared, "one", unlike=first["metadata"]["uid"])
        assert not (self.prepared.path("one") / "data").exists()
        gone = self.claim(self.made_class)
        volume = self.made(gone)
        self.delete(gone)
        self.gone(volume)
        claim = self.claim(self.made_class)
        made = self.made(claim)
        # Its volume is said to be bound before it is itself.
        self.until(
            lambda: self.read_claim(claim),
            lambda found: found and found["status"]["phase"] == "Bound",
        )
        return offered, claim, made

    def claim_for(self, volume: Volume) -> str:
        """A claim that the volume is bound to, and that the agent has taken note of."""
        name = f"{self.unique}-static"
        self.objects.make(
            CLAIMS,
            {
                "metadata": {"name": name},
                "spec": {
                    "storageClassName": volume["spec"]["storageClassName"],
                    "accessModes": volume["spec"]["accessModes"],
                    "volumeName": volume["metadata"]["name"],
                    "resources": {"requests": {"storage": "1Ki"}},
                },
            },
        )
        self.until(
            lambda: self.volume(volume["metadata"]["name"]),
            lambda found: found and "localvolume.dev/claimed" in found["metadata"]["annotations"],
        )
        return name


@pytest.fixture
def two(objects: Objects, unique: str, tmp_path: Path) -> Iterator[tuple[Both, Both]]:
    for name in "ab":
        (tmp_path / name).mkdir()
    with (
        Both(objects, f"{unique}a", tmp_path / "a") as a,
        Both(objects, f"{unique}b", tmp_path / "b") as b,
    ):
        for lab in (a, b):
            lab.make_node()
        yield a, b
        # Both, before the disks of either go: an agent looks at all block devices.
        for lab in (a, b):
            lab.stop()


def test_two_agents(
    two: tuple[Both, Both], rights: Rights, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = two
    for lab in two:
        lab.begin(rights)
    things = {lab: (*lab.lives(), lab.room()) for lab in two}
    for lab in two:
        assert refusals(lab) == []

    offered, claim, made, room = things[a]
    paths = [f"{VOLUMES}/{one['metadata']['name']}" for one in (offered, made)]
    paths.append(f"{CLAIMS}/{claim['metadata']['name']}")
    paths.append(f"{CAPACITIES}/{room['metadata']['name']}")
    before = [a.is_there(path) for path in paths]
    thief = rights.caller(b.node)
    mark = {"metadata": {"annotations": {"example.com/tried": "yes"}}}
    steal = {"metadata": {"labels": {NODE_LABEL: b.node}}}
    let_go = {"metadata": {"finalizers": None}}
    another = {
        "metadata": {"name": f"{b.unique}-another", "labels": {NODE_LABEL: a.node}},
        "spec": {key: value for key, value in offered["spec"].items() if key != "claimRef"},
    }
    rows: list[tuple[str, str, str, Any]] = [("create", "POST", VOLUMES, another)]
    rows += [("change", "PATCH", path, mark) for path in paths]
    rows += [("take", "PATCH", path, steal) for path in paths]
    rows += [("let go", "PATCH", path, let_go) for path in paths[:3]]
    rows += [("say it has grown", "PATCH", f"{paths[2]}/status", {"status": {"capacity": {}}})]
    rows += [("delete", "DELETE", path, None) for path in paths]
    said = [
        (f"{what}: {method} {path}", thief.refusal(method, path, body, really=True))
        for what, method, path, body in rows
    ]
    show(capsys, f"What the token of {b.node} is refused on {a.node}:", said)
    for tried, answer in said:
        # It has no right to delete claims, of whatever node.
        by_role = tried.startswith("delete") and CLAIMS in tried
        assert ("cannot delete" if by_role else f"the agent of {b.node} may") in answer, tried
    assert [a.is_there(path) for path in paths] == before
    # And it is B's own all the same.
    assert thief.refusal("PATCH", f"{VOLUMES}/{things[b][0]['metadata']['name']}", mark) == ""


def test_a_class_that_the_policies_were_not_told_of(dynamic: DynamicLab, rights: Rights) -> None:
    """Whoever waits for the volume reads what is to be done."""
    name = f"untold-{dynamic.unique}"
    dynamic.objects.make(CLASSES, {"metadata": {"name": name}, "provisioner": PROVISIONER})
    dynamic.class_names.add(name)
    dynamic.pool()
    rights.confine(dynamic)
    dynamic.start()
    claim = dynamic.claim(name)
    said = dynamic.claim_event(claim, "ProvisioningFailed", f"of the class {name}")
    assert "confinement.dynamicClasses" in said["message"]
    assert dynamic.volume_of(claim) is None
