"""What objects say of volumes of our CSI driver, and what keeps pods from using them: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from localvolume.cli.seeing.facts import Facts
from localvolume.kube.objects import PersistentVolume, StorageClass
from localvolume.volumes.marks import CSI_DRIVER
from localvolume.volumes.modifying import class_of_volume
from localvolume.volumes.objects import is_csi

SWITCH_ON = "have the agents run with --csi (chart value csi.enabled), and look at their logs"


def in_use(volumes: Iterable[PersistentVolume], classes: Iterable[StorageClass]) -> bool:
    """Whether anything in the cluster depends on the driver."""
    return any(one.provisioner == CSI_DRIVER for one in classes) or any(map(is_csi, volumes))


def attributes_class_of(volume: PersistentVolume) -> str:
    """The VolumeAttributesClass that a volume of our driver has, "" for none."""
    return class_of_volume(volume) if is_csi(volume) else ""


def attributes_of(facts: Facts, volume: PersistentVolume) -> Mapping[str, str] | None:
    """What its VolumeAttributesClass says, which cannot be changed; empty without one, None if it
    could not be read or is gone: the volume keeps what it said."""
    name = attributes_class_of(volume)
    if not name:
        return {}
    found = (facts.attributes or {}).get(name)
    return None if found is None else found.parameters


def without_driver(facts: Facts) -> str:
    """What follows from a missing CSIDriver, "" if it is there or unknown."""
    if facts.drivers is None or CSI_DRIVER in facts.drivers:
        return ""
    return f"there is no CSIDriver {CSI_DRIVER}: pods wait for an attachment that nobody makes"


def unregistered(facts: Facts, node: str) -> str:
    """That the node's kubelet does not know the driver; "" if it does, or if that is unknown."""
    if facts.registered is None or not node or node in facts.registered:
        return ""
    return (
        f"the CSINode {node} does not name {CSI_DRIVER}: the agent there is not registered with "
        "the kubelet, as one without --csi never is"
    )
