"""The files that kubelet, containerd and CNI are started with: text from paths and addresses."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane.node.world import STATE

#: The image of the process that holds a pod's namespaces.
PAUSE = "localvolume.test/pause:1"
#: Private to the node's own network, or to those of nodes that are joined: nothing outside has a
#: route to it.
POD_SUBNET = "10.244.0.0/24"
BRIDGE = "cni0"


@dataclass(frozen=True)
class Layout:
    """One node's directory: files of ours, logs, and the state that only the node sees."""

    directory: Path

    @property
    def state(self) -> Path:
        return self.directory / STATE

    @property
    def kubelet_root(self) -> Path:
        return self.state / "kubelet"

    @property
    def plugins(self) -> Path:
        return self.state / "flexvolume"

    @property
    def kubelet_config(self) -> Path:
        return self.directory / "kubelet.json"

    @property
    def containerd_config(self) -> Path:
        return self.directory / "containerd.toml"

    @property
    def cni(self) -> Path:
        return self.directory / "cni"

    #: Seen in the node only, where /run is its own.
    socket = "/run/containerd/containerd.sock"


def containerd(layout: Layout, runc: str, plugins: str) -> str:
    """containerd 1.6 or newer, configuration version 2.

    Without CAP_SYS_RESOURCE nobody may lower an OOM score: neither containerd nor its pods try.
    """
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    quoted = json.dumps  # strings of JSON are strings of TOML
    return f"""version = 2
root = {quoted(str(layout.state / "containerd"))}
state = "/run/containerd"
oom_score = 0
disabled_plugins = [
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.zfs",
]
[grpc]
  address = {quoted(layout.socket)}
[{cri}]
  sandbox_image = {quoted(PAUSE)}
  restrict_oom_score_adj = true
  disable_apparmor = true
  enable_selinux = false
  stream_server_address = "127.0.0.1"
[{cri}.containerd]
  snapshotter = "overlayfs"
  default_runtime_name = "runc"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{cri}.containerd.runtimes.runc.options]
  BinaryName = {quoted(runc)}
  SystemdCgroup = false
[{cri}.cni]
  bin_dir = {quoted(plugins)}
  conf_dir = {quoted(str(layout.cni))}
"""


def network(layout: Layout, subnet: str) -> str:
    """A CNI network list: one bridge, addresses from one range, the node as the way out."""
    bridge: dict[str, Any] = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": subnet}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(layout.state / "addresses"),
        },
    }
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}, indent=1)


def kubelet(
    layout: Layout,
    cgroup: str,
    client_certificate: Path | None,
    name_server: tuple[str, str] | None,
) -> str:
    """KubeletConfiguration, as the JSON that its YAML also is.

    Without the certificate of a client it serves nobody; with it, the API server alone. The name
    server is its address and the domain of Services.
    """
    config: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{layout.socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
        # The node has files of its own that say so; nothing of the machine's is written.
        "protectKernelDefaults": True,
        "makeIPTablesUtilChains": False,
        "hairpinMode": "none",
        "healthzBindAddress": "127.0.0.1",
        "readOnlyPort": 0,
        "serverTLSBootstrap": False,
        "enableServer": client_certificate is not None,
        "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": False}},
        "authorization": {"mode": "Webhook"},
        # A developer's disk may be full, and the images can be fetched from nowhere.
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "resolvConf": "",
        "volumePluginDir": str(layout.plugins),
        "staticPodPath": str(layout.state / "manifests"),
        "nodeStatusUpdateFrequency": "2s",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        # With it kubelet 1.34 reads a map at its start that another of its threads writes, and dies
        # of that when it is slow (containerManagerImpl.Start, "capacity"). No volume of ours
        # needs it.
        "featureGates": {"DynamicResourceAllocation": False},
    }
    if name_server is not None:
        address, config["clusterDomain"] = name_server
        config["clusterDNS"] = [address]
    if client_certificate is not None:
        config["authentication"]["x509"] = {"clientCAFile": str(client_certificate)}
    return json.dumps(config, indent=1)
