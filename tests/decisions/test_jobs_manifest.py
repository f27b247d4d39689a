"""The Job that is made for one volume: everything of it that somebody relies on."""

from __future__ import annotations

import argparse
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.cleaning.jobs import (
    JobSettings,
    cleaning_job,
    deadline_seconds,
    is_named_for,
    job_name,
    mount_name,
    spare_job_name,
)
from localvolume.cleaning.method import Method, choose_method
from localvolume.cleaning.order import Order, add_order_arguments, read_order
from localvolume.cleaning.paces import JobPaces
from localvolume.config.model import ClassConfig
from localvolume.kube.objects import Meta, PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts

UID = "7a3c6b5e-0000-4000-8000-1234567890ab"
NODE = NodeFacts("node-1.example", "node-uid", "host-of-node-1")
CONFIG = ClassConfig(name="fast", host_dir="/mnt/disks", mount_dir="/discovery")
SETTINGS = JobSettings("storage", "registry.example/agent:v1")
VOLUME = PersistentVolume(metadata=Meta(name="local-pv-1", uid=UID))
NOW = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
DIRECTORY = Order(
    kind="filesystem",
    mode="Filesystem",
    path="/discovery/disk",
    device="8:1",
    size_bytes=20 << 30,
    identity={"kind": "filesystem", "uuid": "u"},
)
DEVICE = replace(DIRECTORY, kind="block", mode="Block", identity={"kind": "block", "serial": "S"})
ZERO = Method("zero", passes=1)


def job(order: Order = DIRECTORY, **changes: Any) -> dict[str, Any]:
    method = choose_method(order.command, volume_kind=order.kind, volume_mode=order.mode)
    return cleaning_job(
        order,
        changes.get("method", method),
        changes.get("volume", VOLUME),
        changes.get("config", CONFIG),
        changes.get("node", NODE),
        changes.get("settings", SETTINGS),
        NOW,
        JobPaces(),
    )


def pod_of(manifest: dict[str, Any]) -> dict[str, Any]:
    pod: dict[str, Any] = manifest["spec"]["template"]["spec"]
    return pod


def container_of(manifest: dict[str, Any]) -> dict[str, Any]:
    (container,) = pod_of(manifest)["containers"]
    found: dict[str, Any] = container
    return found


def test_its_name_and_namespace_are_of_the_object_it_cleans_for() -> None:
    meta = job()["metadata"]
    assert (meta["namespace"], meta["name"]) == ("storage", f"cleanup-{UID}")
    assert len(meta["name"]) <= 63
    owner = {"apiVersion": "v1", "kind": "PersistentVolume", "name": "local-pv-1", "uid": UID}
    assert meta["ownerReferences"] == [owner]


def test_upstreams_labels_and_annotations_and_ours() -> None:
    manifest = job()
    assert manifest["metadata"]["labels"] == {
        "kubernetes.io/hostname": "node-1.example",
        "pv": "local-pv-1",
        "pvuuid": UID,
        "localvolume.dev/node": "node-1.example",
    }
    assert manifest["metadata"]["annotations"] == {
        "device": "/discovery/disk",
        "start-time": "2026-03-01T12:30:00Z",
    }
    pods = manifest["spec"]["template"]["metadata"]["labels"]
    assert pods == {"localvolume.dev/node": "node-1.example", "pvuuid": UID}


def test_names_that_no_label_can_hold_are_left_out() -> None:
    """Upstream makes no Job for such a node at all: the API server refuses it."""
    name = "node." * 20 + "example"
    volume = PersistentVolume(metadata=Meta(name="pv-" + "x" * 80, uid=UID))
    manifest = job(node=NodeFacts(name, "node-uid", "short"), volume=volume)
    key = marks.node_key(name)
    assert len(key) <= 63
    assert manifest["metadata"]["labels"] == {"pvuuid": UID, "localvolume.dev/node": key}
    assert pod_of(manifest)["nodeSelector"] == {"kubernetes.io/hostname": "short"}


def test_the_node_is_selected_by_its_label_and_not_by_its_name() -> None:
    assert pod_of(job())["nodeSelector"] == {"kubernetes.io/hostname": "host-of-node-1"}


def test_tolerations_and_resources_are_those_of_the_configuration() -> None:
    settings = JobSettings(
        "storage",
        "image",
        ({"key": "dedicated", "operator": "Exists"},),
        {"limits": {"memory": "1Gi"}},
    )
    manifest = job(settings=settings)
    assert pod_of(manifest)["tolerations"] == [{"key": "dedicated", "operator": "Exists"}]
    assert container_of(manifest)["resources"] == {"limits": {"memory": "1Gi"}}
    assert container_of(job())["resources"] == {
        "requests": {"cpu": "10m", "memory": "64Mi"},
        "limits": {"memory": "256Mi"},
    }


def test_one_attempt_and_an_end_to_everything() -> None:
    spec = job()["spec"]
    assert (spec["backoffLimit"], spec["parallelism"], spec["completions"]) == (0, 1, 1)
    assert spec["ttlSecondsAfterFinished"] == 3600
    assert pod_of(job())["restartPolicy"] == "Never"


@pytest.mark.parametrize(
    ("order", "method", "seconds"),
    [
        (replace(DEVICE, timeout_seconds=90.5), ZERO, 690),
        (replace(DEVICE, size_bytes=10 << 20), ZERO, 86401),
        (replace(DEVICE, size_bytes=100 << 20), ZERO, 86410),
        (replace(DEVICE, size_bytes=100 << 20), Method("zero", passes=3), 86430),
        (replace(DEVICE, size_bytes=100 << 20), Method("overwrite", passes=3), 86440),
        (replace(DEVICE, size_bytes=100 << 20), Method("command", command=("x",)), 86410),
        (replace(DEVICE, size_bytes=1 << 60), ZERO, 2**31 - 1),
        (replace(DEVICE, timeout_seconds=9e9), ZERO, 2**31 - 1),
    ],
)
def test_its_deadline(order: Order, method: Method, seconds: int) -> None:
    assert deadline_seconds(order, method, JobPaces().starting) == seconds
    assert job(order, method=method)["spec"]["activeDeadlineSeconds"] == seconds


def test_it_sees_the_disks_as_the_agent_does() -> None:
    pod = pod_of(job())
    name = mount_name("/mnt/disks", "/discovery")
    assert pod["volumes"] == [
        {"name": name, "hostPath": {"path": "/mnt/disks"}},
        {"name": "dev", "hostPath": {"path": "/dev"}},
    ]
    (container,) = pod["containers"]
    assert container["volumeMounts"] == [
        {"name": name, "mountPath": "/discovery", "mountPropagation": "HostToContainer"},
        {"name": "dev", "mountPath": "/dev"},
    ]
    assert container["securityContext"] == {"privileged": True}


def test_udev_is_seen_where_the_agent_sees_it() -> None:
    """What an identity has from udev could not be found again without."""
    pod = pod_of(job(settings=replace(SETTINGS, sees_udev=True)))
    assert {"name": "udev", "hostPath": {"path": "/run/udev"}} in pod["volumes"]
    (container,) = pod["containers"]
    udev = {"name": "udev", "mountPath": "/run/udev", "readOnly": True}
    assert udev in container["volumeMounts"]


def test_no_place_is_mounted_twice() -> None:
    config = replace(CONFIG, host_dir="/dev", mount_dir="/dev")
    mounts = container_of(job(config=config))["volumeMounts"]
    assert [mount["mountPath"] for mount in mounts] == ["/dev"]


def test_the_name_of_a_mount_is_upstreams() -> None:
    """FNV-1a, 32 bits, in hexadecimal; the known answers of its test suite for "a" and "foobar"."""
    assert mount_name("a", "") == "mount-e40c292c"
    assert mount_name("foo", "bar") == "mount-bf9cf968"
    assert len(mount_name("/x" * 2000, "/y" * 2000)) <= 63


def test_it_has_no_business_with_the_api_server() -> None:
    pod = pod_of(job())
    assert pod["automountServiceAccountToken"] is False
    assert pod["enableServiceLinks"] is False
    assert "serviceAccountName" not in pod


def test_it_runs_our_command_with_upstreams_variables() -> None:
    container = container_of(job())
    assert container["name"] == "cleaner"
    assert container["image"] == "registry.example/agent:v1"
    assert container["command"] == ["localvolume", "clean"]
    assert container["env"] == [{"name": "LOCAL_PV_FILESYSTEM", "value": "/discovery/disk"}]
    device = container_of(job(DEVICE))
    assert device["env"] == [{"name": "LOCAL_PV_BLKDEVICE", "value": "/discovery/disk"}]
    assert container["terminationMessagePolicy"] == "FallbackToLogsOnError"
    # Not in /dev, where it would be made on the host.
    words = container["args"][:2]
    assert words == ["--termination-log", container["terminationMessagePath"]]
    assert not container["terminationMessagePath"].startswith("/dev")


def test_words_that_kubernetes_would_expand_reach_the_command_as_they_are() -> None:
    path = "/discovery/$(HOME) $$ $x"
    container = container_of(job(replace(DEVICE, path=path, command=("sh", "-c", "$(KILL) $$"))))
    assert container["env"][0]["value"] == "/discovery/$$(HOME) $$$$ $$x"
    assert container["args"][-1] == "$$(KILL) $$$$"


ORDERS = st.builds(
    Order,
    kind=st.sampled_from(["filesystem", "block"]),
    mode=st.sampled_from(["Filesystem", "Block"]),
    path=st.text("ab $-\n\"'é", min_size=0, max_size=8).map(lambda text: f"/{text}"),
    device=st.sampled_from(["8:1", "259:0"]),
    size_bytes=st.integers(0, 1 << 60),
    identity=st.dictionaries(st.text(max_size=4), st.text(max_size=4), min_size=1, max_size=3),
    timeout_seconds=st.none() | st.floats(1, 9e9).map(lambda seconds: round(seconds, 3)),
    command=st.none()
    | st.lists(
        st.sampled_from(["--", "-x", "--kind", "a b", "", "--termination-log", "é"]),
        min_size=1,
        max_size=4,
    ).map(tuple),
)


def parsed(words: list[str], **environ: str) -> Order:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_order_arguments(parser)
    return read_order(parser.parse_args(words), environ)


@given(ORDERS)
def test_an_order_survives_its_command_line(order: Order) -> None:
    """Whatever the administrator's words look like, none is taken for one of ours."""
    outer = argparse.ArgumentParser()
    parser = outer.add_subparsers().add_parser("clean")
    parser.add_argument("--termination-log")
    add_order_arguments(parser)
    arguments = outer.parse_args(["clean", "--termination-log", "/x", *order.arguments()])
    assert arguments.termination_log == "/x"
    assert read_order(arguments, {order.variable: order.path}) == order


@pytest.mark.parametrize(
    ("word", "value", "why"),
    [
        ("--device", "8", "no device"),
        ("--device", "8:1:2", "no device"),
        ("--device", "/dev/sda", "no device"),
        ("--size", "-1", "no number of bytes"),
        ("--size", "20Gi", "no number of bytes"),
        ("--size", "\N{SUPERSCRIPT TWO}", "no number of bytes"),
        ("--identity", "{}", "would fit any volume"),
        ("--identity", "[]", "--identity"),
        ("--timeout", "0s", "leaves no time"),
        ("--timeout", "soon", "--timeout"),
        ("--kind", "object", "invalid choice"),
    ],
)
def test_an_order_that_tells_no_volume_for_sure_is_refused(word: str, value: str, why: str) -> None:
    """A Job whose words were changed by hand, or by another version, empties nothing."""
    words = replace(DEVICE, timeout_seconds=60).arguments()
    assert parsed(words, LOCAL_PV_BLKDEVICE="/discovery/disk").device == "8:1"
    at = words.index(word)
    # As one word, or "-1" would look like an option.
    words[at : at + 2] = [f"{word}={value}"]
    with pytest.raises(argparse.ArgumentError, match=why):
        parsed(words, LOCAL_PV_BLKDEVICE="/discovery/disk")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        {"LOCAL_PV_BLKDEVICE": ""},
        {"LOCAL_PV_BLKDEVICE": "discovery/disk"},
        {"LOCAL_PV_FILESYSTEM": "/discovery/disk"},
    ],
)
def test_an_order_without_the_path_of_its_kind_is_refused(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="LOCAL_PV_BLKDEVICE must be the absolute path"):
        parsed(DEVICE.arguments(), **environ)


def test_nobody_knows_beforehand_what_a_job_is_called_whose_name_is_taken() -> None:
    names = {job_name(UID), spare_job_name(UID), spare_job_name(UID)}
    assert len(names) == 3
    assert all(is_named_for(name, UID) for name in names)
