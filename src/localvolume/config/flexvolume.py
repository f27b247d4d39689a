"""The configuration of FlexVolume once it is validated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from localvolume.config.pools import LvmConfig

PLUGIN_DIRECTORY: Final = "/usr/libexec/kubernetes/kubelet-plugins/volume/exec"
SOCKET: Final = "/run/localvolume/flexvolume.sock"
BIND_ROOT: Final = "/mnt/elastic-local-volumes"
DEFAULT_BYTES: Final = 10**9
NAMES: Final = ("localvolume.dev/flexvolume", "volumes.k8s.elastic.co/elastic-local")
"""Our driver's name, and elastic's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FlexVolumeConfig:
    """How volumes are served through FlexVolume on this node.

    `driver` says what a volume is: a logical volume in `lvm` (always set then, without a pattern),
    a directory below `bind_root`, or nothing at all ("empty", for tests of a cluster's wiring; the
    configuration's files cannot ask for it). `socket`, `plugin_directory` and `bind_root` are clean
    absolute paths as this process sees them; the client reads the socket's path on the host,
    `socket_on_host`. `client` is the executable to install, "" to install none. `names` are the
    drivers served: `<vendor>/<driver>`. `fs_type` (ext4 or xfs) counts if the PersistentVolume
    names none, `default_bytes` if it has no size. A volume whose PersistentVolume is gone is
    removed after `grace_seconds`.
    """

    driver: Literal["lvm", "bindmount", "empty"] = "lvm"
    lvm: LvmConfig | None = None
    names: tuple[str, ...] = NAMES
    bind_root: str = BIND_ROOT
    socket: str = SOCKET
    socket_on_host: str = SOCKET
    plugin_directory: str = PLUGIN_DIRECTORY
    client: str = ""
    fs_type: str = "ext4"
    default_bytes: int = DEFAULT_BYTES
    grace_seconds: float = 600.0
