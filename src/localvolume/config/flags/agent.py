"""The flags of the agent: upstream's by their own names, and ours.

Upstream's: `--listen-address`, `--metrics-path`, `--discovery-period`, `--config-sync-period`.
To replace another provisioner, flags of ours say where local-path's and TopoLVM's configuration
and OpenEBS' base paths are.

Upstream looks at the disks and at its configuration once a period. We are notified of changes, so
the two periods only say how long a change may go unnoticed if no notification came. Unless they are
given, nothing is looked at periodically on their account.
"""

from typing import Final

from localvolume.config.flags.listening import (
    AGENT_LISTEN_ADDRESS,
    SERVING_FLAGS,
    parse_listen_address,
)
from localvolume.config.flags.table import Flag
from localvolume.config.syntax.durations import parse_duration, parse_period
from localvolume.config.syntax.readers import quoted

CONFIG_DIRECTORY: Final = "/etc/provisioner/config"
LOCAL_PATH_PROVISIONER: Final = "rancher.io/local-path"

CONFIG: Final = Flag("--config", "DIR", "the mounted ConfigMap", default=CONFIG_DIRECTORY)
FLEXVOLUME_DRIVER: Final = Flag(
    "--flexvolume-driver", "KIND",
    "serve FlexVolume as elastic's daemon did: lvm or bindmount (also DRIVER_KIND)",
)  # fmt: skip
CSI: Final = Flag(
    "--csi", "",
    "serve the CSI driver csi.localvolume.dev, and register it with the kubelet of KUBELET_DIR",
)  # fmt: skip
CGROUP_DIR: Final = Flag(
    "--cgroup-dir", "DIR",
    "limit how fast pods read and write their CSI volumes, as VolumeAttributesClasses say: in the "
    "host's control groups, whose /sys/fs/cgroup is there",
)  # fmt: skip
_MOST_VOLUMES: Final = (1 << 31) - 1
"""What a CSINode can say."""


def _max_volumes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_VOLUMES):
        raise ValueError(f"{quoted(text)} is no number from 1 to {_MOST_VOLUMES}")
    return int(text)


CSI_MAX_VOLUMES: Final = Flag(
    "--csi-max-volumes", "N",
    "how many CSI volumes the scheduler may give to the pods of this node at the same time "
    "(default: as many as there is room for)", _max_volumes,
)  # fmt: skip
POOL_FLAGS: Final = (
    Flag("--local-path-config", "PATH",
         "local-path's config.json, or the directory of its mounted ConfigMap: make volumes "
         "as it says"),
    Flag("--local-path-provisioner-name", "NAME", "which provisioner those classes name",
         default=LOCAL_PATH_PROVISIONER),
    Flag("--openebs-base-path", "PATH",
         "a directory that OpenEBS hostpath classes may have as BasePath (may be repeated; "
         "OPENEBS_IO_BASE_PATH names another)", lambda path: [path], repeated=True),
    Flag("--lvmd-config", "PATH",
         "TopoLVM's lvmd.yaml, or the directory that it is in: make logical volumes in the "
         "volume groups and thin pools of its device classes"),
)  # fmt: skip
"""Our flags for the formats of the provisioners that are replaced."""

AGENT_FLAGS: Final = (
    Flag("--listen-address", "[HOST]:PORT", "where metrics and /ready are served",
         parse_listen_address, AGENT_LISTEN_ADDRESS),
    *SERVING_FLAGS,
    Flag("--discovery-period", "DURATION",
         "look at all discovery directories at least this often "
         "(default: when something changes)", parse_period),
    Flag("--config-sync-period", "DURATION",
         "read the configuration at least this often (default: when it changes)", parse_period),
    FLEXVOLUME_DRIVER,
    *POOL_FLAGS,
    CSI,
    CGROUP_DIR,
    CSI_MAX_VOLUMES,
    CONFIG,
    Flag("--vanished-grace", "DURATION",
         "how long a volume that no claim ever used may be missing before its "
         "PersistentVolume is withdrawn", parse_duration, "1m"),
    Flag("--claims-in-metrics", "",
         "name the claim of a volume in the metrics of volumes, to everyone who may read them"),
)  # fmt: skip
