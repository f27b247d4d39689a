"""S6, at the last moment: what has changed since the plan was made is seen before it is done."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from localvolume.host.filesystem.volumenotes import NAME as NOTE
from localvolume.volumes.record import encoded, taken
from tests.attacks.support_etcd import Backup
from tests.attacks.support_records import recorded, until_held
from tests.cluster.support_agent import GENERATION, Lab
from tests.faults.support_proxy import Order, proxy_for
from tests.host.support_devices import bind

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]


def test_what_a_pod_still_has_mounted_is_not_offered_anew(lab: Lab) -> None:
    """It is empty, and no object speaks for it any more: its claim may be about to write."""
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    pods = lab.directory / "kubelet" / "pods"
    pods.mkdir(parents=True)
    lab.start(kubelet_directory=str(pods.parent))
    volume = lab.published(fs, "one")
    name = volume["metadata"]["name"]
    claim = lab.bound(volume)
    until_held(lab, path, claim)
    lab.stop()
    Backup(lab.plane, f"persistentvolumes/{name}", f"persistentvolumeclaims/default/{claim}").lose()
    inside = pods / f"uid/volumes/kubernetes.io~local-volume/{name}"
    inside.mkdir(parents=True)
    with bind(path, inside):
        lab.start(kubelet_directory=str(pods.parent))
        lab.until(lambda: lab.logged(f"{path}: a pod still has it mounted"), bool)
        lab.settle()
        assert not lab.volumes_at(fs, "one")
    again = lab.published(fs, "one", unlike=volume["metadata"]["uid"])
    annotations = [one["metadata"]["annotations"] for one in (volume, again)]
    assert annotations[0][GENERATION] != annotations[1][GENERATION]


def test_the_record_is_read_once_more_before_the_first_byte_goes(
    lab: Lab, tmp_path: Path, before_cleaning: list[Callable[[], object]]
) -> None:
    """Another agent of the node had it in hand, and another claim has got it since."""
    fs = lab.add_class("fs")
    path = lab.mount(lab.disk(), fs.path("one"))
    # Each of them: one that is held for too long is sent again.
    asks = Order("hold", ("get",))
    with proxy_for(lab.plane, tmp_path) as proxy:
        lab.kubeconfig = proxy.kubeconfig
        lab.start()
        volume = lab.published(fs, "one")
        claim = lab.bound(volume)
        (path / "precious").write_text("another claim's")
        until_held(lab, path, claim)
        before_cleaning.append(lambda: proxy.orders.append(asks))
        lab.delete_claim(claim)
        lab.until(lambda: asks.met, bool)
        assert lab.logged("cleaning with delete-files")
        os.setxattr(path, NOTE, encoded(taken(recorded(path), "another")))
        asks.release()
        lab.event(volume["metadata"]["name"], "VolumeFailedDelete", "the claim another holds it")
        assert (path / "precious").exists()
        lab.stop()
