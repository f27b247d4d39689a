"""The environment variables that are read, each found in the code by its form."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from pathlib import Path

from docsite.markdown import Missing, code, table

SOURCE = Path(__file__).resolve().parents[1] / "src" / "localvolume"

VARIABLES: Mapping[str, tuple[str, str, str]] = {
    "MY_NODE_NAME": (
        "agent, plan, orphans",
        "the node's name (`fieldRef: spec.nodeName`); the agent does not start without it",
        "worker-1",
    ),
    "MY_NAMESPACE": (
        "agent, controller, plan",
        "the pod's namespace, for Jobs, Leases and CSIStorageCapacities (default `default`)",
        "local-volume-provisioner",
    ),
    "MY_POD_NAME": (
        "agent, plan, why",
        "the pod's name (`fieldRef: metadata.name`), to know what it has mounted; unset: not known",
        "local-volume-provisioner-x2k9p",
    ),
    "KUBECONFIG": (
        "all",
        "how to reach the API server (default: the pod's service account)",
        "/etc/kubernetes/admin.conf",
    ),
    "JOB_CONTAINER_IMAGE": (
        "agent",
        "the image that cleaning Jobs run; needed by `useJobForCleaning`",
        "local-volume-provisioner:0.1.0",
    ),
    "LOCAL_PV_BLKDEVICE": (
        "clean, cleaning commands",
        "the device to clean, as upstream hands it to its scripts",
        "/mnt/fast/disk-1",
    ),
    "LOCAL_PV_FILESYSTEM": ("clean", "the directory to clean", "/mnt/fast/disk-1"),
    "KUBELET_DIR": (
        "agent, plan",
        "where the mounts of pods are (default `/var/lib/kubelet`); `none`: no kubelet runs here",
        "/var/lib/kubelet",
    ),
    "RECORDS_DIR": (
        "agent, plan, forget",
        "where records of volumes are that carry none themselves; it must outlive a reboot",
        "/var/lib/localvolume/records",
    ),
    "MUST_BE_CONFINED": (
        "agent",
        "`true`: not ready until the API server refuses it what is not its node's",
        "true",
    ),
    "KUTTI_NODE_NAME": ("agent", "kutti's name for `MY_NODE_NAME`", "worker-1"),
    "KUTTI_ROOT_PATH": ("agent", "kutti's directory: makes it a pool", "/data"),
    "OPENEBS_IO_BASE_PATH": (
        "agent",
        "OpenEBS' base path: a pool, as with `--openebs-base-path`",
        "/var/openebs/local",
    ),
    "DRIVER_KIND": (
        "agent",
        "elastic's: serve FlexVolume with logical volumes or directories",
        "LVM",
    ),
    "NODE_NAME": ("agent", "elastic's name for `MY_NODE_NAME`, beside `DRIVER_KIND`", "worker-1"),
    "LVM_VOLUME_GROUP": (
        "agent",
        "elastic's volume group (default `elastic-local-vg`)",
        "elastic-local-vg",
    ),
    "LVM_USE_THIN_VOLUMES": ("agent", "whether elastic's volumes are thin", "true"),
    "LVM_THIN_POOL": (
        "agent",
        "elastic's thin pool (default `elastic-local-thinpool`)",
        "elastic-local-thinpool",
    ),
    "KUBERNETES_SERVICE_HOST": ("all", "set by Kubernetes in every pod", "10.96.0.1"),
    "KUBERNETES_SERVICE_PORT": ("all", "set by Kubernetes in every pod", "443"),
}
"""Who reads it, what it says, and an example."""

_NOT_READ = frozenset(
    {
        "CALL_SECONDS",
        "DEBUGFS_PAGER",
        "DEFAULT_PATH_FOR_NON_LISTED_NODES",
        "FROZENLIST_NO_EXTENSIONS",
        "HTTP_AUTHORIZATION",
        "ID_PART_ENTRY_UUID",
        "ID_SERIAL_SHORT",
        "ID_WWN",
        "ID_WWN_WITH_EXTENSION",
        "KUBERNETES_EXEC_INFO",
        "LC_ALL",
        "LVM_SUPPRESS_FD_WARNINGS",
        "MD_UUID",
        "PATH_INFO",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    }
)
"""Has the form of a variable, and is none that is read: set for other programs, or udev's."""

_FORM = re.compile(r"[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+")


def section(explained: Mapping[str, tuple[str, str, str]] = VARIABLES) -> str:
    """The section of the flags' page. Raises Missing."""
    found = _found() - _NOT_READ
    described = set(explained) - {"KUBECONFIG"}
    if wrong := found ^ described:
        names = ", ".join(sorted(wrong))
        raise Missing(
            f"docsite/environment.py: neither in VARIABLES nor in _NOT_READ, or not in the code "
            f"any more: {names}"
        )
    rows = [
        (code(name), who, meaning, code(f"{name}={shown}"))
        for name, (who, meaning, shown) in explained.items()
    ]
    titles = ("variable", "read by", "meaning", "example")
    return f"## Environment variables\n\nAn empty one counts as unset.\n\n{table(titles, rows)}"


def _found() -> set[str]:
    names = set()
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                names |= {node.value} if _FORM.fullmatch(node.value) else set()
    return names
