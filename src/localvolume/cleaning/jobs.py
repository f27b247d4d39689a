"""The Job that cleans one volume: its manifest, and what the Jobs that exist say of themselves.

Sources: the Kubernetes API reference (batch/v1 Job); for names, labels and annotations, upstream's
Jobs, which we meet when we take over a node.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal

from localvolume.cleaning.method import Method
from localvolume.cleaning.paces import JobPaces
from localvolume.config.model import JOB_RESOURCES, ClassConfig, Resources
from localvolume.config.syntax.names import fault_of_label_value
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.workloads import Job
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.names import fnv1a_32

if TYPE_CHECKING:
    # An agent that only looks at Jobs need not carry what makes them.
    from localvolume.cleaning.order import Order

NAME_PREFIX: Final = "cleanup-"
VOLUME_LABEL: Final = "pv"
VOLUME_UID_LABEL: Final = "pvuuid"
PATH_ANNOTATION: Final = "device"
START_ANNOTATION: Final = "start-time"
CONTAINER: Final = "cleaner"
DEVICES: Final = "/dev"
UDEV: Final = "/run/udev"
LAST_WORDS: Final = "/termination-log"
"""Where the Job's container leaves its receipt. The default is in /dev, which is the host's here:
the container runtime would create that file on the host."""

_SLOWEST_BYTES: Final = 10 << 20
_A_DAY: Final = 86400
_LONGEST_SECONDS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class JobSettings:
    """What all cleaning Jobs of a node have in common; `sees_udev`: the agent sees udev's data."""

    namespace: str
    image: str
    tolerations: Sequence[Mapping[str, Any]] = ()
    resources: Resources = field(default_factory=lambda: JOB_RESOURCES)
    sees_udev: bool = False


State = Literal["unfinished", "succeeded", "failed"]


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """One Job that cleans, or has cleaned, a volume of this node.

    `ours`: it has the form and name that this module gives; others are an older provisioner's.
    `volume_uid` and `path` may be "" if the Job does not say. `state` is final unless it is
    `unfinished`: the Job then has no process any more. `reason` says why it failed.
    `another_nodes`: it is another node's, and only its name is of a volume of this node.
    """

    name: str
    uid: str
    volume_name: str
    volume_uid: str
    path: str
    state: State
    ours: bool
    being_deleted: bool = False
    reason: str = ""
    another_nodes: bool = False


def job_name(volume_uid: str) -> str:
    """One per PersistentVolume object: an object of the same name and another UID has its own."""
    return f"{NAME_PREFIX}{volume_uid}"


def spare_job_name(volume_uid: str) -> str:
    """Another name for the same object's Job, if another node's Job has the first. It is random, so
    nobody can take it beforehand: others know the node and the UID.
    """
    return f"{job_name(volume_uid)}-{secrets.token_hex(6)}"


def is_named_for(name: str, volume_uid: str) -> bool:
    """Whether one of the two functions above gives that name."""
    own = re.escape(job_name(volume_uid))
    return re.fullmatch(f"{own}(-[0-9a-f]{{12}})?", name) is not None


def read_job(job: Job) -> CleaningJob | None:
    """What a Job is to us; None for one that has nothing to do with cleaning."""
    meta = job.metadata
    if not meta.name.startswith(NAME_PREFIX):
        return None
    volume_uid = meta.labels.get(VOLUME_UID_LABEL, "")
    ours = bool(volume_uid) and is_named_for(meta.name, volume_uid)
    path = meta.annotations.get(PATH_ANNOTATION, "")
    volume_name = meta.labels.get(VOLUME_LABEL, "")
    if not volume_name and not ours:
        # Upstream names its Jobs like this.
        volume_name = meta.name.removeprefix(NAME_PREFIX)
    state: State = "unfinished"
    reason = ""
    for condition in job.status.conditions:
        if condition.status != "True":
            continue
        if condition.type == "Complete":
            state = "succeeded"
        elif condition.type == "Failed":
            state = "failed"
            reason = ": ".join(text for text in (condition.reason, condition.message) if text)
    deleted = meta.deletion_timestamp is not None
    return CleaningJob(
        meta.name, meta.uid, volume_name, volume_uid, path, state, ours, deleted, reason
    )


def is_upstreams(job: Job) -> bool:
    """Whether an older provisioner made this Job to clean a volume, and nobody labelled it yet."""
    labels = job.metadata.labels
    return (
        job.metadata.name.startswith(NAME_PREFIX)
        and (VOLUME_LABEL in labels or VOLUME_UID_LABEL in labels)
        and marks.NODE_LABEL not in labels
    )


def deadline_seconds(order: Order, method: Method, starting_seconds: int) -> int:
    """How long the Job may live: the class's limit, or far beyond what a slow disk needs."""
    if order.timeout_seconds is not None:
        seconds = order.timeout_seconds + starting_seconds
    else:
        passes = max(1, method.passes) + (method.name == "overwrite")
        seconds = _A_DAY + passes * order.size_bytes / _SLOWEST_BYTES
    return min(_LONGEST_SECONDS, int(seconds))


def cleaning_job(
    order: Order,
    method: Method,
    volume: PersistentVolume,
    config: ClassConfig,
    node: NodeFacts,
    settings: JobSettings,
    now: datetime,
    paces: JobPaces,
    name: str = "",
) -> dict[str, Any]:
    """The object to create, with its own name unless one is given. Its pod sees the disks as the
    agent does, and needs no API access."""
    meta = volume.metadata
    node_label = {marks.NODE_LABEL: marks.node_key(node.name)}
    found = {marks.HOSTNAME_LABEL: node.name, VOLUME_LABEL: meta.name, VOLUME_UID_LABEL: meta.uid}
    labels = {key: value for key, value in found.items() if not fault_of_label_value(value)}
    owner = {"apiVersion": "v1", "kind": "PersistentVolume", "name": meta.name, "uid": meta.uid}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name or job_name(meta.uid),
            "namespace": settings.namespace,
            "labels": labels | node_label,
            "annotations": {
                PATH_ANNOTATION: order.path,
                START_ANNOTATION: now.astimezone(UTC).isoformat().replace("+00:00", "Z"),
            },
            "ownerReferences": [owner],
        },
        "spec": {
            # One attempt: the agent finds out why it failed, and says so, before the next.
            "backoffLimit": 0,
            "parallelism": 1,
            "completions": 1,
            "activeDeadlineSeconds": deadline_seconds(order, method, paces.starting),
            "ttlSecondsAfterFinished": paces.kept,
            "template": {
                "metadata": {"labels": node_label | {VOLUME_UID_LABEL: meta.uid}},
                "spec": _pod(order, config, node, settings),
            },
        },
    }


def _pod(
    order: Order, config: ClassConfig, node: NodeFacts, settings: JobSettings
) -> dict[str, Any]:
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []

    def mount(name: str, host: str, inside: str, **more: Any) -> None:
        volumes.append({"name": name, "hostPath": {"path": host}})
        mounts.append({"name": name, "mountPath": inside, **more})

    mount(
        mount_name(config.host_dir, config.mount_dir),
        config.host_dir,
        config.mount_dir,
        mountPropagation="HostToContainer",
    )
    if config.mount_dir != DEVICES:
        mount("dev", DEVICES, DEVICES)
    if settings.sees_udev:
        # Some of what the agent knows a device by comes only from udev: the Job must find it too.
        mount("udev", UDEV, UDEV, readOnly=True)
    return {
        "restartPolicy": "Never",
        "nodeSelector": {marks.HOSTNAME_LABEL: node.hostname},
        "tolerations": [dict(toleration) for toleration in settings.tolerations],
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "containers": [
            {
                "name": CONTAINER,
                "image": settings.image,
                # The agent runs this image on this node already: nothing needs to be pulled.
                "imagePullPolicy": "IfNotPresent",
                "command": ["localvolume", "clean"],
                "args": ["--termination-log", LAST_WORDS, *map(_unexpanded, order.arguments())],
                "env": [{"name": order.variable, "value": _unexpanded(order.path)}],
                "resources": {key: dict(value) for key, value in settings.resources.items()},
                "securityContext": {"privileged": True},
                "terminationMessagePath": LAST_WORDS,
                "terminationMessagePolicy": "FallbackToLogsOnError",
                "volumeMounts": mounts,
            }
        ],
        "volumes": volumes,
    }


def mount_name(host_dir: str, mount_dir: str) -> str:
    """Upstream's name for the pod's volume that holds a discovery directory."""
    return f"mount-{fnv1a_32((host_dir + mount_dir).encode()):x}"


def _unexpanded(text: str) -> str:
    """Kubernetes expands "$(NAME)" in arguments and variables; "$$" stands for a single "$"."""
    return text.replace("$", "$$")
