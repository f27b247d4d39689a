"""Every cleaning belongs to one object: whatever happens to it meanwhile, nobody else pays."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.support_agent import Class, Lab, Volume
from tests.faults.support_proxy import Order, proxy_for
from tests.suite.api import VOLUMES
from tests.suite.names import FINALIZER

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

RUNNING = "local_volume_provisioner_proctable_running"


class Gate:
    """An administrator's cleaner that counts its runs and waits for permission to end."""

    def __init__(self, directory: Path) -> None:
        self._go, self._runs = directory / "go", directory / "runs"
        self.command = [
            "/bin/sh",
            "-c",
            f'echo run >> "{self._runs}"; while [ ! -e "{self._go}" ]; do sleep 0.05; done',
        ]

    def runs(self) -> int:
        return len(self._runs.read_text().split()) if self._runs.exists() else 0

    def open(self) -> None:
        self._go.touch()


def gated(lab: Lab) -> tuple[Gate, Class, Volume]:
    """A device published, claimed and released, its cleaning waiting at the gate."""
    gate = Gate(lab.directory)
    block = lab.add_class("block", volumeMode="Block", blockCleanerCommand=gate.command)
    lab.link(lab.raw_disk(), block.path("one"))
    lab.start()
    volume = lab.published(block, "one")
    lab.delete_claim(lab.bound(volume))
    lab.until(gate.runs, lambda runs: runs == 1)
    return gate, block, volume


def test_a_volume_taken_back_before_its_deletion_is_asked_for(lab: Lab, tmp_path: Path) -> None:
    """Released when it was looked at, bound again when we act: the deletion must not go through."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    # Each of them: one that was held for too long is given up, and asked for again.
    deletion = Order("hold", ("delete",))
    with proxy_for(lab.plane, tmp_path) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        proxy.orders.append(deletion)
        lab.start()
        volume = lab.published(fs, "one")
        first = lab.bound(volume)
        (where / "precious").write_text("tenant")
        lab.delete_claim(first)
        lab.until(lambda: deletion.met, bool)
        lab.patch(volume["metadata"]["name"], {"spec": {"claimRef": None}})
        taken = lab.claim(volume)
        deletion.release()
        lab.until(lambda: deletion.answered, bool)
        lab.settle()
        found = lab.stays(volume)
        lab.stop()
    assert found["status"]["phase"] == "Bound"
    assert found["spec"]["claimRef"]["name"] == taken
    assert (where / "precious").exists()


def test_every_release_is_cleaned_anew(lab: Lab) -> None:
    """Upstream remembers by name that a volume is clean, and lets the next release through."""
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    uids = [volume["metadata"]["uid"]]
    for turn in range(3):
        claim = lab.bound(volume)
        (where / "secret").write_text(f"tenant {turn}")
        lab.delete_claim(claim)
        volume = lab.published(fs, "one", unlike=uids[-1])
        uids.append(volume["metadata"]["uid"])
        assert not (where / "secret").exists()
    events = lab.until(
        lambda: [
            e for e in lab.events(volume["metadata"]["name"]) if e["reason"] == "VolumeCleaned"
        ],
        lambda found: len(found) == 3,
    )
    assert sorted(e["involvedObject"]["uid"] for e in events) == sorted(uids[:3])


def test_taken_back_while_it_is_cleaned(lab: Lab) -> None:
    """The claimRef is emptied in the midst of cleaning: what is being deleted binds nobody."""
    gate, block, volume = gated(lab)
    name = volume["metadata"]["name"]
    lab.patch(name, {"spec": {"claimRef": None}})
    lab.settle()
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    assert "deletionTimestamp" in found["metadata"]
    gate.open()
    lab.published(block, "one", unlike=volume["metadata"]["uid"])
    assert gate.runs() == 1


def test_the_object_is_removed_by_force_while_its_volume_is_cleaned(lab: Lab) -> None:
    """Nothing is published on a disk that a cleaner is still at work on."""
    gate, block, volume = gated(lab)
    lab.patch(volume["metadata"]["name"], {"metadata": {"finalizers": None}})
    lab.until(lambda: lab.volumes_at(block, "one"), lambda found: not found)
    for _ in range(3):
        lab.settle()
    assert lab.volumes_at(block, "one") == []
    assert lab.metric(RUNNING) == 1
    gate.open()
    lab.published(block, "one")
    assert gate.runs() == 1


def test_another_object_gets_its_name_while_it_is_cleaned(lab: Lab) -> None:
    """Restored from a backup, say, with all our marks: the end of the cleaning is not about it."""
    gate, block, volume = gated(lab)
    name = volume["metadata"]["name"]
    lab.patch(name, {"metadata": {"finalizers": None}})
    lab.until(lambda: lab.volume(name), lambda found: found is None)
    meta = {key: volume["metadata"][key] for key in ("name", "labels", "annotations")}
    # Bound from the first: an object that nobody claims would be taken back, for by its record
    # the volume is still the first claim's.
    asked = lab.ask(volume)["metadata"]
    holder = {"namespace": asked["namespace"], "name": asked["name"], "uid": asked["uid"]}
    restored = lab.objects.make(
        VOLUMES,
        {
            "metadata": {**meta, "finalizers": [FINALIZER]},
            "spec": {**volume["spec"], "claimRef": holder},
        },
    )
    lab.until(lambda: lab.phase(name), lambda phase: phase == "Bound")
    gate.open()
    lab.until(lambda: lab.metric(RUNNING), lambda running: running == 0)
    for _ in range(2):
        found = lab.stays(restored)
    assert found["status"]["phase"] == "Bound"
    # Its finalizer is its own: taken away, it would have come back by adoption.
    assert FINALIZER in found["metadata"]["finalizers"]
    assert not lab.logged("adopted")
    assert gate.runs() == 1
    assert len(lab.volumes_at(block, "one")) == 1


def test_a_write_that_fails_after_the_cleaning_repeats_only_itself(lab: Lab) -> None:
    """Upstream cleans the whole disk again when the deletion of its object fails."""
    gate, block, volume = gated(lab)
    name = volume["metadata"]["name"]
    keeps = f"has(object.metadata.finalizers) && '{FINALIZER}' in object.metadata.finalizers"
    policy = lab.forbid("UPDATE", keeps)
    removal = {"metadata": {"finalizers": None}}
    lab.until(lambda: lab.refuses("PATCH", f"{VOLUMES}/{name}", removal), bool)
    gate.open()
    lab.until(
        lambda: sum("is clean; its finalizer stays" in line for line in lab.log()), lambda n: n > 1
    )
    lab.settle()
    assert lab.volume(name) is not None
    lab.plane.request("DELETE", policy)
    lab.published(block, "one", unlike=volume["metadata"]["uid"])
    assert gate.runs() == 1


def test_cleaning_begins_when_nobody_can_bind_the_object_any_more(
    lab: Lab, before_cleaning: list[Callable[[], object]]
) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    seen: list[Volume | None] = []
    before_cleaning.append(lambda: seen.append(lab.volume(volume["metadata"]["name"])))
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert [bool(found and found["metadata"].get("deletionTimestamp")) for found in seen] == [True]
