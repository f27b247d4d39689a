"""From `kubectl apply -f deploy/install.yaml` to pods that use a static and a dynamic volume."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import pytest

from localvolume.volumes.marks import CLAIMED_ANNOTATION
from tests.host.support_privileges import CAP_SYS_RESOURCE
from tests.node.support_dynamic import left_in
from tests.node.support_installed import (
    AGENT,
    CONTROLLER,
    DISCOVERED,
    DYNAMIC,
    NAMESPACE,
    POOL,
    STATIC,
    Installed,
    Object,
    claim_and_write,
    claim_of,
    disk,
    readiness,
    restart_agent,
)
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("kubelet", "image", "loop", "ext4")


@pytest.fixture(scope="module")
def prepared(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The one disk that the class has, by the directory at which it is mounted."""
    image, point = tmp_path_factory.mktemp("disk") / "static.disk", f"{DISCOVERED}/disk-1"
    with disk(installed.node, image, point, 64 * MIB):
        yield point


def test_both_run_as_the_manifests_say(installed: Installed) -> None:
    """By the controllers and the scheduler, with a read-only root, and the controller not root."""
    (agent,) = installed.pods(AGENT)
    controllers = installed.pods(CONTROLLER)
    assert len(controllers) == 2
    for pod in (agent, *controllers):
        assert pod["spec"]["containers"][0]["image"].startswith("local-volume-provisioner:")
        # Not for the moment in which a configuration that has changed is taken up.
        until(partial(readiness, installed, pod), lambda said: said.startswith("ok"))
        assert "localvolume_" in installed.ask(pod, "/metrics")
        touched = "touch /file 2>&1 || true"
        assert "Read-only file system" in installed.execute(pod, "sh", "-c", touched)
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    (resident,) = re.findall(
        r"^VmRSS:\s+([0-9]+) kB$", installed.execute(agent, "cat", "/proc/1/status"), re.MULTILINE
    )
    assert int(resident) < 60 << 10, "benchmarks measure it; here it is only not lost"
    assert installed.execute(agent, "id", "-u").strip() == "0"
    assert {installed.execute(pod, "id", "-u").strip() for pod in controllers} == {"65532"}
    status = installed.execute(controllers[0], "cat", "/proc/1/status")
    assert "CapEff:\t0000000000000000" in status


def test_volumes_from_the_first_mount_to_the_next_tenant(
    installed: Installed, prepared: str
) -> None:
    """A prepared volume and a made one: claimed, written, kept through a restart, cleaned."""
    offered = installed.volume_until(STATIC, "Available")
    assert offered["spec"]["local"]["path"] == prepared
    for name in (STATIC, DYNAMIC):
        claim_and_write(installed, name)
    # The agent writes down who has it after it has heard of that.
    until(
        lambda: installed.volume_until(STATIC, "Bound")["metadata"]["annotations"],
        lambda annotations: CLAIMED_ANNOTATION in annotations,
    )
    before = [installed.volume_until(name, "Bound") for name in (STATIC, DYNAMIC)]
    assert before[1]["spec"]["capacity"]["storage"] == "32Mi"
    restart_agent(installed)
    for name, volume in zip((STATIC, DYNAMIC), before, strict=True):
        assert installed.volume_until(name, "Bound")["metadata"] == volume["metadata"]
        said = installed.kubectl("exec", name, "--", "cat", "/data/file")
        assert said.strip() == f"of {name}"
    for name in (STATIC, DYNAMIC):
        installed.kubectl("delete", "pod", name, "--grace-period=1", "--timeout=300s")
        installed.kubectl("delete", "pvc", name, "--timeout=300s")
    anew = installed.volume_until(STATIC, "Available", not_uid=offered["metadata"]["uid"])
    assert anew["metadata"]["name"] == offered["metadata"]["name"]
    left = set(installed.node.run(["ls", "-A", prepared]).split())
    assert left <= {"lost+found"}
    installed.gone("persistentvolume", before[1]["metadata"]["name"], "")
    purged(installed)


def test_what_a_container_that_nobody_knows_of_has_mounted_is_not_cleaned(
    installed: Installed, prepared: str
) -> None:
    """Its pod was deleted by force while the node hung; it runs on, and so does the agent's."""
    offered = installed.volume_until(STATIC, "Available")
    name = offered["metadata"]["name"]
    claim_and_write(installed, STATIC)
    until(
        lambda: installed.volume_until(STATIC, "Bound")["metadata"]["annotations"],
        lambda annotations: CLAIMED_ANNOTATION in annotations,
    )
    installed.node.pause_kubelet()
    try:
        installed.kubectl("delete", "pod", STATIC, "--force", "--grace-period=0")
        installed.kubectl("delete", "pvc", STATIC, "--timeout=300s")
        until(lambda: held_for_a_pod(installed, offered), bool, seconds=150)
        assert installed.volume_until(STATIC, "Released")["metadata"]["name"] == name
        kept = installed.node.run(["cat", f"{prepared}/file"])
        assert kept.strip() == f"of {STATIC}"
    finally:
        installed.node.resume_kubelet()
    # kubelet ends the container and takes its mount away: then it is cleaned.
    installed.volume_until(STATIC, "Available", not_uid=offered["metadata"]["uid"])
    left = set(installed.node.run(["ls", "-A", prepared]).split())
    assert left <= {"lost+found"}


def test_a_host_dir_that_is_not_what_is_mounted_there_is_told_of(
    installed: Installed, prepared: str
) -> None:
    """S14: the ConfigMap is edited, the DaemonSet is not."""
    offered = installed.volume_until(STATIC, "Available")
    assert offered["spec"]["local"]["path"] == prepared
    name, key = "local-volume-provisioner-config", "storageClassMap"
    read = ("get", "configmap", "-n", NAMESPACE, name, "-o", "json")
    before = json.loads(installed.kubectl(*read))["data"][key]
    after = before.replace(f"hostDir: {DISCOVERED}", "hostDir: /mnt/slow-disks")
    assert after != before
    (agent,) = installed.pods(AGENT)

    def edit(text: str) -> None:
        patch = json.dumps({"data": {key: text}})
        installed.kubectl("patch", "configmap", "-n", NAMESPACE, name, "--type=merge", "-p", patch)

    def problem() -> str:
        sample = rf'^localvolume_class_problem{{class="{STATIC}"}} (\S+)$'
        found = re.search(sample, installed.ask(agent, "/metrics"), re.MULTILINE)
        return found.group(1) if found else ""

    edit(after)
    try:
        until(problem, lambda said: said == "1.0", seconds=150)
        text = (
            "hostDir is /mnt/slow-disks, but what the agent's pod has at mountDir"
            f" {DISCOVERED} is {DISCOVERED} of the host"
        )
        # What it has said comes by its container's log, in its own time.
        logs = ("logs", "-n", NAMESPACE, agent["metadata"]["name"])
        until(partial(installed.kubectl, *logs), lambda logged: text in logged)
        (kept,) = installed.volumes(STATIC)
        assert kept["metadata"]["uid"] == offered["metadata"]["uid"]
    finally:
        edit(before)
        until(problem, lambda said: said == "0.0", seconds=150)
    until(partial(readiness, installed, agent), lambda said: said.startswith("ok"))
    assert (
        installed.volume_until(STATIC, "Available")["metadata"]["uid"]
        == (offered["metadata"]["uid"])
    )


@pytest.fixture(params=["ext4", pytest.param("xfs", marks=pytest.mark.needs("xfs"))])
def made_as(installed: Installed, request: pytest.FixtureRequest) -> Iterator[str]:
    """The filesystem that the class of made volumes asks for meanwhile."""
    named = served_class(installed)
    fs_type: str = request.param
    replace(installed, {**named, "parameters": {"fsType": fs_type}})
    yield fs_type
    replace(installed, named)


def served_class(installed: Installed) -> Object:
    """The class of made volumes, as it can be made anew."""
    named: Object = json.loads(installed.kubectl("get", "storageclass", DYNAMIC, "-o", "json"))
    for key in ("uid", "resourceVersion", "creationTimestamp"):
        del named["metadata"][key]
    return named


def replace(installed: Installed, storage_class: Object) -> None:
    """Its parameters cannot be changed."""
    installed.kubectl("delete", "storageclass", DYNAMIC)
    installed.kubectl("create", "-f", "-", input=json.dumps(storage_class))


def test_a_made_volume_grows_and_is_measured_while_its_pod_runs(
    installed: Installed, made_as: str
) -> None:
    """kubelet's mount of it is seen through its directory, which the manifest mounts. What keeps
    an ext4 from growing there, on a machine whose containers lack the capability, is the kernel."""
    small, large = (32, 64) if made_as == "ext4" else (320, 400)
    claim_and_write(installed, DYNAMIC, size=f"{small}Mi")
    volume = installed.volume_until(DYNAMIC, "Bound")["metadata"]["name"]
    assert until(partial(measured, installed, volume, "used"), bool, seconds=150) > 0
    before = until(partial(measured, installed, volume, "available"), bool, seconds=150)
    assert small / 2 * MIB < before < (small + 8) * MIB
    blocks = blocks_in_pod(installed, DYNAMIC)
    more = {"spec": {"resources": {"requests": {"storage": f"{large}Mi"}}}}
    installed.kubectl("patch", "pvc", DYNAMIC, "--type=merge", "-p", json.dumps(more))
    (agent,) = installed.pods(AGENT)
    in_use = made_as == "xfs" or has_resource_capability(installed, agent)
    if in_use:
        grown(installed, f"{large}Mi")
        assert allocated(installed) == (f"{large}Mi", "")
        assert blocks_in_pod(installed, DYNAMIC) > blocks + (large - small) * 3 // 4 * 1024
        until(
            partial(measured, installed, volume, "available"),
            lambda left: left > before + (large - small) * 3 / 4 * MIB,
            seconds=150,
        )
    else:
        (said,) = until(partial(why_it_does_not_grow, installed), bool, seconds=150)
        assert "only processes with CAP_SYS_RESOURCE grow it while it is mounted" in said
        assert allocated(installed) == (f"{large}Mi", "ControllerResizeInProgress")
    pod = json.loads(installed.kubectl("get", "pod", DYNAMIC, "-o", "json"))
    assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
    assert installed.kubectl("exec", DYNAMIC, "--", "cat", "/data/file").strip() == f"of {DYNAMIC}"
    installed.kubectl("delete", "pod", DYNAMIC, "--grace-period=1", "--timeout=300s")
    grown(installed, f"{large}Mi")
    assert allocated(installed) == (f"{large}Mi", "")
    installed.kubectl("delete", "pvc", DYNAMIC, "--timeout=300s")
    installed.gone("persistentvolume", volume, "")
    purged(installed)


def test_a_growth_for_which_there_is_no_room_is_told_everywhere_and_delays_no_removal(
    installed: Installed,
) -> None:
    """K3 to K5 and K7: one Event, `why`, `status` and the metric; and the claim goes at once."""
    claim_and_write(installed, DYNAMIC)
    volume = installed.volume_until(DYNAMIC, "Bound")["metadata"]["name"]
    more = {"spec": {"resources": {"requests": {"storage": "4Gi"}}}}
    installed.kubectl("patch", "pvc", DYNAMIC, "--type=merge", "-p", json.dumps(more))
    (agent,) = installed.pods(AGENT)
    failed = rf'^localvolume_grow_failed_total{{class="{DYNAMIC}"}} ([1-9]\S*)$'
    until(
        lambda: re.search(failed, installed.ask(agent, "/metrics"), re.MULTILINE),
        bool,
        seconds=150,
    )
    (said,) = until(partial(why_it_does_not_grow, installed), bool, seconds=150)
    assert "of room left" in said
    # An administrator's command, and the same in the agent's pod, which may not read everything:
    # what it cannot see, it does not call good.
    look = [sys.executable, "-m", "localvolume"]
    environment = {**os.environ, "KUBECONFIG": str(installed.plane.kubeconfig)}
    for words in (["status"], ["why", f"pvc/{DYNAMIC}"]):
        shown = subprocess.run(
            [*look, *words], env=environment, capture_output=True, text=True, timeout=300
        )
        assert "of room left" in shown.stdout, (words, shown.stdout, shown.stderr)
    inside = installed.execute(agent, "sh", "-c", "localvolume status || true")
    assert "not everything could be read" in inside
    assert "none known" not in inside
    assert why_it_does_not_grow(installed) == [said]
    installed.kubectl("delete", "pod", DYNAMIC, "--grace-period=1", "--timeout=300s")
    installed.kubectl("delete", "pvc", DYNAMIC, "--timeout=300s")
    installed.gone("persistentvolume", volume, "")
    purged(installed)


def test_the_first_claim_of_an_immediate_class_gets_no_warning(installed: Installed) -> None:
    """K6: its room is published a moment later."""
    named = served_class(installed)
    replace(installed, {**named, "volumeBindingMode": "Immediate"})
    try:
        claim = claim_of(DYNAMIC, "32Mi")
        made = json.loads(
            installed.kubectl("create", "-o", "json", "-f", "-", input=json.dumps(claim))
        )
        volume = installed.volume_until(DYNAMIC, "Bound")["metadata"]["name"]
        about = f"involvedObject.uid={made['metadata']['uid']},type=Warning"
        said = installed.kubectl("get", "events", "--field-selector", about, "-o", "json")
        assert [event["message"] for event in json.loads(said)["items"]] == []
        installed.kubectl("delete", "pvc", DYNAMIC, "--timeout=300s")
        installed.gone("persistentvolume", volume, "")
    finally:
        replace(installed, named)
    purged(installed)


def allocated(installed: Installed) -> tuple[str, str]:
    """K2: to what the claim says that it grows, and how far that is."""
    claim = json.loads(installed.kubectl("get", "pvc", DYNAMIC, "-o", "json"))
    size = claim["status"].get("allocatedResources", {}).get("storage", "")
    return size, claim["status"].get("allocatedResourceStatuses", {}).get("storage", "")


def grown(installed: Installed, size: str) -> None:
    has = ("get", "pvc", DYNAMIC, "-o", "jsonpath={.status.capacity.storage}")
    until(partial(installed.kubectl, *has), lambda said: said.strip() == size, seconds=150)


def has_resource_capability(installed: Installed, pod: Object) -> bool:
    """Whether its container was given CAP_SYS_RESOURCE: a machine may have none to give."""
    status = installed.execute(pod, "cat", "/proc/1/status")
    (effective,) = re.findall(r"^CapEff:\s+([0-9a-f]+)$", status, re.MULTILINE)
    return bool(int(effective, 16) >> CAP_SYS_RESOURCE & 1)


def why_it_does_not_grow(installed: Installed) -> list[str]:
    claim = json.loads(installed.kubectl("get", "pvc", DYNAMIC, "-o", "json"))
    field = f"involvedObject.uid={claim['metadata']['uid']},reason=VolumeResizeFailed"
    said = installed.kubectl("get", "events", "--field-selector", field, "-o", "json")
    return [event["message"] for event in json.loads(said)["items"]]


def measured(installed: Installed, volume: str, what: str) -> float:
    """`used` or `available` bytes of a volume as the agent tells them; 0: it does not."""
    (agent,) = installed.pods(AGENT)
    said = installed.ask(agent, "/metrics")
    line = rf'^localvolume_volume_{what}_bytes{{[^}}]*persistentvolume="{volume}"[^}}]*}} (\S+)$'
    found = re.search(line, said, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def blocks_in_pod(installed: Installed, pod: str) -> int:
    """How many KiB the filesystem has that the pod sees at /data."""
    said = installed.kubectl("exec", pod, "--", "df", "-k", "/data")
    return int(said.split()[-5])


def held_for_a_pod(installed: Installed, volume: Object) -> bool:
    # Of this object: the one before, of the same name, may have been held as well.
    field = f"involvedObject.uid={volume['metadata']['uid']},reason=VolumeFailedDelete"
    said = installed.kubectl("get", "events", "-A", "--field-selector", field, "-o", "json")
    messages = [event["message"] for event in json.loads(said)["items"]]
    assert not any("cannot be seen" in message for message in messages), messages
    return any("a pod still has it mounted" in message for message in messages)


def purged(installed: Installed) -> None:
    """Nothing of the volume is left in its pool, and no device is attached."""
    until(lambda: left_in(installed.node, POOL), lambda left: not left, seconds=150)
