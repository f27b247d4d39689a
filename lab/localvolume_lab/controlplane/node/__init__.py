"""Real nodes for the control plane: kubelet, containerd and runc in namespaces of their own."""

from localvolume_lab.controlplane.node.client import KubeletClient, make_client
from localvolume_lab.controlplane.node.images import busybox_image, pause_image
from localvolume_lab.controlplane.node.kept import entering
from localvolume_lab.controlplane.node.network import NodeNetwork
from localvolume_lab.controlplane.node.node import KubeletNode
from localvolume_lab.controlplane.node.requirements import NodeFailed, missing

__all__ = [
    "KubeletClient",
    "KubeletNode",
    "NodeFailed",
    "NodeNetwork",
    "busybox_image",
    "entering",
    "make_client",
    "missing",
    "pause_image",
]
