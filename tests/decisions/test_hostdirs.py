"""Whether the agent's pod has the configured hostDir at mountDir, by what its spec says."""

from __future__ import annotations

import pytest

from localvolume.config.model import ClassConfig, Configuration
from localvolume.kube.podmounts import PodMounts
from localvolume.static.plan.surroundings import surroundings
from localvolume.volumes.hostdirs import misplaced
from localvolume.volumes.manifest import NodeFacts
from tests.suite.podmounts import host, pod, scratch

FITS = {
    "the same name": (pod(host("/mnt/fast", "/mnt/fast")), "/mnt/fast", "/mnt/fast"),
    "two names": (pod(host("/seen/fast", "/mnt/fast")), "/mnt/fast", "/seen/fast"),
    "below a mount": (pod(host("/seen", "/mnt")), "/mnt/a/fast", "/seen/a/fast"),
    "below the root": (pod(host("/host", "/")), "/mnt/fast", "/host/mnt/fast"),
    "the whole container": (pod(host("/", "/srv")), "/srv/fast", "/fast"),
    "slashes": (pod(host("/seen//fast/", "/mnt/./fast/")), "//mnt/fast/", "/seen/fast"),
    "a subPath": (pod(host("/seen", "/mnt", subPath="a/fast/")), "/mnt/a/fast", "/seen"),
    "below a subPath": (pod(host("/seen", "/mnt", subPath="a")), "/mnt/a/fast", "/seen/fast"),
    "the innermost": (
        pod(host("/seen/fast", "/mnt/fast"), host("/seen", "/mnt/other"), scratch("/")),
        *("/mnt/fast", "/seen/fast"),
    ),
    "beside it": (pod(host("/a", "/a"), host("/a/b", "/c"), scratch("/ab")), "/a/bc", "/a/bc"),
    # Links on the host are not seen: /mnt/link is what both say.
    "a link of the host": (pod(host("/seen", "/mnt/link")), "/mnt/link", "/seen"),
}


@pytest.mark.parametrize("name", FITS)
def test_it_fits(name: str) -> None:
    assert misplaced(*FITS[name]) is None


MISFITS = {
    "hostDir edited": (pod(host("/seen", "/mnt/fast")), "/mnt/slow", "/seen", "/mnt/fast"),
    "mountDir edited": (
        pod(host("/a", "/mnt/a"), host("/b", "/mnt/b")), "/mnt/a", "/b", "/mnt/b"
    ),
    "below the mount": (pod(host("/seen", "/mnt")), "/mnt", "/seen/fast", "/mnt/fast"),
    "above what is meant": (pod(host("/seen", "/mnt")), "/mnt/fast", "/seen", "/mnt"),
    "another subPath": (pod(host("/seen", "/mnt", subPath="a")), "/mnt/b", "/seen", "/mnt/a"),
    "the innermost": (
        pod(host("/seen", "/mnt"), host("/seen/fast", "/srv")),
        *("/mnt/fast", "/seen/fast", "/srv"),
    ),
    "a name that goes on": (pod(host("/mnt", "/mnt")), "/mnt/fast", "/mnt/fast2", "/mnt/fast2"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISFITS)
def test_another_directory_of_the_host_is_named_with_what_to_edit(name: str) -> None:
    of, host_dir, mount_dir, there = MISFITS[name]
    assert misplaced(of, host_dir, mount_dir) == (
        f"hostDir is {host_dir}, but what the agent's pod has at mountDir {mount_dir} is {there} of"
        f" the host: edit hostDir, or mount {host_dir} there (volumes and volumeMounts of the"
        " DaemonSet)"
    )


@pytest.mark.parametrize(
    "of",
    [
        pod(),
        pod(host("/other", "/mnt/fast")),
        pod(host("/seen/fast/more", "/mnt/fast")),
        pod(scratch("/seen/fast")),
        pod(host("/seen", "/mnt"), scratch("/seen/fast")),
        pod(volumes=None),
    ],
)
def test_what_is_not_of_the_host_is_nobodys_volume(of: PodMounts) -> None:
    said = misplaced(of, "/mnt/fast", "/seen/fast")
    assert said is not None
    assert said.startswith("hostDir is /mnt/fast, but what the agent's pod has at mountDir")
    assert "/seen/fast is not of the host: mount /mnt/fast there" in said


def test_the_agents_container_is_the_one_that_is_told_the_pods_name() -> None:
    mount, source = host("/seen", "/mnt/fast")
    env = [{"name": "MY_POD_NAME"}]
    sidecar = {"name": "sidecar", "volumeMounts": [{"name": "other", "mountPath": "/seen"}]}
    agent = {"name": "agent", "env": env, "volumeMounts": [{"name": "fast", **mount}]}
    volumes = [{"name": "fast", **source}, {"name": "other", "hostPath": {"path": "/other"}}]
    both = pod(containers=[sidecar, agent], volumes=volumes)
    assert misplaced(both, "/mnt/fast", "/seen") is None
    assert misplaced(both, "/other", "/seen") is not None
    # Which of two it is, nobody can tell.
    for others in ([sidecar, sidecar], [agent, {**sidecar, "env": env}]):
        assert misplaced(pod(containers=others, volumes=volumes), "/nowhere", "/seen") is None


def test_where_nobody_can_tell_nothing_is_said() -> None:
    assert misplaced(None, "/mnt/fast", "/seen/fast") is None
    expanded = pod(host("/seen", "/mnt", subPathExpr="$(MY_NODE_NAME)"))
    assert misplaced(expanded, "/mnt/fast", "/seen") is None
    # A volume group has no directory.
    assert misplaced(pod(), "", "") is None


def test_a_class_that_is_misplaced_has_a_problem_and_is_not_looked_at() -> None:
    classes = {
        name: ClassConfig(name=name, host_dir=f"/mnt/{name}", mount_dir=f"/seen/{name}")
        for name in ("fast", "slow")
    }
    around = surroundings(
        Configuration(storage_classes=classes),
        NodeFacts("node", "", "node", {}),
        None,
        pod=pod(host("/seen/fast", "/mnt/fast"), host("/seen/slow", "/srv/slow")),
    )
    assert around.classes["fast"].problem is None
    assert "/srv/slow" in (around.classes["slow"].problem or "")
    assert around.to_look_at() == {"fast": classes["fast"]}
