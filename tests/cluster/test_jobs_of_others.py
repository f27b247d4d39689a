"""Jobs that are not the one for this volume: an older provisioner's, and those of older objects."""

import time
from typing import Any

import pytest

from tests.cluster.support_agent import GENERATION, Class, Lab, Volume
from tests.cluster.support_pods import Kubelet, job_of, jobs_of
from tests.suite.api import JOBS, MERGE, VOLUMES

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def upstreams_job(lab: Lab, cls: Class, volume: Volume, entry: str) -> str:
    """A Job as upstream makes it (its deleter.go and createjob.go), which nothing runs."""
    meta = volume["metadata"]
    name = f"cleanup-{meta['name']}"
    container = {
        "name": "cleaner",
        "image": "upstream",
        "command": ["/scripts/shred.sh", "2"],
        "env": [{"name": "LOCAL_PV_BLKDEVICE", "value": str(cls.path(entry))}],
        "securityContext": {"privileged": True},
    }
    lab.objects.make(
        JOBS,
        {
            "metadata": {
                "name": name,
                "labels": {
                    "kubernetes.io/hostname": lab.node,
                    "pv": meta["name"],
                    "pvuuid": meta["uid"],
                },
                "annotations": {
                    "device": str(cls.path(entry)),
                    "start-time": "2026-01-01T00:00:00Z",
                },
            },
            "spec": {
                "template": {
                    "spec": {
                        "containers": [container],
                        "nodeSelector": {"kubernetes.io/hostname": lab.node},
                        "restartPolicy": "OnFailure",
                    }
                }
            },
        },
    )
    return name


def end(lab: Lab, name: str) -> None:
    """Have the Job be complete, as its controller would say, once that has said that it began."""
    job = lab.until(
        lambda: lab.plane.request("GET", f"{JOBS}/{name}"),
        lambda found: "startTime" in found["status"],
    )
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("SuccessCriteriaMet", "Complete")
    ]
    status = {
        "conditions": conditions,
        "startTime": job["status"]["startTime"],
        "completionTime": now,
        "succeeded": 1,
        "active": None,
        "ready": None,
        "terminating": None,
        "uncountedTerminatedPods": None,
    }
    lab.plane.request("PATCH", f"{JOBS}/{name}/status", {"status": status}, content_type=MERGE)


def taken_over(lab: Lab, **keys: Any) -> tuple[Class, Volume, Any]:
    """A Released volume that upstream had begun to clean, in a Job, when it was replaced."""
    fs = lab.add_class("fs", **keys)
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    volume = lab.released(lab.remake(volume))
    (where / "data").write_text("tenant")
    return fs, volume, where


def labels_of(lab: Lab, name: str) -> dict[str, str]:
    found: dict[str, str] = lab.plane.request("GET", f"{JOBS}/{name}")["metadata"]["labels"]
    return found


@pytest.mark.parametrize("by_jobs", [True, False])
def test_upstreams_job_is_waited_for_and_not_trusted(
    lab: Lab, kubelet: Kubelet, by_jobs: bool
) -> None:
    lab.settings["useJobForCleaning"] = by_jobs
    kubelet.admit = lambda pod: pod["spec"]["containers"][0]["image"] != "upstream"
    fs, volume, where = taken_over(lab)
    meta = volume["metadata"]
    # Given back to us by whoever adopts.
    lab.patch(meta["name"], {"metadata": {"labels": {"localvolume.dev/node": lab.node}}})
    name = upstreams_job(lab, fs, volume, "one")
    before = labels_of(lab, name)
    lab.start()
    lab.event(meta["name"], "VolumeCleaningWaits", f"the Job {name} is at work on it")
    assert labels_of(lab, name) == before | {"localvolume.dev/node": lab.node}
    lab.stays(volume)
    assert (where / "data").exists()
    end(lab, name)
    lab.published(fs, "one", unlike=meta["uid"])
    assert not (where / "data").exists(), "its Job removed nothing, so we had to"
    assert len(kubelet.began) == by_jobs


def test_a_volume_without_an_object_is_not_offered_beside_a_job(lab: Lab) -> None:
    """Upstream's PersistentVolume was deleted by hand while its Job was at work."""
    fs = lab.add_class("fs", firstUse="clean")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    lab.remove(volume)
    (where / "half").write_text("what the Job has not reached yet")
    name = upstreams_job(lab, fs, volume, "one")
    lab.start()
    lab.until(lambda: lab.held(fs), lambda held: held == {"job": 1})
    for _ in range(2):
        lab.settle()
    assert lab.volumes() == []
    assert (where / "half").exists(), "cleaned beside another cleaner"
    end(lab, name)
    lab.published(fs, "one")
    assert not (where / "half").exists()


def test_an_available_volume_under_a_job_is_withdrawn(lab: Lab) -> None:
    """Upstream's defect: published again while its Job still wipes."""
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    lab.stop()
    name = upstreams_job(lab, fs, volume, "one")
    lab.start()
    lab.until(lab.volumes, lambda volumes: volumes == [])
    end(lab, name)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])


def test_a_job_for_an_older_object_of_the_same_name(lab: Lab, kubelet: Kubelet) -> None:
    """Its finalizer was taken away by force: the Job still works on what is published anew."""
    kubelet.admit = lambda _: False
    fs = lab.add_class("fs")
    where = lab.mount(lab.disk(), fs.path("one"))
    lab.start()
    volume = lab.published(fs, "one")
    meta = volume["metadata"]
    claim = lab.bound(volume)
    (where / "data").write_text("tenant")
    lab.delete_claim(claim)
    job = lab.until(lambda: job_of(lab, volume), bool)
    assert job is not None
    lab.stop()
    # The garbage collector would take it with its owner: somebody keeps it.
    path = f"{JOBS}/{job['metadata']['name']}"
    lab.plane.request("PATCH", path, {"metadata": {"ownerReferences": None}}, content_type=MERGE)
    lab.patch(meta["name"], {"metadata": {"finalizers": None}})
    lab.until(lambda: lab.volume(meta["name"]), lambda found: found is None)
    fresh = {key: meta[key] for key in ("name", "labels", "annotations")}
    lab.forget_record(volume)
    gone = (GENERATION, "pv.kubernetes.io/bound-by-controller")
    fresh["annotations"] = {k: v for k, v in fresh["annotations"].items() if k not in gone}
    spec = {k: v for k, v in volume["spec"].items() if k != "claimRef"}
    made = lab.objects.make(
        VOLUMES, {"metadata": {**fresh, "finalizers": ["localvolume.dev/volume"]}, "spec": spec}
    )
    again = lab.released(made)
    lab.start()
    waits = f"the Job {job['metadata']['name']} is at work on it"
    lab.event(meta["name"], "VolumeCleaningWaits", waits)
    lab.stays(again)
    assert [j["metadata"]["uid"] for j in jobs_of(lab)] == [job["metadata"]["uid"]]
    assert (where / "data").exists()
    kubelet.admit = lambda _: True
    lab.published(fs, "one", unlike=again["metadata"]["uid"])
    assert len(kubelet.began) == 2, "each object has a Job of its own"
    assert not (where / "data").exists()


@pytest.mark.parametrize("by_jobs", [True, False])
def test_a_job_of_another_node_is_not_believed(lab: Lab, kubelet: Kubelet, by_jobs: bool) -> None:
    """An agent may make Jobs with its own node's label, of any name: one that has nothing to do
    ends well at once, and would let the volume of another node go as it is. Nor is it in the way.
    """
    lab.settings["useJobForCleaning"] = by_jobs
    fs, volume, where = taken_over(lab)
    meta = volume["metadata"]
    lab.patch(meta["name"], {"metadata": {"labels": {"localvolume.dev/node": lab.node}}})
    name = f"cleanup-{meta['uid']}"
    labels = {"localvolume.dev/node": f"not-{lab.node}", "pv": meta["name"], "pvuuid": meta["uid"]}
    container = {"name": "cleaner", "image": "none"}
    pod = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    forged = {
        "metadata": {
            "name": name,
            "labels": labels,
            "annotations": {"device": str(fs.path("one"))},
        },
        "spec": {"completions": 0, "template": pod},
    }
    lab.objects.make(JOBS, forged)
    lab.until(
        lambda: lab.plane.request("GET", f"{JOBS}/{name}")["status"].get("conditions", []),
        lambda found: any(one["type"] == "Complete" for one in found),
    )
    lab.start()
    lab.published(fs, "one", unlike=meta["uid"])
    assert not (where / "data").exists()
    assert len(kubelet.began) == by_jobs
    assert lab.plane.request("GET", f"{JOBS}/{name}")["metadata"]["labels"] == labels


def test_a_job_of_nobody_is_in_the_way(lab: Lab, kubelet: Kubelet) -> None:
    """Without a node's label it may run on any, this one too."""
    lab.settings["useJobForCleaning"] = True
    fs, volume, where = taken_over(lab)
    meta = volume["metadata"]
    lab.patch(meta["name"], {"metadata": {"labels": {"localvolume.dev/node": lab.node}}})
    name = f"cleanup-{meta['uid']}"
    pod = {"spec": {"containers": [{"name": "c", "image": "none"}], "restartPolicy": "Never"}}
    lab.objects.make(
        JOBS, {"metadata": {"name": name}, "spec": {"completions": 0, "template": pod}}
    )
    lab.start()
    lab.event(meta["name"], "VolumeFailedDelete", f"{name} is not this agent's for this volume")
    lab.settle()
    assert [one["metadata"]["uid"] for one in lab.volumes()] == [meta["uid"]]
    assert (where / "data").exists()
    lab.plane.request("DELETE", f"{JOBS}/{name}?propagationPolicy=Background")
    lab.published(fs, "one", unlike=meta["uid"])
    assert not (where / "data").exists()
    assert len(kubelet.began) == 1
