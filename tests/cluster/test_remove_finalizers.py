"""`localvolume remove-finalizers`: PersistentVolumes go on without us, and none goes too early."""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.cli import remove_finalizers
from localvolume.cli.main import main
from localvolume.kube.client import JsonPatch
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.manifest import (
    NodeFacts,
    PublishingOptions,
    VolumeDescription,
    persistent_volume,
)
from localvolume.volumes.patches import without_finalizer
from tests.cluster.support_accounts import account, allow, may, rule
from tests.cluster.support_agent import Lab, Volume
from tests.cluster.support_groups import GROUP_CONTENTS
from tests.cluster.support_snapshots import CONTENTS, kinds_of_snapshots, read
from tests.suite.api import VOLUMES
from tests.suite.names import CSI, FINALIZER, NODE_LABEL, PROTECTION

IDENTITY = {"kind": "filesystem", "uuid": "0b0e"}


class Said:
    """What the command answered."""

    def __init__(self, status: int, out: str, err: str) -> None:
        self.status, self.out, self.err = status, out, err

    def row(self, volume: Volume) -> str:
        """The one line about a volume, without its name."""
        name = volume["metadata"]["name"]
        (line,) = [line for line in self.out.splitlines() if line.startswith(f"{name} ")]
        return line.removeprefix(name)


Ask = Callable[..., Said]


@pytest.fixture
def ask(lab: Lab, capsys: pytest.CaptureFixture[str]) -> Ask:
    def run(*words: str, kubeconfig: Path = lab.plane.kubeconfig, **how: Any) -> Said:
        capsys.readouterr()
        parser = argparse.ArgumentParser()
        remove_finalizers.add_arguments(parser)
        arguments = parser.parse_args(["--kubeconfig", str(kubeconfig), *words])
        # Where no agent runs, there is nothing to wait for.
        status = remove_finalizers.run(arguments, **{"look_again": 0.1, **how})
        return Said(status, *capsys.readouterr())

    return run


def offered(lab: Lab, entry: str, *, node: str = "", policy: str = "Delete") -> Volume:
    """A PersistentVolume as our agent makes it, without a disk behind it."""
    node = node or lab.node
    cls = lab.classes.get("fs") or lab.add_class("fs")
    description = VolumeDescription(
        name=f"{lab.unique}-{entry}",
        host_path=cls.host_path(entry),
        class_name=cls.name,
        volume_mode="Filesystem",
        size_bytes=64 << 20,
        identity=IDENTITY,
        reclaim_policy=policy,
    )
    facts = NodeFacts(node, "0b0e-4711", node, {})
    made = lab.objects.make(VOLUMES, persistent_volume(description, facts, PublishingOptions()))
    lab.until(lambda: lab.phase(made["metadata"]["name"]), lambda phase: phase == "Available")
    return now(lab, made)


def now(lab: Lab, volume: Volume) -> Volume:
    found = lab.volume(volume["metadata"]["name"])
    assert found is not None
    return found


def delete(lab: Lab, volume: Volume) -> None:
    lab.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")


def is_gone(lab: Lab, volume: Volume) -> None:
    lab.until(lambda: lab.volume(volume["metadata"]["name"]), lambda found: found is None)


def is_unprotected(lab: Lab, volume: Volume) -> None:
    """Wait until kube-controller-manager has taken its finalizer off what is being deleted."""
    lab.until(
        lambda: now(lab, volume)["metadata"]["finalizers"], lambda found: PROTECTION not in found
    )


def but_for_the_finalizer(volume: Volume) -> dict[str, Any]:
    metadata = dict(volume["metadata"])
    for key in ("resourceVersion", "managedFields"):
        metadata.pop(key, None)
    metadata["finalizers"] = [f for f in metadata["finalizers"] if f != FINALIZER]
    return {**volume, "metadata": metadata}


def with_finalizers(lab: Lab, volume: Volume, finalizers: list[str]) -> None:
    lab.patch(volume["metadata"]["name"], {"metadata": {"finalizers": finalizers}})


def is_finalized(volume: Volume) -> bool:
    return FINALIZER in volume["metadata"].get("finalizers", [])


def test_a_dry_run_says_it_and_changes_nothing(lab: Lab, ask: Ask) -> None:
    going = offered(lab, "going")
    lab.claim(going)
    delete(lab, going)
    volumes = [offered(lab, "one"), offered(lab, "two"), now(lab, going)]
    said = ask("--node", lab.node, "--dry-run")
    assert said.status == 1
    for volume in volumes:
        assert now(lab, volume) == volume
    assert said.row(volumes[0]).split() == [lab.node, "Available", "would", "remove"]
    assert said.row(volumes[2]).split()[:3] == [lab.node, "Terminating", "kept"]
    assert said.out.splitlines()[-1] == "1 kept, 2 would remove"


def test_nothing_but_the_finalizer_goes(lab: Lab, ask: Ask) -> None:
    """What upstream knows its volumes by is as it was: name, annotation, affinity."""
    volumes = {name: offered(lab, name) for name in ("offered", "bound", "released", "kept")}
    claim = lab.claim(volumes["bound"])
    lab.released(volumes["released"])
    volumes["retained"] = offered(lab, "retained", policy="Retain")
    lab.released(volumes["retained"])
    others = ["example.com/mine", PROTECTION, FINALIZER, "example.com/yours"]
    with_finalizers(lab, volumes["kept"], others)
    before = {name: now(lab, volume) for name, volume in volumes.items()}
    said = ask("--node", lab.node)
    assert said.status == 0
    for volume in before.values():
        after = now(lab, volume)
        assert not is_finalized(after)
        assert but_for_the_finalizer(after) == but_for_the_finalizer(volume)
        assert said.row(volume).split()[-1] == "removed"
    assert said.out.splitlines()[-1] == "5 removed"
    assert ask("--node", lab.node).out.startswith("no PersistentVolume has the finalizer")

    # From now on they are deleted as any other; the binder's own finalizer still protects.
    for name in ("offered", "released", "retained"):
        delete(lab, volumes[name])
        is_gone(lab, volumes[name])
    delete(lab, volumes["bound"])
    assert now(lab, volumes["bound"])["metadata"]["deletionTimestamp"]
    lab.delete_claim(claim)
    is_gone(lab, volumes["bound"])
    with_finalizers(lab, volumes["kept"], [])


def test_what_is_being_deleted_uncleaned_is_kept(lab: Lab, ask: Ask) -> None:
    left, held = offered(lab, "left"), offered(lab, "held")
    emptied, retained = offered(lab, "emptied"), offered(lab, "retained", policy="Retain")
    unused, offer = offered(lab, "unused"), offered(lab, "offer")
    lab.released(left)
    lab.released(retained)
    claim = lab.claim(held)
    # Somebody emptied claimRef by hand; our note of the claim is still there.
    note = {"metadata": {"annotations": {marks.CLAIMED_ANNOTATION: "4711"}}}
    lab.patch(emptied["metadata"]["name"], note)
    going = (left, held, emptied, retained, unused)
    for volume in going:
        delete(lab, volume)
    for volume in (left, emptied, retained, unused):
        is_unprotected(lab, volume)
    before = {volume["metadata"]["name"]: now(lab, volume) for volume in going}
    for _ in range(2):
        said = ask("--node", lab.node)
        assert said.status == 1
        for volume in (left, held, emptied):
            assert " kept " in said.row(volume)
            assert "let the agent run until it is gone" in said.row(volume)
        assert "its data stays" in said.row(retained)
        for volume in (left, held, emptied, retained):
            assert now(lab, volume) == before[volume["metadata"]["name"]]
    # What no claim ever held may go, and does.
    is_gone(lab, unused)
    assert not is_finalized(now(lab, offer))
    lab.delete_claim(claim)


@pytest.mark.needs("root", "loop", "ext4")
@pytest.mark.usefixtures("impatient")
def test_what_was_kept_is_cleaned_by_the_agent(lab: Lab, ask: Ask) -> None:
    """And then goes on without it, as the next provisioner meets it."""
    fs = lab.add_class("fs")
    place = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (place / "data").write_text("a tenant's")
    lab.stop()
    delete(lab, volume)
    lab.delete_claim(claim)
    assert ask("--node", lab.node).status == 1
    assert is_finalized(now(lab, volume))
    lab.start()
    again = lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (place / "data").exists()
    # While it runs, an agent takes what has its label for its own.
    # Until it was quick enough for that.
    said = lab.until(
        lambda: ask("--node", lab.node, look_again=2.0), lambda said: "put back" in said.out
    )
    assert said.status == 1
    assert "put back" in said.row(again)
    assert "an agent is still running" in said.err
    assert is_finalized(now(lab, again))
    lab.stop()
    said = ask("--node", lab.node)
    assert said.status == 0
    assert said.err == ""
    assert not is_finalized(now(lab, again))


def test_only_the_nodes_that_were_named(lab: Lab, ask: Ask) -> None:
    names = [f"{lab.unique}-{letter}" for letter in "abc"]
    volumes = {name: offered(lab, name, node=name) for name in names}
    # There is no Node of these names: a lost one's volumes are freed as well.
    said = ask("--node", names[0], "--node", names[1], "--node", names[0])
    assert said.status == 0
    assert [is_finalized(now(lab, volumes[name])) for name in names] == [False, False, True]
    assert said.out.splitlines()[-1] == "2 removed"
    # A second time, they are known by their labels.
    assert ask("--node", names[0]).status == 0


def test_all_are_those_without_a_label_too(lab: Lab, ask: Ask) -> None:
    one, unlabelled = offered(lab, "one"), offered(lab, "two")
    lab.patch(unlabelled["metadata"]["name"], {"metadata": {"labels": {NODE_LABEL: None}}})
    assert ask("--node", lab.node).status == 0
    assert not is_finalized(now(lab, one))
    assert is_finalized(now(lab, unlabelled))
    said = ask("--all")
    assert said.status == 0
    assert said.row(unlabelled).split() == ["Available", "removed"]
    assert not is_finalized(now(lab, unlabelled))


def test_a_name_that_nobody_knows_stops_it_before_it_begins(lab: Lab, ask: Ask) -> None:
    volume = offered(lab, "one")
    for wrong in (f"no-{lab.unique}", ""):
        said = ask("--node", lab.node, "--node", wrong)
        assert said.status == 1
        assert said.out == ""
        assert f"there is no Node {wrong!r}" in said.err
        assert now(lab, volume) == volume


def test_a_node_without_volumes_is_nothing_to_do(lab: Lab, ask: Ask) -> None:
    said = ask("--node", lab.node)
    assert (said.status, said.err) == (0, "")
    assert said.out == f"no PersistentVolume has the finalizer {FINALIZER}\n"


def test_what_is_not_allowed_is_said_of_each(lab: Lab, ask: Ask) -> None:
    volumes = [offered(lab, name) for name in ("one", "two")]
    kubeconfig = account(lab, [])
    said = ask("--node", lab.node, kubeconfig=kubeconfig)
    assert said.status == 3
    assert said.out == ""
    assert "cannot list resource" in said.err
    allow(lab, [rule("persistentvolumes", "list", "get")])
    lab.until(
        lambda: ask("--node", lab.node, kubeconfig=kubeconfig), lambda said: "one" in said.out
    )
    said = ask("--node", lab.node, kubeconfig=kubeconfig)
    assert said.status == 1
    for volume in volumes:
        assert " failed " in said.row(volume)
        assert "cannot patch resource" in said.row(volume)
        assert now(lab, volume) == volume


def test_a_second_look_that_fails_promises_nothing(lab: Lab, ask: Ask) -> None:
    volume = offered(lab, "one")
    rules = [rule("persistentvolumes", "list", "get", "patch")]
    kubeconfig = account(lab, rules)
    lab.until(
        lambda: ask("--node", lab.node, "--dry-run", kubeconfig=kubeconfig),
        lambda said: said.status == 0,
    )

    def without(volume: PersistentVolume) -> JsonPatch:
        allow(lab, [rule("persistentvolumes", "get", "patch")])
        lab.until(lambda: may(lab, "list", resource="persistentvolumes"), lambda it: not it)
        return without_finalizer(volume)

    said = ask("--node", lab.node, kubeconfig=kubeconfig, patch=without)
    assert said.status == 1
    assert "nobody can tell whether an agent has put it back" in said.row(volume)


class Meanwhile:
    """Does something once, between the decision about a volume and the write."""

    def __init__(self, deed: Callable[[], object]) -> None:
        self.deeds = [deed]

    def __call__(self, volume: PersistentVolume) -> JsonPatch:
        patch = without_finalizer(volume)
        if self.deeds:
            self.deeds.pop()()
        return patch


def test_what_changes_meanwhile_is_decided_anew(lab: Lab, ask: Ask) -> None:
    def meanwhile(deed: Callable[[], object]) -> Said:
        return ask("--node", lab.node, patch=Meanwhile(deed))

    # Its finalizers are in another order now.
    volume = offered(lab, "other")
    changed = [FINALIZER, PROTECTION, "example.com/mine", "example.com/yours"]
    with_finalizers(lab, volume, ["example.com/mine", PROTECTION, FINALIZER])
    assert meanwhile(lambda: with_finalizers(lab, volume, changed)).status == 0
    found = now(lab, volume)["metadata"]["finalizers"]
    assert set(found) == {PROTECTION, "example.com/mine", "example.com/yours"}
    with_finalizers(lab, volume, [])

    # A claim had it, and it is being deleted now.
    volume = offered(lab, "claimed")

    def claimed_and_deleted() -> None:
        lab.released(volume)
        delete(lab, volume)

    said = meanwhile(claimed_and_deleted)
    assert said.status == 1
    assert " kept " in said.row(volume)
    assert is_finalized(now(lab, volume))
    lab.remove(volume)

    # Another object has its name now: that one was not looked at.
    volume = offered(lab, "another")

    def replaced() -> None:
        lab.remove(volume)
        offered(lab, "another")

    said = meanwhile(replaced)
    assert " gone " in said.row(volume)
    assert is_finalized(now(lab, volume))

    # It is no more.
    volume = now(lab, volume)
    said = meanwhile(lambda: lab.remove(volume))
    assert said.status == 0
    assert " gone " in said.row(volume)

    # Somebody else was faster.
    volume = offered(lab, "faster")
    said = meanwhile(lambda: with_finalizers(lab, volume, ["example.com/mine"]))
    assert said.status == 0
    assert " free " in said.row(volume)
    with_finalizers(lab, volume, [])


def test_a_cluster_that_cannot_be_reached_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = str(tmp_path / "no-kubeconfig")
    assert main(["remove-finalizers", "--all", "--kubeconfig", nowhere]) == 3
    assert "no-kubeconfig" in capsys.readouterr().err


# --- contents of snapshots ----------------------------------------------------------------------

SINGLE = ("snapshot.storage.k8s.io", "VolumeSnapshotContent", CONTENTS)
GROUP = ("groupsnapshot.storage.k8s.io", "VolumeGroupSnapshotContent", GROUP_CONTENTS)


@pytest.fixture
def kinds(lab: Lab) -> Iterator[None]:
    with kinds_of_snapshots(lab.plane):
        yield


def going(
    lab: Lab,
    suffix: str,
    node: str,
    *,
    of: tuple[str, str, str] = SINGLE,
    policy: str = "Delete",
    released: bool = True,
    driver: str = CSI,
) -> str:
    """The path of a content that was deleted, and that its finalizer holds."""
    group, kind, collection = of
    what = kind.removesuffix("Content").lower()
    notes = {NODE_LABEL: node}
    if released:
        notes[f"{group.replace('k8s.io', 'kubernetes.io')}/{what}-being-deleted"] = "yes"
    ref = {"namespace": "default", "name": suffix, "uid": f"uid-{suffix}"}
    named = {"volumeHandle": "pvc-1"} if of is SINGLE else {"volumeHandles": ["pvc-1"]}
    key = "volumeSnapshotRef" if of is SINGLE else "volumeGroupSnapshotRef"
    protection = f"{group.replace('k8s.io', 'kubernetes.io')}/{kind.lower()}-bound-protection"
    body = {
        "apiVersion": f"{group}/v1",
        "kind": kind,
        "metadata": {
            "name": f"{lab.unique}-{suffix}",
            "annotations": notes,
            "finalizers": [protection],
        },
        "spec": {"driver": driver, "deletionPolicy": policy, "source": named, key: ref},
    }
    lab.plane.request("POST", collection, body)
    path = f"{collection}/{body['metadata']['name']}"  # type: ignore[index]
    lab.plane.request("DELETE", path)
    return path


def test_contents_of_lost_nodes_and_kept_ones_are_let_go(lab: Lab, ask: Ask, kinds: None) -> None:
    lost = f"{lab.unique}-lost"
    gone = [
        going(lab, "lost", lost),
        going(lab, "lost-group", lost, of=GROUP),
        going(lab, "retained", lab.node, policy="Retain"),
    ]
    kept = [
        # Its agent removes the snapshot, and then lets it go.
        going(lab, "here", lab.node),
        # The snapshot-controller has not said so.
        going(lab, "bound", lost, released=False),
    ]
    other = going(lab, "other", lost, driver="other.example.com")
    names = ["--node", lost, "--node", lab.node]
    dry = ask(*names, "--dry-run")
    assert dry.status == 1
    assert "would remove" in dry.out
    assert all(read(lab.plane, path) for path in (*gone, *kept, other))
    said = ask(*names)
    assert said.status == 1
    assert [read(lab.plane, path) for path in gone] == [None] * 3
    assert all(read(lab.plane, path) for path in (*kept, other))
    lines = {line.split()[0]: line for line in said.out.splitlines() if lab.unique in line}
    assert "is gone: what may be on its disks stays there" in lines[f"{lab.unique}-lost"]
    assert "removed" in lines[f"{lab.unique}-lost-group"]
    assert "policy is Retain: the snapshot stays" in lines[f"{lab.unique}-retained"]
    assert "let the agent run" in lines[f"{lab.unique}-here"]
    assert "has not let it go" in lines[f"{lab.unique}-bound"]
    assert f"{lab.unique}-other" not in lines
