"""The environment variables that are read, as a table: ours, upstream's and other provisioners'.

No other module names one, except `kube` for those that every client of Kubernetes reads.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from localvolume.config.syntax import names

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Variable(Generic[T]):
    """One variable; `default` counts if it is unset or empty.

    `parse` raises ValueError, saying what is wrong with the value. `readers` and `meaning` are
    Markdown for the documentation, which adds the default; `example` is a value.
    """

    name: str
    parse: Callable[[str], T]
    readers: str
    example: str
    meaning: str
    default: str = ""

    def __str__(self) -> str:
        return self.name

    def text(self, environ: Mapping[str, str]) -> str:
        """The value as given, or the default; not validated."""
        return environ.get(self.name) or self.default

    def read(self, environ: Mapping[str, str]) -> T:
        """The parsed value. Raises ValueError, saying what is wrong with which variable."""
        try:
            return self.parse(self.text(environ))
        except ValueError as error:
            raise ValueError(f"{self.name} {error}") from error


def _node(text: str) -> str:
    if not text:
        raise ValueError("is not set: it must be the node's name (fieldRef spec.nodeName)")
    if fault := names.fault_of_object_name(text):
        raise ValueError(f"{text!r} is no name of a node: it {fault}")
    return text


def _namespace(text: str) -> str:
    if "." in text or names.fault_of_object_name(text):
        raise ValueError(f"{text!r} is no name of a namespace")
    return text


def _pod(text: str) -> str:
    if text and (fault := names.fault_of_object_name(text)):
        raise ValueError(f"{text!r} is no name of a pod: it {fault}")
    return text


def _kubelet(text: str) -> str | None:
    if text == "none":
        return None
    try:
        return _absolute(text)
    except ValueError as error:
        raise ValueError(f'{error}, and not "none" either') from error


def _absolute(text: str) -> str:
    path = posixpath.normpath(text)
    if not path.startswith("/") or path.startswith("//") or ".." in text.split("/"):
        raise ValueError(f"{text!r} is no absolute path")
    return path


def _records(text: str) -> str | None:
    return _absolute(text) if text else None


def _truth(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text == "true"


def _given(text: str) -> str | None:
    return text or None


# fmt: off
MY_NODE_NAME: Final = Variable(
    "MY_NODE_NAME", _node, "agent, plan, orphans, why, support-bundle", "worker-1",
    "the node's name (`fieldRef: spec.nodeName`); the agent does not start without it")
MY_NAMESPACE: Final = Variable(
    "MY_NAMESPACE", _namespace, "agent, controller, plan, why, support-bundle",
    "local-volume-provisioner",
    "the pod's namespace, for Jobs, Leases and CSIStorageCapacities", "default")
MY_POD_NAME: Final = Variable(
    "MY_POD_NAME", _pod, "agent, plan, why, support-bundle", "local-volume-provisioner-x2k9p",
    "the pod's name (`fieldRef: metadata.name`), to know what it has mounted; unset: not known")
KUBECONFIG: Final = Variable(
    "KUBECONFIG", _given, "all", "/etc/kubernetes/admin.conf",
    "how to reach the API server (default: the pod's service account)")
JOB_CONTAINER_IMAGE: Final = Variable(
    "JOB_CONTAINER_IMAGE", _given, "agent", "local-volume-provisioner:0.1.0",
    "the image that cleaning Jobs run; needed by `useJobForCleaning`")
LOCAL_PV_BLKDEVICE: Final = Variable(
    "LOCAL_PV_BLKDEVICE", str, "clean, cleaning commands", "/mnt/fast/disk-1",
    "the device to clean, as upstream hands it to its scripts")
LOCAL_PV_FILESYSTEM: Final = Variable(
    "LOCAL_PV_FILESYSTEM", str, "clean", "/mnt/fast/disk-1", "the directory to clean")
KUBELET_DIR: Final = Variable(
    "KUBELET_DIR", _kubelet, "agent, plan, why, support-bundle", "/var/lib/kubelet",
    "where the mounts of pods are; `none`: no kubelet runs here", "/var/lib/kubelet")
RECORDS_DIR: Final = Variable(
    "RECORDS_DIR", _records, "agent, plan, forget, why, support-bundle",
    "/var/lib/localvolume/records",
    "where the records of volumes lie that cannot carry one; it must survive reboots")
MUST_BE_CONFINED: Final = Variable(
    "MUST_BE_CONFINED", _truth, "agent", "true",
    "`true`: not ready until the API server refuses it what belongs to other nodes", "false")
KUTTI_NODE_NAME: Final = Variable(
    "KUTTI_NODE_NAME", _node, "agent, orphans, plan", "worker-1", "kutti's name for `MY_NODE_NAME`")
KUTTI_ROOT_PATH: Final = Variable(
    "KUTTI_ROOT_PATH", str, "agent, orphans, plan", "/data", "kutti's directory: makes it a pool")
OPENEBS_IO_BASE_PATH: Final = Variable(
    "OPENEBS_IO_BASE_PATH", str.strip, "agent, orphans, plan", "/var/openebs/local",
    "OpenEBS' base path: a pool, as with `--openebs-base-path`")
DRIVER_KIND: Final = Variable(
    "DRIVER_KIND", str, "agent, orphans, plan", "LVM",
    "elastic's: serve FlexVolume with logical volumes or directories")
NODE_NAME: Final = Variable(
    "NODE_NAME", _node, "agent", "worker-1",
    "elastic's name for `MY_NODE_NAME`, beside `DRIVER_KIND`")
LVM_VOLUME_GROUP: Final = Variable(
    "LVM_VOLUME_GROUP", str, "agent, orphans, plan", "elastic-local-vg", "elastic's volume group",
    "elastic-local-vg")
LVM_USE_THIN_VOLUMES: Final = Variable(
    "LVM_USE_THIN_VOLUMES", str, "agent, orphans, plan", "true",
    "whether elastic's volumes are thin", "false")
LVM_THIN_POOL: Final = Variable(
    "LVM_THIN_POOL", str, "agent, orphans, plan", "elastic-local-thinpool", "elastic's thin pool",
    "elastic-local-thinpool")
NO_COLOR: Final = Variable(
    "NO_COLOR", bool, "all", "1",
    "not empty: tables have no style, neither colour nor bold ([no-color.org](https://no-color.org))")

VARIABLES: Final[tuple[Variable[Any], ...]] = (
    MY_NODE_NAME, MY_NAMESPACE, MY_POD_NAME, KUBECONFIG, JOB_CONTAINER_IMAGE, LOCAL_PV_BLKDEVICE,
    LOCAL_PV_FILESYSTEM, KUBELET_DIR, RECORDS_DIR, MUST_BE_CONFINED, KUTTI_NODE_NAME,
    KUTTI_ROOT_PATH, OPENEBS_IO_BASE_PATH, DRIVER_KIND, NODE_NAME, LVM_VOLUME_GROUP,
    LVM_USE_THIN_VOLUMES, LVM_THIN_POOL, NO_COLOR,
)
# fmt: on
