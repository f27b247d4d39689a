"""Released volumes are cleaned in Jobs: both volume modes, once, proved, and collected."""

import os
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_pods import Kubelet, job_of, jobs_of

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

PREFIX = "local_volume_provisioner_"
SECRET = b"the former tenant's secret "


def test_a_filesystem_is_emptied_by_a_job(lab: Lab, kubelet: Kubelet) -> None:
    fs = lab.add_class("fs", mountDir=lab.directory / "with space $(HOME) $$")
    fs.directory.mkdir()
    where = lab.mount(lab.disk(), fs.path("a $(b) disk"))
    lab.start()
    volume = lab.published(fs, "a $(b) disk")
    name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
    claim = lab.bound(volume)
    (where / "tenant").mkdir()
    (where / "tenant" / "data").write_text("secret")
    lab.delete_claim(claim)
    again = lab.published(fs, "a $(b) disk", unlike=uid)
    assert [p.name for p in where.iterdir() if p.name != "lost+found"] == []
    assert again["metadata"]["name"] == name
    assert len(kubelet.began) == 1
    lab.event(name, "VolumeDelete", f"in the Job default/cleanup-{uid}")
    message = lab.event(name, "VolumeCleaned")["message"]
    assert "delete-files: 2 files and directories" in message
    assert "proved" in message
    labels = {"mode": "Filesystem", "type": "job"}
    assert lab.metric(f"{PREFIX}persistentvolume_delete_total", **labels) == 1
    seconds = f"{PREFIX}persistentvolume_delete_duration_seconds_count"
    shown = {**labels, "capacity": "500G", "cleanup_command": "delete-files"}
    assert lab.metric(seconds, **shown) == 1
    by_process = {"mode": "Filesystem", "type": "process"}
    assert lab.metric(f"{PREFIX}persistentvolume_delete_total", **by_process) is None
    # Its owner is gone: the garbage collector takes it, long before an hour is over.
    lab.until(lambda: jobs_of(lab), lambda jobs: not jobs)


def test_a_device_is_zeroed_by_a_job(lab: Lab, kubelet: Kubelet) -> None:
    block = lab.add_class("block", volumeMode="Block")
    device = lab.raw_disk(4 << 20)
    lab.link(device, block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    claim = lab.bound(volume)
    Path(device.path).write_bytes(SECRET * ((4 << 20) // len(SECRET)))
    lab.delete_claim(claim)
    lab.published(block, "raw", unlike=volume["metadata"]["uid"])
    assert not any(Path(device.path).read_bytes())
    assert len(kubelet.began) == 1
    lab.event(volume["metadata"]["name"], "VolumeCleaned", "zero: 4.0 MiB")


def test_what_the_job_is_like(lab: Lab, kubelet: Kubelet) -> None:
    """As the API server keeps it: what it defaults, drops or refuses shows here."""
    lab.settings |= {
        "jobTolerations": [{"key": "dedicated", "operator": "Exists"}],
        "jobResources": {"limits": {"memory": "128Mi"}},
    }
    command = ["/bin/sh", "-c", 'dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M count=4']
    block = lab.add_class(
        "block", volumeMode="Block", cleaningTimeout="5m", blockCleanerCommand=command
    )
    kubelet.admit = lambda _: False
    device = lab.raw_disk(4 << 20)
    lab.link(device, block.path("raw"))
    lab.start()
    volume = lab.published(block, "raw")
    name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
    lab.delete_claim(lab.bound(volume))
    job = lab.until(lambda: job_of(lab, volume), bool)
    assert job is not None
    meta, spec = job["metadata"], job["spec"]
    assert meta["labels"] | {} == {
        "kubernetes.io/hostname": lab.node,
        "localvolume.dev/node": lab.node,
        "pv": name,
        "pvuuid": uid,
    }
    assert meta["annotations"]["device"] == str(block.path("raw"))
    assert [(o["kind"], o["name"], o["uid"]) for o in meta["ownerReferences"]] == [
        ("PersistentVolume", name, uid)
    ]
    assert (spec["backoffLimit"], spec["parallelism"], spec["completions"]) == (0, 1, 1)
    assert spec["activeDeadlineSeconds"] == 300 + 600
    assert spec["ttlSecondsAfterFinished"] == 3600
    pod = spec["template"]["spec"]
    assert spec["template"]["metadata"]["labels"]["localvolume.dev/node"] == lab.node
    assert pod["restartPolicy"] == "Never"
    assert pod["nodeSelector"] == {"kubernetes.io/hostname": lab.node}
    assert pod["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert pod["automountServiceAccountToken"] is False
    container = pod["containers"][0]
    assert container["name"] == "cleaner"
    assert container["image"] == lab.job_image
    assert container["command"] == ["localvolume", "clean"]
    assert container["env"] == [{"name": "LOCAL_PV_BLKDEVICE", "value": str(block.path("raw"))}]
    assert container["securityContext"] == {"privileged": True}
    assert container["resources"]["limits"] == {"memory": "128Mi"}
    assert container["args"][-4:-1] == ["--", "/bin/sh", "-c"]
    mounted = {m["mountPath"]: m for m in container["volumeMounts"]}
    assert mounted.keys() - {"/run/udev"} == {str(block.directory), "/dev"}
    assert mounted[str(block.directory)]["mountPropagation"] == "HostToContainer"
    hosts = {v["name"]: v["hostPath"]["path"] for v in pod["volumes"]}
    assert hosts[mounted[str(block.directory)]["name"]] == block.host_dir
    kubelet.admit = lambda _: True
    lab.published(block, "raw", unlike=uid)


@pytest.mark.parametrize("killed", [False, True])
def test_a_running_job_is_not_doubled_also_by_the_next_agent(
    lab: Lab, kubelet: Kubelet, killed: bool
) -> None:
    pids, go = lab.directory / "pids", lab.directory / "go"
    script = f'echo $$ >> "{pids}"; while [ ! -e "{go}" ]; do sleep 0.05; done'
    block = lab.add_class(
        "block", volumeMode="Block", blockCleanerCommand=["/bin/sh", "-c", script]
    )
    lab.link(lab.raw_disk(4 << 20), block.path("raw"))
    process = lab.start_process() if killed else None
    if process is None:
        lab.start()
    volume = lab.published(block, "raw")
    name, uid = volume["metadata"]["name"], volume["metadata"]["uid"]
    lab.delete_claim(lab.bound(volume))
    lab.until(lambda: pids.exists() and pids.read_text().endswith("\n"), bool)
    job = job_of(lab, volume)
    assert job is not None
    for _ in range(2):
        lab.settle()
    if process is None:
        lab.stop()
        assert lab.logged("cleaning stopped; it will begin anew")
    else:
        process.kill()
        lab.agent = None
    assert os.path.exists(f"/proc/{pids.read_text().strip()}"), "the Job goes on without us"
    lab.start()
    for _ in range(2):
        lab.settle()
    found = lab.volume(name)
    assert found is not None
    assert found["metadata"]["uid"] == uid
    assert [j["metadata"]["uid"] for j in jobs_of(lab)] == [job["metadata"]["uid"]]
    go.touch()
    lab.published(block, "raw", unlike=uid)
    assert len(kubelet.began) == 1
    lab.event(name, "VolumeCleaned", "done")


def test_a_job_that_ended_while_no_agent_was_there(lab: Lab, kubelet: Kubelet) -> None:
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    kubelet.admit = lambda _: False
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    lab.until(lambda: job_of(lab, volume), bool)
    lab.stop()
    kubelet.admit = lambda _: True

    def ended() -> bool:
        job = job_of(lab, volume)
        return job is not None and any(
            c["type"] == "Complete" for c in job["status"].get("conditions", [])
        )

    lab.until(ended, bool)
    lab.start()
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert len(kubelet.began) == 1
    assert not (where / "data").exists()


@pytest.mark.parametrize("length", [20, 100])
def test_the_job_finds_a_node_whose_hostname_is_not_its_name(
    lab: Lab, kubelet: Kubelet, length: int
) -> None:
    """Upstream selects by the name: its Job is never scheduled, or never even made."""
    lab.node = f"{lab.unique}-{'x' * length}.example"
    lab.make_node({"kubernetes.io/hostname": f"{lab.unique}-host"})
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (where / "data").exists()
    (pod,) = kubelet.pods
    assert pod["spec"]["nodeName"] == lab.node
