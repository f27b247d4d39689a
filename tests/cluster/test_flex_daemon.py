"""The FlexVolume daemon in a real agent on a real API server: binding, refusals, life and end."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localvolume.host.mount.mounts import read_mount_table
from localvolume_lab.controlplane import RequestFailed
from tests.cluster.support_accounts import account, rule
from tests.cluster.support_agent import CLAIMED
from tests.cluster.support_flex import (
    ELASTIC,
    ELASTIC_LABEL,
    OURS,
    QUICK,
    FlexLab,
    finalized,
    flex_lab_for,
    phase_of,
)
from tests.cluster.support_objects import Objects
from tests.suite.api import CLAIMS, MERGE, PODS, VOLUMES
from tests.suite.names import FINALIZER, HOSTNAME, NODE_LABEL

pytestmark = pytest.mark.needs("root")

INIT = '{"status":"Success","message":"driver is available","capabilities":{"attach":false}}\n'


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path) -> Iterator[FlexLab]:
    with flex_lab_for(objects, unique, tmp_path) as made:
        yield made


@pytest.fixture
def impatient(lab: FlexLab) -> None:
    lab.paces = replace(lab.paces, flexvolume=QUICK)


def affinity_of(volume: dict[str, object]) -> object:
    spec = volume["spec"]
    assert isinstance(spec, dict)
    return spec.get("nodeAffinity")


def annotations_of(volume: dict[str, Any] | None) -> dict[str, str]:
    assert volume is not None
    found: dict[str, str] = volume["metadata"].get("annotations", {})
    return found


# --- the calls -----------------------------------------------------------------------------------


def test_init_and_the_installed_client(lab: FlexLab) -> None:
    lab.serve()
    assert lab.call("GET", "/init").text == INIT
    for name in ("localvolume.dev~flexvolume/flexvolume", "volumes.k8s.elastic.co~elastic-local"):
        lab.until(lambda name=name: (lab.plugins / name).exists(), bool)  # type: ignore[misc]
    placed = lab.plugins / "localvolume.dev~flexvolume"
    assert (placed / ".socket").read_text() == f"{lab.socket}\n"
    assert (placed / "flexvolume").read_text() == lab.client.read_text()


def test_the_first_mount_binds_the_volume_to_the_node(lab: FlexLab) -> None:
    """elastic's `k8s: stale PV updated`, with the Node's hostname label in place of its name."""
    volume = lab.volume(driver=ELASTIC)
    lab.serve()
    answer = lab.mount(volume)
    assert (answer.status, answer.message) == (200, "successfully created the volume"), answer
    found = lab.read(volume["metadata"]["name"])
    assert found is not None
    labels = found["metadata"]["labels"]
    assert labels[NODE_LABEL] == labels[ELASTIC_LABEL] == lab.node
    assert finalized(found)
    term = {"key": HOSTNAME, "operator": "In", "values": [lab.hostname]}
    assert affinity_of(found) == {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}}
    assert found["metadata"]["annotations"][CLAIMED] == found["spec"]["claimRef"]["uid"]
    target = lab.target(volume)
    (target / "file").write_text("of red")
    assert (lab.root / volume["metadata"]["name"] / "file").read_text() == "of red"
    notes = lab.note_of(volume)
    assert notes["pv-uid"] == found["metadata"]["uid"]
    assert (notes["claim"], notes["policy"]) == (
        f"default/{volume['metadata']['name']}",
        "Delete",
    )
    answer = lab.unmount(volume)
    assert answer.message == "successfully removed the volume"
    assert read_mount_table().at(str(target)) is None


def test_a_bound_one_is_not_written_again(lab: FlexLab) -> None:
    """elastic's `k8s: current untouched`; and the next mount has the data."""
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    (lab.target(volume) / "file").write_text("of red")
    assert lab.unmount(volume).ok
    before = lab.read(volume["metadata"]["name"])
    assert before is not None
    for _ in range(2):
        assert lab.mount(volume, uid="pod-2").ok
    after = lab.read(volume["metadata"]["name"])
    assert after is not None
    assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
    assert ELASTIC_LABEL not in after["metadata"]["labels"], "it is not elastic's"
    assert (lab.target(volume, "pod-2") / "file").read_text() == "of red"


def test_what_is_not_there_is_an_error_of_the_call(lab: FlexLab) -> None:
    """elastic's `k8s: missing errors`: 500 in plain text, and nothing on the disk."""
    lab.serve()
    volume = {
        "metadata": {"name": f"{lab.unique}-never"},
        "spec": {"flexVolume": {"driver": OURS, "options": {}}},
    }
    answer = lab.mount(volume)
    assert (answer.status, answer.reply) == (500, {})
    assert "not found" in answer.text
    assert list(lab.root.iterdir()) == []
    assert lab.unmount(volume).ok, "what is not mounted need not be unmounted"


@pytest.mark.parametrize("callout", ["mount", "unmount"])
def test_an_empty_body_is_an_error_of_the_call(lab: FlexLab, callout: str) -> None:
    lab.serve()
    answer = lab.call("POST", f"/{callout}", b"")
    assert (answer.status, answer.text) == (500, "EOF\n")


def test_a_refusal_of_the_server_leaves_no_trace_on_the_disk(lab: FlexLab) -> None:
    """The PersistentVolume is patched before anything is made."""
    volume = lab.volume()
    lab.serve()
    name = f"{lab.unique}-policy"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["persistentvolumes"]}
    admission = "/apis/admissionregistration.k8s.io/v1"
    match = {"resourceRules": [{**rule, "operations": ["UPDATE"]}]}
    expression = f"object.metadata.name != '{volume['metadata']['name']}'"
    policy = {
        "metadata": {"name": name},
        "spec": {"matchConstraints": match, "validations": [{"expression": expression}]},
    }
    lab.objects.make(f"{admission}/validatingadmissionpolicies", policy)
    binding = {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    lab.objects.make(f"{admission}/validatingadmissionpolicybindings", binding)

    def is_refused() -> bool:
        body = {"metadata": {"annotations": {"try": "again"}}}
        path = f"{VOLUMES}/{volume['metadata']['name']}?dryRun=All"
        try:
            lab.plane.request("PATCH", path, body, content_type=MERGE)
        except RequestFailed:
            return True
        return False

    lab.until(is_refused, bool)
    answer = lab.mount(volume)
    assert (answer.status, answer.reply) == (500, {})
    assert list(lab.root.iterdir()) == []
    assert read_mount_table().at(str(lab.target(volume))) is None


# --- refusals ------------------------------------------------------------------------------------


def test_what_is_not_to_be_mounted_here_is_refused(lab: FlexLab) -> None:
    lab.serve()
    elsewhere = lab.volume("b", affinity="another-host")
    labelled = lab.volume("c", driver=ELASTIC, labels={ELASTIC_LABEL: "another-node"})
    ours = lab.volume("d", labels={NODE_LABEL: "another-node"})
    unbound = lab.volume("e", bound=False)
    foreign = lab.volume("f", driver="example.com/nfs")
    for volume, text in (
        (elsewhere, "node affinity to another-host"),
        (labelled, "bound to the node another-node"),
        (ours, "bound to the node another-node"),
        (unbound, "not Bound to a claim"),
        (foreign, "is not served here"),
    ):
        answer = lab.mount(volume)
        assert answer.reply["status"] == "Failure", answer
        assert text in answer.message
    wrong = {**elsewhere, "spec": {"flexVolume": {"driver": ELASTIC, "options": {}}}}
    assert f"is of the driver {OURS}" in lab.mount(wrong).message
    assert list(lab.root.iterdir()) == []


def test_one_that_is_being_deleted_is_refused(lab: FlexLab) -> None:
    volume = lab.volume(finalizers=["example.com/hold"])
    lab.serve()
    lab.plane.request("DELETE", f"{VOLUMES}/{volume['metadata']['name']}")
    assert "is being deleted" in lab.mount(volume).message
    assert list(lab.root.iterdir()) == []


def test_a_pod_that_does_not_use_the_claim_gets_nothing(lab: FlexLab) -> None:
    """A pod may describe a FlexVolume itself, by whatever name and with whatever options."""
    volume, other = lab.volume("a"), lab.volume("b")
    lab.serve()
    thief = lab.pod(volume, inline=True)
    assert "does not use the claim" in lab.mount(volume, pod=thief).message
    neighbour = lab.pod(volume, claim=other["metadata"]["name"])
    assert "does not use the claim" in lab.mount(volume, pod=neighbour).message
    owner = lab.pod(volume)
    # With the owner's names in its options, but in its own directory.
    forged = {
        "kubernetes.io/pod.name": owner["metadata"]["name"],
        "kubernetes.io/pod.uid": owner["metadata"]["uid"],
    }
    assert lab.mount(volume, pod=thief, **forged).reply["status"] == "Failure"
    forged["kubernetes.io/pod.uid"] = thief["metadata"]["uid"]
    assert "is not that of the pod" in lab.mount(volume, pod=thief, **forged).message
    gone = {**forged, "kubernetes.io/pod.name": "nobody"}
    assert "there is no pod" in lab.mount(volume, pod=thief, **gone).message
    assert list(lab.root.iterdir()) == []
    assert lab.mount(volume, pod=owner).ok


def test_a_thief_of_its_own_quota_gets_what_its_volume_is(lab: FlexLab) -> None:
    """A pod may list its own claim without mounting it, and describe a FlexVolume besides: by the
    name of the claim's PersistentVolume, with a size and options of its own choice."""
    volume = lab.volume(options={"mountOptions": "nodev"})
    name = volume["metadata"]["name"]
    lab.serve()
    options = {"sizeBytes": str(10**12), "mountOptions": "noexec", "mkfsOptions": "-K"}
    inline = {"driver": OURS, "fsType": "xfs", "options": options}
    listed = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    body = {
        "metadata": {"name": f"{lab.unique}-thief"},
        "spec": {
            "nodeName": lab.node,
            "containers": [{"name": "main", "image": "none"}],
            "volumes": [listed, {"name": name, "flexVolume": inline}],
        },
    }
    thief = lab.objects.make(PODS, body)
    options["kubernetes.io/fsType"] = "xfs"
    answer = lab.mount(volume, pod=thief, **options)
    assert answer.ok, answer
    mounted = read_mount_table().at(str(lab.target(volume, thief["metadata"]["uid"])))
    assert mounted is not None
    assert {"nodev", "noexec"} & set(mounted.options.split(",")) == {"nodev"}
    record = json.loads((lab.root / ".localvolume" / "flexvolumes" / f"{name}.json").read_text())
    assert record["size_bytes"] == 8 << 20


def test_a_volume_that_says_read_only_is(lab: FlexLab) -> None:
    volume = lab.volume(read_only=True)
    lab.serve()
    assert lab.mount(volume).ok
    mounted = read_mount_table().at(str(lab.target(volume)))
    assert mounted is not None
    assert mounted.read_only


def test_a_link_in_the_kubelets_directory_is_not_followed(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    target = lab.target(volume)
    elsewhere = lab.directory / "elsewhere"
    elsewhere.mkdir()
    target.rmdir()
    target.symlink_to(elsewhere)
    body = {"targetDir": str(target), "options": {}}
    assert "without links" in lab.call("POST", "/mount", body).message
    target.unlink()
    parent = target.parent
    parent.rmdir()
    (elsewhere / target.name).mkdir()
    parent.symlink_to(elsewhere)
    for path in ("/mount", "/unmount"):
        answer = lab.call("POST", path, body)
        assert "without links" in answer.message, answer
    assert list(lab.root.iterdir()) == []
    answer = lab.call("POST", "/mount", {"targetDir": str(elsewhere), "options": {}})
    assert "is not the directory of a FlexVolume" in answer.message


def test_the_kubelets_directory_may_itself_be_a_link(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    real = lab.directory / "data"
    real.mkdir()
    lab.kubelet.symlink_to(real)
    assert lab.mount(volume).ok
    (lab.target(volume) / "file").write_text("of red")
    assert lab.unmount(volume).ok
    assert not any(mount.mount_point.startswith(str(real)) for mount in read_mount_table())


# --- many at once --------------------------------------------------------------------------------


def test_calls_of_one_volume_take_turns_and_agree(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    answers = []

    def call() -> None:
        answers.append(lab.mount(volume))

    lab.target(volume)
    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(answer.ok for answer in answers), answers
    assert lab.unmount(volume).ok
    assert read_mount_table().at(str(lab.target(volume))) is None, "it was mounted once"


# --- the end -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_a_deleted_volume_goes_after_its_object(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    (lab.target(volume) / "file").write_text("of red")
    assert lab.unmount(volume).ok
    (lab.root / "lost+found").mkdir()
    (lab.root / "backups").mkdir()
    lab.forget_claim(volume)
    lab.gone(volume)
    lab.until(lab.recorded, lambda found: not found)
    assert sorted(one.name for one in lab.root.iterdir()) == [
        ".localvolume",
        "backups",
        "lost+found",
    ]
    lab.until(lambda: lab.metric("localvolume_flexvolume_removed_total"), lambda n: n == 1)
    lab.until(lambda: lab.logged("removed:"), bool)


@pytest.mark.usefixtures("impatient")
def test_retain_set_at_the_last_moment_keeps_the_volume(lab: FlexLab) -> None:
    """elastic removed it whatever the policy said."""
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    (lab.target(volume) / "file").write_text("of red")
    assert lab.unmount(volume).ok
    name = volume["metadata"]["name"]
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    lab.until(lambda: lab.note_of(volume)["policy"], lambda policy: policy == "Retain")
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Delete"}})
    lab.until(lambda: lab.note_of(volume)["policy"], lambda policy: policy == "Delete")
    lab.stop()
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    lab.forget_claim(volume)
    lab._log.messages.clear()
    lab.serve()
    lab.gone(volume)
    assert lab.note_of(volume)["policy"] == "Retain"
    kept = "localvolume_flexvolume_gone_volumes"
    lab.until(lambda: lab.metric(kept, fate="kept"), lambda n: n == 1)
    assert (lab.root / name / "file").read_text() == "of red"


@pytest.mark.usefixtures("impatient")
def test_it_is_held_while_its_claim_is_there(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    name = volume["metadata"]["name"]
    # One that is being deleted is asked for at each look, after it was judged; others are not.
    asked = {"verb": "get", "resource": "persistentvolumes", "outcome": "ok"}
    before = lab.metric("localvolume_api_requests_total", **asked) or 0
    lab.plane.request("DELETE", f"{VOLUMES}/{name}")
    lab.until(
        lambda: lab.metric("localvolume_api_requests_total", **asked) or 0,
        lambda count: count >= before + 2,
    )
    assert finalized(lab.read(name))
    assert lab.recorded() == [name]
    assert lab.unmount(volume).ok
    lab.plane.request("DELETE", f"{CLAIMS}/{name}")
    lab.gone(volume)
    lab.until(lab.recorded, lambda found: not found)


@pytest.mark.usefixtures("impatient")
def test_released_it_is_held_too_while_its_claim_is_there(lab: FlexLab) -> None:
    """The phase alone proves nothing: the claim is asked for by name."""
    claim = lab.objects.get(f"{CLAIMS}/{lab.volume()['metadata']['name']}")["metadata"]
    lab.serve()
    labels = {NODE_LABEL: lab.node}
    other = lab.volume(
        "b", labels=labels, affinity=lab.hostname, finalizers=[FINALIZER], bound=False, claim=claim
    )
    name = other["metadata"]["name"]
    lab.until(lambda: phase_of(lab.read(name) or {}), lambda phase: phase == "Released")
    lab.plane.request("DELETE", f"{VOLUMES}/{name}")
    asked = {"verb": "get", "resource": "persistentvolumeclaims", "outcome": "ok"}
    # Twice: what is done about the first answer is over by then.
    lab.until(
        lambda: lab.metric("localvolume_api_requests_total", **asked) or 0,
        lambda count: count >= 2,
    )
    assert finalized(lab.read(name))
    lab.plane.request("DELETE", f"{CLAIMS}/{claim['name']}")
    lab.gone(other)


@pytest.mark.usefixtures("impatient")
def test_what_is_still_mounted_is_not_removed(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    (lab.target(volume) / "file").write_text("of red")
    lab.forget_claim(volume)
    lab.gone(volume)
    due = "localvolume_flexvolume_gone_volumes"
    lab.until(lambda: lab.metric(due, fate="due"), lambda n: n == 1)
    assert (lab.target(volume) / "file").read_text() == "of red"
    assert lab.unmount(volume).ok
    lab.until(lab.recorded, lambda found: not found)


@pytest.mark.usefixtures("impatient")
def test_retain_counts_while_somebody_else_holds_the_object(lab: FlexLab) -> None:
    """Our finalizer is gone by then, and the volume is to go once the object does."""
    volume = lab.volume(finalizers=["example.com/hold"])
    lab.serve()
    assert lab.mount(volume).ok
    (lab.target(volume) / "file").write_text("of red")
    assert lab.unmount(volume).ok
    name = volume["metadata"]["name"]
    lab.forget_claim(volume)
    lab.until(lambda: finalized(lab.read(name)), lambda held: not held)
    lab.patch(name, {"spec": {"persistentVolumeReclaimPolicy": "Retain"}})
    lab.until(lambda: lab.note_of(volume)["policy"], lambda policy: policy == "Retain")
    lab.patch(name, {"metadata": {"finalizers": None}})
    lab.gone(volume)
    kept = "localvolume_flexvolume_gone_volumes"
    lab.until(lambda: lab.metric(kept, fate="kept"), lambda n: n == 1)
    assert (lab.root / name / "file").read_text() == "of red"


@pytest.mark.usefixtures("impatient")
def test_what_a_call_could_not_say_any_more_is_said_later(lab: FlexLab) -> None:
    """It was mounted, and the call ended before the object said so: a kill, or the API server."""
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    name, claim = volume["metadata"]["name"], volume["spec"]["claimRef"]["uid"]
    lab.patch(name, {"metadata": {"annotations": {CLAIMED: None}}})
    lab.until(lambda: annotations_of(lab.read(name)).get(CLAIMED), lambda uid: uid == claim)


# --- other agents, other configurations ----------------------------------------------------------


@pytest.mark.usefixtures("impatient")
def test_elastics_volumes_are_taken_over(lab: FlexLab) -> None:
    """Bound, labelled and with a directory; bound and labelled alone; and a stray beside them."""
    mine = {ELASTIC_LABEL: lab.node}
    volume = lab.volume("a", driver=ELASTIC, labels=mine, affinity=lab.hostname)
    never = lab.volume("b", driver=ELASTIC, labels=mine, affinity=lab.hostname)
    other = lab.volume("c", driver=ELASTIC, labels={ELASTIC_LABEL: "another"}, affinity="another")
    for one in (volume, other):
        (lab.root / one["metadata"]["name"]).mkdir()
        (lab.root / one["metadata"]["name"] / "file").write_text("from before")
    (lab.root / "pvc-of-nobody").mkdir()
    lab.serve()
    name = volume["metadata"]["name"]
    lab.until(lab.recorded, lambda found: found == [name])
    for one in (volume, never):
        found = lab.until(lambda one=one: lab.read(one["metadata"]["name"]), finalized)  # type: ignore[misc]
        assert found is not None
        assert found["metadata"]["labels"][NODE_LABEL] == lab.node
    assert lab.mount(volume).ok
    assert (lab.target(volume) / "file").read_text() == "from before"
    found = lab.read(other["metadata"]["name"])
    assert found is not None
    assert NODE_LABEL not in found["metadata"]["labels"]
    assert (lab.root / other["metadata"]["name"] / "file").exists()
    assert (lab.root / "pvc-of-nobody").is_dir()


@pytest.mark.usefixtures("impatient")
def test_what_was_taken_over_is_never_made_anew(lab: FlexLab) -> None:
    """The node comes back without the filesystem of the directories: no tenant begins anew on the
    root filesystem."""
    mine = {ELASTIC_LABEL: lab.node}
    volume = lab.volume("a", driver=ELASTIC, labels=mine, affinity=lab.hostname)
    never = lab.volume("b", driver=ELASTIC, labels=mine, affinity=lab.hostname)
    name, claim = volume["metadata"]["name"], volume["spec"]["claimRef"]["uid"]
    (lab.root / name).mkdir()
    lab.serve()
    lab.until(lambda: annotations_of(lab.read(name)).get(CLAIMED), lambda uid: uid == claim)
    assert CLAIMED not in annotations_of(lab.read(never["metadata"]["name"]))
    lab.stop()
    lab.root.rename(lab.directory / "unmounted")
    lab.root.mkdir()
    lab._log.messages.clear()
    lab.serve()
    answer = lab.mount(volume)
    assert answer.reply["status"] == "Failure", answer
    assert "Nothing is made in its place" in answer.message
    assert not (lab.root / name).exists()
    assert read_mount_table().at(str(lab.target(volume))) is None


def test_another_configuration_is_served_from_then_on(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    old = lab.socket
    lab.socket = lab.directory / "run" / "other.sock"
    lab.section["socket"] = str(lab.socket)
    lab.configure()
    lab.until(lambda: sum("serving FlexVolume" in line for line in lab.log()), lambda n: n == 2)
    assert lab.socket.exists()
    assert not old.exists()
    assert lab.unmount(volume).ok
    lab.settings = {"useAlphaAPI": False}
    lab.configure()
    lab.until(lambda: not lab.socket.exists(), bool)
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)


def test_what_keeps_it_from_serving_is_told(lab: FlexLab) -> None:
    lab.client.unlink()
    lab.serve()
    status, text = lab.until(lambda: lab.http("/ready"), lambda found: "client" in found[1])
    assert status != 200
    assert "is not installed" in text
    lab.root.rename(lab.directory / "unmounted")
    volume = lab.volume()
    assert "No such file" in lab.mount(volume).message


def test_the_calls_are_counted(lab: FlexLab) -> None:
    volume = lab.volume()
    lab.serve()
    lab.mount(volume)
    lab.call("GET", "/init")
    lab.call("POST", "/unmount", {"targetDir": "/etc"})
    lab.call("POST", "/mount", b"")
    name = "localvolume_flexvolume_calls_total"
    assert lab.metric(name, callout="mount", result="success") == 1
    assert lab.metric(name, callout="init", result="success") == 1
    assert lab.metric(name, callout="unmount", result="failure") == 1
    assert lab.metric(name, callout="mount", result="error") == 1


def test_an_agent_that_was_killed_is_followed_by_the_next(lab: FlexLab) -> None:
    volume = lab.volume()
    process = lab.start_process(wait=False)
    lab.until(lambda: lab.socket.exists() and lab.logged("serving FlexVolume"), bool)
    assert lab.mount(volume).ok
    process.kill()
    assert lab.socket.exists(), "a stale one is left"
    lab.agent = None
    lab.serve()
    assert lab.mount(volume).ok
    assert lab.unmount(volume).ok
    assert read_mount_table().at(str(lab.target(volume))) is None


def test_the_other_roles_leave_its_volumes_alone(lab: FlexLab) -> None:
    """Bound to this node and finalized by us, and not of any pool or class."""
    pool = lab.directory / "pool"
    pool.mkdir()
    lab.settings["storageClassMap"] = {}
    lab.settings["pools"] = {
        "fast": {"hostDir": str(pool), "enforce": "none", "mustBeMounted": False}
    }
    cls = lab.add_class()
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume).ok
    lab.until(lambda: lab.metric("localvolume_dynamic_looks_total") or 0, lambda n: n > 0)
    assert lab.metric("localvolume_dynamic_held") == 0
    assert lab.held(cls) == {}
    found = lab.read(volume["metadata"]["name"])
    assert phase_of(found or {}) == "Bound"
    assert json.dumps(found).count(FINALIZER) >= 1
    assert [one for one in lab.events(volume["metadata"]["name"]) if one["type"] == "Warning"] == []


RIGHTS = [
    rule("persistentvolumes", "get", "list", "watch", "patch"),
    rule("persistentvolumeclaims", "get", "list", "watch"),
    rule("persistentvolumeclaims/status", "patch"),
    rule("pods", "get"),
    rule("nodes", "get", "list", "watch"),
    rule("storageclasses", "list", "watch", group="storage.k8s.io"),
    rule("events", "create", "patch"),
]
"""What a ClusterRole has to give an agent that serves FlexVolume alone."""


@pytest.mark.usefixtures("impatient")
def test_these_rights_are_enough(lab: FlexLab) -> None:
    """From the first mount to the last byte; it neither makes nor deletes PersistentVolumes."""
    lab.kubeconfig = account(lab, RIGHTS)
    elastics = {ELASTIC_LABEL: lab.node}
    adopted = lab.volume("b", driver=ELASTIC, labels=elastics, affinity=lab.hostname)
    (lab.root / adopted["metadata"]["name"]).mkdir()
    volume = lab.volume()
    lab.serve()
    assert lab.mount(volume, pod=lab.pod(volume)).ok
    assert lab.mount(adopted).ok
    for mount in read_mount_table().below(str(lab.kubelet)):
        uid = mount.mount_point.removeprefix(f"{lab.kubelet}/pods/").partition("/")[0]
        of = volume if mount.mount_point.endswith(volume["metadata"]["name"]) else adopted
        assert lab.unmount(of, uid=uid).ok
    for pod in lab.plane.request("GET", PODS)["items"]:
        if pod["spec"].get("nodeName") == lab.node:
            path = f"{PODS}/{pod['metadata']['name']}"
            lab.plane.request("DELETE", path, {"gracePeriodSeconds": 0})
    for one in (volume, adopted):
        lab.forget_claim(one)
        lab.gone(one)
    lab.until(lab.recorded, lambda found: not found)
    _, text = lab.http("/metrics")
    refused = [line for line in text.splitlines() if "TellTheAdministrator" in line]
    # Whether there are cleaning Jobs is asked for the sake of static volumes.
    assert not [line for line in refused if 'resource="jobs"' not in line]
