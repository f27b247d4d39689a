"""S14: hostDir is edited, what the agent's pod has mounted is not: nothing is offered by a path at
which it does not lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.support_accounts import account, allow, in_force, rule
from tests.cluster.support_agent import Class, Lab
from tests.cluster.support_dynamic import DynamicLab
from tests.faults.support_proxy import Order, proxy_for

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

impatient = pytest.mark.usefixtures("impatient")

PODS = "/api/v1/namespaces/default/pods"
UNKNOWN = "what the agent's pod has mounted is not known"
RIGHTS = [
    rule("persistentvolumes", "get", "list", "watch", "create", "patch", "delete"),
    rule("nodes", "list", "watch"),
    rule("events", "create", "patch"),
    rule("storageclasses", "list", "watch", group="storage.k8s.io"),
    rule("jobs", "list", "watch", group="batch"),
]


def make_pod(lab: Lab, mounts: Mapping[Path, str], name: str = "") -> str:
    """The pod that the lab's agent is to take for its own, with these paths of the host mounted."""
    name = name or f"{lab.unique}-agent"
    body = {
        "metadata": {"name": name},
        "spec": {
            "nodeName": lab.node,
            "containers": [
                {
                    "name": "provisioner",
                    "image": "none",
                    "volumeMounts": [
                        {"name": f"v{at}", "mountPath": str(path)} for at, path in enumerate(mounts)
                    ],
                }
            ],
            "volumes": [
                {"name": f"v{at}", "hostPath": {"path": path}}
                for at, path in enumerate(mounts.values())
            ],
        },
    }
    lab.objects.make(PODS, body)
    return name


def edit(lab: Lab, cls: Class, **keys: str) -> None:
    lab.settings["storageClassMap"][cls.name] |= keys
    lab.configure()


def not_ready(lab: Lab, *texts: str) -> None:
    lab.until(
        lambda: lab.http("/ready"),
        lambda got: got[0] == 500 and all(text in got[1] for text in texts),
    )


def ready(lab: Lab) -> None:
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)


@impatient
def test_what_is_not_where_its_path_says_is_not_offered(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    name = make_pod(lab, {fs.directory: fs.host_dir})
    lab.start_process(variables={"MY_POD_NAME": name, "MY_NAMESPACE": "default"})
    first = lab.published(fs, "one")
    ready(lab)
    edit(lab, fs, hostDir="/host/elsewhere")
    wrong = (
        f"hostDir is /host/elsewhere, but what the agent's pod has at mountDir {fs.directory} is"
        f" {fs.host_dir} of the host: edit hostDir"
    )
    not_ready(lab, f"{fs.name}: {wrong}")
    lab.mount(lab.disk(), fs.path("two"))
    # What is offered stays, and is told of; what is new is not offered.
    lab.stays(first)
    assert [one["metadata"]["uid"] for one in lab.volumes()] == [first["metadata"]["uid"]]
    assert lab.metric("localvolume_class_problem", **{"class": fs.name}) == 1
    assert lab.logged(f"class {fs.name}: {wrong}")
    edit(lab, fs, hostDir=fs.host_dir)
    lab.published(fs, "two")
    ready(lab)
    lab.stays(first)


@impatient
def test_what_a_class_that_looks_elsewhere_has_held_is_kept(lab: Lab) -> None:
    """The other half is edited: the agent looks where no volume of the class lies."""
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    elsewhere = lab.directory / "elsewhere"
    elsewhere.mkdir()
    other = lab.mount(lab.disk(), elsewhere / "one")
    (other / "data").write_text("of somebody else")
    name = make_pod(lab, {fs.directory: fs.host_dir, elsewhere: "/host/other"})
    lab.start(pod_name=name)
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (path / "data").write_text("of the claim")
    edit(lab, fs, mountDir=str(elsewhere))
    not_ready(lab, f"hostDir is {fs.host_dir}", f"mountDir {elsewhere} is /host/other of the host")
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", f"hostDir is {fs.host_dir}")
    found = lab.volume(volume["metadata"]["name"])
    assert found is not None
    assert found["metadata"]["uid"] == volume["metadata"]["uid"]
    assert (path / "data").exists()
    assert (other / "data").exists()
    edit(lab, fs, mountDir=str(fs.directory))
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (path / "data").exists()
    assert (other / "data").exists()


@impatient
def test_what_is_in_the_container_alone_is_not_offered(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    lab.start(pod_name=make_pod(lab, {lab.directory / "beside": "/host/beside"}))
    not_ready(lab, f"mountDir {fs.directory} is not of the host: mount {fs.host_dir} there")
    lab.settle()
    assert lab.volumes() == []


def test_a_pool_that_is_elsewhere_makes_and_removes_nothing(dynamic: DynamicLab) -> None:
    lab = dynamic
    pool, cls = lab.pool(), lab.storage_class()
    where = str(pool.directory)
    lab.start(pod_name=make_pod(lab, {pool.directory: where}))
    old = lab.claim(cls)
    volume = lab.made(old)
    path = lab.path_of(volume)
    (path / "data").write_text("of the claim")
    ready(lab)
    lab.settings["pools"]["fast"] |= {"hostDir": "/host/elsewhere", "mountDir": where}
    lab.configure()
    wrong = "hostDir is /host/elsewhere, but what the agent's pod has at mountDir"
    not_ready(lab, f"pool fast: the pool fast: {wrong} {where} is {where} of the host")
    lab.event(lab.node, "PoolProblem", wrong)
    assert lab.metric("localvolume_pool_problem", pool="fast") == 1
    new = lab.claim(cls)
    lab.claim_event(new, "ProvisioningFailed", wrong)
    lab.delete(old)
    lab.until(lambda: lab.phase(volume["metadata"]["name"]), lambda phase: phase == "Released")
    lab.settle()
    assert lab.volume_of(new) is None
    assert pool.inside() == [path.name]
    assert (path / "data").exists()
    assert lab.volume(volume["metadata"]["name"]) is not None
    lab.settings["pools"]["fast"] = {"hostDir": where, "enforce": "none"}
    lab.configure()
    lab.gone(volume)
    ready(lab)
    lab.made(lab.claim(cls))


def test_a_pool_that_never_was_where_it_is_said_is_not_begun(dynamic: DynamicLab) -> None:
    """Nothing of ours is written into what may be anybody's directory."""
    lab = dynamic
    pool, cls = lab.pool(), lab.storage_class()
    lab.start(pod_name=make_pod(lab, {pool.directory: "/host/other"}))
    claim = lab.claim(cls)
    lab.claim_event(claim, "ProvisioningFailed", "is /host/other of the host: edit hostDir")
    lab.settle()
    assert set(os.listdir(pool.directory)) <= {"lost+found"}


@impatient
def test_while_the_pod_is_not_known_volumes_go_on_and_that_is_said(lab: Lab) -> None:
    """An agent is upgraded, and its roles are not: then nothing is worse than before."""
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    pod = make_pod(lab, {fs.directory: "/host/other"})
    lab.kubeconfig = account(lab, RIGHTS)
    lab.start(pod_name=pod)
    first = lab.published(fs, "one")
    not_ready(lab, f"pod: {UNKNOWN}", "forbidden")
    assert lab.logged(f"ERROR {UNKNOWN}")
    # Once it may be read, it is, by itself.
    rights = [*RIGHTS, rule("pods", "list")]
    allow(lab, rights)
    in_force(lab, rights)
    not_ready(lab, f"{fs.name}: hostDir is {fs.host_dir}", "is /host/other of the host")
    assert UNKNOWN not in lab.http("/ready")[1]
    lab.mount(lab.disk(), fs.path("two"))
    lab.stays(first)
    assert lab.volumes_at(fs, "two") == []


@impatient
def test_before_the_pod_is_known_nothing_is_looked_at(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    name = make_pod(lab, {fs.directory: "/host/other"})
    with proxy_for(lab.plane, lab.directory) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        # Also what is asked again: one that was held for too long is.
        held = Order("hold", ("list",), "pods")
        lists = [Order("delay", ("list",), kind) for kind in ("nodes", "storageclasses", "jobs")]
        proxy.orders += [held, *lists]
        lab.start(pod_name=name, wait=False)
        # All that it needs to know beside, it knows.
        lab.until(lambda: [held.met, *(one.answered for one in lists)], all)
        time.sleep(2)
        assert lab.looks() == 0
        assert lab.volumes() == []
        held.release()
        not_ready(lab, f"{fs.name}: hostDir is {fs.host_dir}", "is /host/other of the host")
        assert lab.volumes() == []
        lab.stop()


@impatient
def test_a_pod_that_is_not_there_is_not_known_either(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    name = f"{lab.unique}-late"
    lab.start(pod_name=name)
    lab.published(fs, "one")
    not_ready(lab, f"pod: {UNKNOWN}", f"there is no pod {name} in default")
    make_pod(lab, {fs.directory: fs.host_dir}, name)
    ready(lab)


@impatient
def test_plan_and_why_say_it_too(lab: Lab) -> None:
    fs = lab.add_class("fs")
    lab.mount(lab.disk(), fs.path("one"))
    pool = lab.directory / "pool"
    pool.mkdir()
    lab.mount(lab.disk(), pool)
    lab.settings["pools"] = {"fast": {"hostDir": "/host/pool", "mountDir": str(pool)}}
    lab.configure()
    variables = {
        "MY_POD_NAME": make_pod(lab, {fs.directory: "/host/other", pool: "/host/another"}),
        "MY_NAMESPACE": "default",
        "MY_NODE_NAME": lab.node,
        "KUBELET_DIR": "none",
        "RECORDS_DIR": str(lab.records),
        "KUBECONFIG": str(lab.plane.kubeconfig),
    }

    def say(*words: str) -> Any:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "localvolume", *words),
                *("-o", "json", "--config", str(lab.config_directory)),
            ],
            env={**os.environ, **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (of_class, of_pool) = say("plan")
    assert of_class["path"] == fs.host_dir
    assert "is /host/other of the host" in of_class["reason"]
    assert "is /host/another of the host" in of_pool["reason"]
    assert "is /host/other of the host" in say("why", fs.host_path("one"))["reason"]
    assert "is /host/another of the host" in say("why", "/host/pool/a")["reason"]
