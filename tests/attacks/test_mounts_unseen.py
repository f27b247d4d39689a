"""S3, S12: what an agent cannot see of mounts: nothing is cleaned on the strength of that."""

import os
from pathlib import Path

import pytest

from tests.cluster.support_agent import Lab
from tests.host.support_devices import bind, command, mounted, unmount

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

UNSEEN = "what pods have mounted cannot be seen"


def pods_of(lab: Lab) -> Path:
    """Where the kubelet of the test's node has the mounts of pods, once it is made."""
    return lab.directory / "kubelet" / "pods"


def test_while_no_mount_of_a_pod_can_be_seen_no_filesystem_is_cleaned(lab: Lab) -> None:
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start(kubelet_directory=str(pods_of(lab).parent))
    volume = lab.published(fs, "one")
    assert lab.http("/ready")[0] == 500
    assert UNSEEN in lab.http("/ready")[1]
    assert lab.logged(f"no filesystem can be cleaned: {UNSEEN}")
    claim = lab.bound(volume)
    (path / "secret").write_text("a container that runs still reads it")
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", UNSEEN)
    lab.stays(volume)
    assert (path / "secret").exists()
    pods_of(lab).mkdir(parents=True)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert not (path / "secret").exists()
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)


def test_a_copy_of_the_kubelets_directory_shows_no_new_pods(lab: Lab) -> None:
    """Mounted without propagation, it shows the mounts of when the agent started."""
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    pods_of(lab).mkdir(parents=True)
    kubelet = pods_of(lab).parent
    lab.stack.enter_context(bind(kubelet, kubelet))
    command("mount", "--make-private", kubelet)
    lab.start(kubelet_directory=str(kubelet))
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (path / "secret").write_text("a container that runs still reads it")
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "is mounted without propagation")
    lab.stays(volume)
    assert (path / "secret").exists()
    # A container gets another mount with its next start; the kernel tells nobody of this.
    lab.stop()
    command("mount", "--make-shared", kubelet)
    lab.start(kubelet_directory=str(kubelet))
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])


def test_what_a_pod_has_mounted_there_is_not_cleaned(lab: Lab) -> None:
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    pods_of(lab).mkdir(parents=True)
    lab.start(kubelet_directory=str(pods_of(lab).parent))
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (path / "secret").write_text("a container that runs still reads it")
    name = volume["metadata"]["name"]
    inside = pods_of(lab) / f"uid/volumes/kubernetes.io~local-volume/{name}"
    inside.mkdir(parents=True)
    with bind(path, inside):
        lab.delete_claim(claim)
        lab.event(name, "VolumeFailedDelete", "a pod still has it mounted")
        assert (path / "secret").exists()
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])


def test_nothing_is_cleaned_before_first_use_either(lab: Lab) -> None:
    fs = lab.add_class("fs", firstUse="clean")
    path = lab.mount(lab.disk(), fs.path("one"))
    (path / "secret").write_text("a container that runs still reads it")
    lab.start(kubelet_directory=str(pods_of(lab).parent))
    lab.until(lambda: lab.held(fs), lambda held: held == {"not-empty": 1})
    lab.settle()
    assert (path / "secret").exists()
    pods_of(lab).mkdir(parents=True)
    lab.published(fs, "one")
    assert not (path / "secret").exists()


def test_the_copy_of_a_mount_that_the_host_has_ended_is_not_cleaned(lab: Lab) -> None:
    """A DaemonSet without mountPropagation: the host's unmounting does not reach its agent."""
    fs = lab.add_class("fs")
    lab.stack.enter_context(bind(fs.directory, fs.directory))
    command("mount", "--make-shared", fs.directory)
    path, disk = fs.path("one"), lab.disk()
    lab.mount(disk, path)
    lab.start()
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (path / "secret").write_text("on a disk that is moved elsewhere")
    lab.stop()
    apart = ("unshare", "--mount", "--propagation", "private")
    lab.start_process(prefix=apart)
    unmount(path)
    lab.delete_claim(claim)
    lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "is mounted without propagation")
    assert lab.http("/ready")[0] == 500
    lab.stop()
    with mounted(disk) as elsewhere:
        assert (elsewhere / "secret").exists()


def test_a_directory_that_hears_of_the_host_is_served(lab: Lab) -> None:
    """The same, as the chart has it: rslave."""
    fs = lab.add_class("fs")
    lab.stack.enter_context(bind(fs.directory, fs.directory))
    command("mount", "--make-shared", fs.directory)
    path = lab.mount(lab.disk(), fs.path("one"))
    lab.start_process(prefix=("unshare", "--mount", "--propagation", "slave"))
    volume = lab.published(fs, "one")
    claim = lab.bound(volume)
    (path / "secret").write_text("the former tenant's")
    lab.delete_claim(claim)
    lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    assert os.listdir(path) in ([], ["lost+found"])
