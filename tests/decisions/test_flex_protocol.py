"""What the daemon is told and answers: elastic's bytes, the kubelet's options, no other paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.flexvolume import protocol
from localvolume.flexvolume.driver import TAG_CLAIM, TAG_PV_UID, same_owner
from localvolume.flexvolume.protocol import BadCall, Refused, Target
from localvolume.kube.objects import FlexVolumeSource

UID = "1f0c1a4e-8f7b-4a26-9c38-0f8f4b1c9d55"
NAME = "pvc-4f7e6a68-3c9f-4b3f-8f68-aaaaaaaaaaaa"
PATH = f"/var/lib/kubelet/pods/{UID}/volumes/localvolume.dev~flexvolume/{NAME}"
TARGET = protocol.read_target(PATH)


def read(**options: str) -> protocol.Asked:
    return protocol.read_options(
        {key.replace("__", "/"): value for key, value in options.items()}, TARGET, fs_type="ext4"
    )


# --- replies: elastic's unit tests of the constructors and of the routes --------------------------


def test_success_and_failure_byte_for_byte() -> None:
    """E-FV-03, E-FV-04: elastic: NewSuccessResponse, NewFailureResponse."""
    success = b'{"status":"Success","message":"ok","capabilities":{"attach":false}}'
    failure = b'{"status":"Failure","message":"why","capabilities":{"attach":false}}'
    assert protocol.success("ok").encode() == success
    assert protocol.failure("why").encode() == failure


def test_init_byte_for_byte() -> None:
    """E-FV-13, E-FV-28, E-FV-49: elastic: Init of the drivers and of the route."""
    assert protocol.INIT.encode() == (
        b'{"status":"Success","message":"driver is available","capabilities":{"attach":false}}'
    )


def test_a_device_only_where_there_is_one() -> None:
    reply = protocol.Reply(status="Success", message="ok", device="/dev/vg/lv")
    assert list(json.loads(reply.encode())) == ["status", "message", "device", "capabilities"]
    assert "device" not in json.loads(protocol.success("ok").encode())


# --- requests ------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", ["1", "123456789"])
def test_a_mount_as_elastics_client_asks(size: str) -> None:
    """elastic: the size in the options, for two sizes."""
    call = protocol.read_mount(
        json.dumps({"targetDir": PATH, "options": {"sizeBytes": size}}).encode()
    )
    assert (call.target_dir, call.options) == (PATH, {"sizeBytes": size})
    assert protocol.read_unmount(json.dumps({"targetDir": PATH}).encode()).target_dir == PATH


@pytest.mark.parametrize("reader", [protocol.read_mount, protocol.read_unmount])
def test_an_empty_body_is_answered_as_gos_decoder(reader: Any) -> None:
    """E-FV-15: elastic: mount and unmount answer 500 with `EOF`."""
    for body in (b"", b"  \n"):
        with pytest.raises(BadCall, match=r"^EOF$"):
            reader(body)


@pytest.mark.parametrize(
    "body",
    [b"{", b"[]", b'"x"', b'{"targetDir": 1}', b'{"options": {"a": 1}}', b"\xff", b"[" * 100_000],
)
def test_what_is_no_call_is_said_to_be_none(body: bytes) -> None:
    with pytest.raises(BadCall):
        protocol.read_mount(body)


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(body: bytes) -> None:
    for reader in (protocol.read_mount, protocol.read_unmount):
        try:
            reader(body)
        except BadCall:
            continue


# --- targets: elastic's pathutil -----------------------------------------------------------------


def test_a_target_names_pod_driver_and_volume() -> None:
    """E-FV-17: elastic: the volume's name is the last part of the path."""
    assert (
        Target(
            path=PATH,
            root="/var/lib/kubelet",
            pod_uid=UID,
            driver="localvolume.dev/flexvolume",
            name=NAME,
        )
        == TARGET
    )
    assert TARGET.below_pods == f"{UID}/volumes/localvolume.dev~flexvolume/{NAME}"


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/etc",
        "/",
        PATH.removeprefix("/"),
        f"{PATH}/",
        f"{PATH}/more",
        PATH.replace("/volumes/", "//volumes/"),
        PATH.replace("/volumes/", "/./volumes/"),
        PATH.replace(UID, ".."),
        PATH.replace("/var/lib/kubelet", "/var/../etc"),
        PATH.replace("volumes", "volume-subpaths"),
        PATH.replace("~", "-"),
        PATH.replace(NAME, ".."),
        PATH.replace(NAME, "a\0b"),
        PATH.replace("pods", "plugins"),
        "/pods/a/volumes/b~c/d",
    ],
)
def test_nothing_is_mounted_at_any_other_path(path: str) -> None:
    """E-FV-17: pathutil: the last part."""
    with pytest.raises(Refused):
        protocol.read_target(path)


def test_a_path_that_has_pods_twice_is_read_from_its_end() -> None:
    found = protocol.read_target(f"/data/pods/x/volumes/y~z/w{PATH}")
    assert found.root == "/data/pods/x/volumes/y~z/w/var/lib/kubelet"


@pytest.mark.parametrize("name", ["..", "-a", "A", "a/b", ".hidden", "a" * 254, "", "lost+found"])
def test_a_name_that_no_persistentvolume_has_is_refused(name: str) -> None:
    with pytest.raises(Refused):
        protocol.check_name(name)


# --- options -------------------------------------------------------------------------------------


def test_without_options_defaults_count() -> None:
    asked = read()
    assert asked == protocol.Asked(
        name=NAME,
        size_bytes=0,
        fs_type="ext4",
        mkfs_options=(),
        mount_options=(),
        read_only=False,
        fs_group=None,
        pod=None,
    )


def test_what_the_kubelet_says_is_heeded() -> None:
    asked = read(
        sizeBytes="5368709120",
        mkfsOptions="-i 65536 -m 0",
        mountOptions="noatime,nodev",
        onRemoval="overwrite",
        **{
            "kubernetes.io__fsType": "ext4",
            "kubernetes.io__readwrite": "ro",
            "kubernetes.io__pvOrVolumeName": NAME,
            "kubernetes.io__mounterArgs.FsGroup": "2000",
            "kubernetes.io__pod.name": "pod-0",
            "kubernetes.io__pod.namespace": "team",
            "kubernetes.io__pod.uid": UID,
            "kubernetes.io__serviceAccount.name": "default",
            "kubernetes.io__secret__key": "c2VjcmV0",
        },
    )
    assert (asked.size_bytes, asked.fs_type, asked.read_only) == (5368709120, "ext4", True)
    assert asked.mkfs_options == ("-i", "65536", "-m", "0")
    assert asked.mount_options == ("noatime", "nodev")
    assert (asked.fs_group, asked.pod) == (2000, ("team", "pod-0"))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("sizeBytes", "-1"),
        ("sizeBytes", "1Gi"),
        ("sizeBytes", "9" * 19),
        ("sizeBytes", "９"),
        ("mkfsOptions", "-F /dev/sda"),
        ("mkfsOptions", "-E hash_seed=;reboot"),
        ("mountOptions", "noatime,$(reboot)"),
        ("mountOptions", "noatime,,nodev"),
        ("mountOptions", "noatime,bind"),
        ("mountOptions", "loop=/dev/loop0"),
        ("mountOptions", ",".join(["noatime"] * 65)),
        ("onRemoval", "keep"),
        ("kubernetes.io/fsType", "btrfs"),
        ("kubernetes.io/readwrite", "yes"),
        ("kubernetes.io/mounterArgs.FsGroup", "root"),
        ("kubernetes.io/mounterArgs.FsGroup", str(2**32 - 1)),
        ("kubernetes.io/pvOrVolumeName", "pvc-of-somebody-else"),
        ("kubernetes.io/pvOrVolumeName", "../../etc"),
        ("kubernetes.io/pod.uid", "another"),
        ("kubernetes.io/pod.name", "a/b"),
        ("kubernetes.io/pod.namespace", ""),
        ("sizebytes", "1"),
        ("nonsense", "1"),
    ],
)
def test_what_is_wrong_is_refused_and_nothing_is_passed_over(key: str, value: str) -> None:
    pod = {"kubernetes.io/pod.name": "p", "kubernetes.io/pod.namespace": "n"}
    others = pod if ".pod." in key or "/pod." in key else {}
    with pytest.raises(Refused) as refused:
        protocol.read_options({**others, key: value}, TARGET, fs_type="ext4")
    assert len(str(refused.value)) < 500


def test_secrets_are_never_repeated() -> None:
    options = {"kubernetes.io/secret/key": "hunter2", "nonsense": "hunter2"}
    with pytest.raises(Refused) as refused:
        protocol.read_options(options, TARGET, fs_type="ext4")
    assert "hunter2" not in str(refused.value)


def test_of_the_volume_only_its_persistentvolume_is_believed() -> None:
    """A pod may describe a FlexVolume itself, by the name of its own claim's PersistentVolume."""
    asked = read(
        sizeBytes=str(10**12),
        mkfsOptions="-N 99999",
        mountOptions="errors=panic",
        **{
            "kubernetes.io__fsType": "ext4",
            "kubernetes.io__mounterArgs.FsGroup": "2000",
            "kubernetes.io__pod.name": "pod-0",
            "kubernetes.io__pod.namespace": "team",
        },
    )
    options = {"sizeBytes": "5368709120", "mountOptions": "noatime", "onRemoval": "overwrite"}
    source = FlexVolumeSource(driver=TARGET.driver, fs_type="xfs", options=options)
    expected = protocol.Asked(
        name=NAME,
        size_bytes=5368709120,
        fs_type="xfs",
        mkfs_options=(),
        mount_options=("noatime",),
        read_only=False,
        fs_group=2000,
        pod=("team", "pod-0"),
    )
    assert protocol.as_volume_says(asked, source, fs_type="ext4") == expected
    bare = FlexVolumeSource(driver=TARGET.driver)
    found = protocol.as_volume_says(asked, bare, fs_type="xfs")
    assert (found.size_bytes, found.fs_type, found.mount_options) == (0, "xfs", ())


@pytest.mark.parametrize(
    ("call", "volume", "read_only"),
    [("rw", None, False), ("rw", False, False), ("rw", True, True), ("ro", False, True)],
)
def test_it_is_read_only_where_either_says_so(
    call: str, volume: bool | None, read_only: bool
) -> None:
    asked = read(**{"kubernetes.io__readwrite": call})
    source = FlexVolumeSource(driver=TARGET.driver, read_only=volume)
    assert protocol.as_volume_says(asked, source, fs_type="ext4").read_only is read_only


@pytest.mark.parametrize(
    "source",
    [
        FlexVolumeSource(options={"sizeBytes": "1Gi"}),
        FlexVolumeSource(options={"nonsense": "1"}),
        FlexVolumeSource(fs_type="btrfs"),
    ],
)
def test_a_persistentvolume_that_is_not_in_order_is_refused(source: FlexVolumeSource) -> None:
    with pytest.raises(Refused):
        protocol.as_volume_says(read(), source, fs_type="ext4")


@given(st.dictionaries(st.text(max_size=40), st.text(max_size=60), max_size=6))
def test_no_options_raise_anything_else(options: dict[str, str]) -> None:
    try:
        protocol.read_options(options, TARGET, fs_type="xfs")
    except Refused:
        return


# --- whose volume it is --------------------------------------------------------------------------


def test_the_same_object_or_the_same_claim_is_the_same_owner() -> None:
    noted = {TAG_PV_UID: "1", TAG_CLAIM: "team/data"}
    assert same_owner(noted, noted)
    assert same_owner({}, noted), "of which nothing is known"
    assert same_owner(noted, {TAG_PV_UID: "2", TAG_CLAIM: "team/data"}), "restored from a backup"
    assert not same_owner(noted, {TAG_PV_UID: "2", TAG_CLAIM: "other/data"})
    assert not same_owner({TAG_PV_UID: "1"}, {TAG_PV_UID: "2"}), "no claim is nobody's"
