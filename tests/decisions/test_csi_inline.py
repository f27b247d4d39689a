"""What the kubelet may ask of a pod's own volume: its size and pool, and nothing of the host."""

from __future__ import annotations

from typing import Any

import pytest

from localvolume.csi import inline
from localvolume.csi.wire import messages
from localvolume.csi.wire.errors import InvalidArgument, OutOfRange
from localvolume.volumes.capacity import GIB
from tests.suite.units import MIB

HANDLE = "csi-" + "0f" * 32
UID = "11111111-2222-3333-4444-555555555555"
KUBELETS = {
    "csi.storage.k8s.io/ephemeral": "true",
    "csi.storage.k8s.io/pod.name": "web-0.of.a-set",
    "csi.storage.k8s.io/pod.namespace": "shop",
    "csi.storage.k8s.io/pod.uid": UID,
    "csi.storage.k8s.io/serviceAccount.name": "default",
}
TARGET = f"/var/lib/kubelet/pods/{UID}/volumes/kubernetes.io~csi/cache/mount"


def request(*, handle: str = HANDLE, target: str = TARGET, **changes: Any) -> Any:
    """With the attributes of `own`, and of `kubelets` what the kubelet says of itself."""
    own = changes.pop("own", {"size": "1Gi"})
    kubelets = changes.pop("kubelets", KUBELETS)
    kind = changes.pop("kind", {"mount": {"fs_type": changes.pop("fs_type", "")}})
    mode = messages.VolumeCapability.AccessMode.Mode.Value("SINGLE_NODE_MULTI_WRITER")
    return messages.NodePublishVolumeRequest(
        volume_id=handle,
        target_path=target,
        volume_context={**own, **kubelets},
        volume_capability={"access_mode": {"mode": mode}, **kind},
        **changes,
    )


def refused(**changes: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        inline.wanted(request(**changes))
    return str(caught.value)


def test_what_is_asked_for_is_read() -> None:
    wanted = inline.wanted(request(own={"size": "1Gi", "pool": "fast"}, fs_type="xfs"))
    assert (wanted.name, wanted.size_bytes) == (HANDLE, GIB)
    assert (wanted.pool, wanted.fs_type) == ("fast", "xfs")
    assert (wanted.pod, wanted.pod_uid) == ("shop/web-0.of.a-set", UID)


def test_the_smallest_bounds_how_many_there_can_be() -> None:
    """A volume of one byte takes a device and a mount as well."""
    assert inline.wanted(request(own={"size": "16Mi"})).size_bytes == 16 * MIB
    with pytest.raises(OutOfRange, match="size must be at least 16Mi, not '16777215'"):
        inline.wanted(request(own={"size": str(16 * MIB - 1)}))


@pytest.mark.parametrize("size", ["", "0", "-1Gi", "1.5", "100m", "9Ei", "much", "1Gi "])
def test_a_size_that_is_none(size: str) -> None:
    assert "size" in refused(own={"size": size})
    assert ("is missing" in refused(own={"size": size})) == (size == "")


@pytest.mark.parametrize(
    "name",
    ["Size", "path", "hostDir", "mountOptions", "csi.storage.k8s.io/fstype", "fsType", "mode"],
)
def test_nothing_else_is_taken_from_who_writes_the_pod(name: str) -> None:
    assert f"{name} is not known" in refused(own={"size": "1Gi", name: "/etc"})


def test_a_name_with_a_line_break_stays_on_its_line() -> None:
    assert "\n" not in refused(own={"size": "1Gi", "a\nb": "x"})


def test_only_the_kubelets_word_makes_it_a_pods_own() -> None:
    assert inline.is_asked_for(request())
    assert not inline.is_asked_for(request(kubelets={"csi.storage.k8s.io/ephemeral": "false"}))
    assert not inline.is_asked_for(request(kubelets={}))


def test_whose_it_is_must_be_told_and_be_whose_directory_it_is() -> None:
    assert "podInfoOnMount" in refused(kubelets={"csi.storage.k8s.io/ephemeral": "true"})
    lie = {**KUBELETS, "csi.storage.k8s.io/pod.uid": "99999999-2222-3333-4444-555555555555"}
    assert "is not of pod 99999999" in refused(kubelets=lie)
    for key in ("name", "namespace", "uid"):
        bad = {**KUBELETS, f"csi.storage.k8s.io/pod.{key}": "../x"}
        assert "podInfoOnMount" in refused(kubelets=bad)


@pytest.mark.parametrize("handle", ["pvc-1", "csi-" + "0" * 40, "csi-" + "g" * 64, f"{HANDLE}0"])
def test_a_handle_that_a_claims_volume_may_have(handle: str) -> None:
    assert not inline.is_handle(handle)
    assert "volume_id" in refused(handle=handle)


def test_no_device_and_no_secret() -> None:
    assert "not a block device" in refused(kind={"block": {}})
    assert "secret" in refused(secrets={"key": "x"})
