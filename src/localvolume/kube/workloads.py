"""Pods, Jobs and Leases, trimmed like the objects in objects.py: what runs, and who leads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

from localvolume.kube.objects import KubeObject, Trimmed


class ContainerWaiting(Trimmed, frozen=True, kw_only=True):
    reason: str = ""
    message: str = ""


class ContainerTerminated(Trimmed, frozen=True, kw_only=True):
    """`message` is what the container wrote to its termination log, or its last lines."""

    exit_code: int = 0
    signal: int | None = None
    reason: str = ""
    message: str = ""


class ContainerState(Trimmed, frozen=True, kw_only=True):
    """One of the two is set, or neither while it runs."""

    waiting: ContainerWaiting | None = None
    terminated: ContainerTerminated | None = None


class ContainerStatus(Trimmed, frozen=True, kw_only=True):
    name: str = ""
    state: ContainerState = ContainerState()


class Condition(Trimmed, frozen=True, kw_only=True):
    """A condition of a pod or Job; `status` is "True", "False" or "Unknown"."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


if TYPE_CHECKING:
    Containers = tuple[ContainerStatus, ...]
    Conditions = tuple[Condition, ...]
else:
    Containers = tuple[ContainerStatus, ...] | None
    Conditions = tuple[Condition, ...] | None


class ClaimSource(Trimmed, frozen=True, kw_only=True):
    claim_name: str = ""


class EphemeralSource(Trimmed, frozen=True, kw_only=True):
    """Its claim is named `<pod>-<volume>`."""


class PodVolume(Trimmed, frozen=True, kw_only=True):
    """`name`, and the source if it is a claim."""

    name: str = ""
    persistent_volume_claim: ClaimSource | None = None
    ephemeral: EphemeralSource | None = None


if TYPE_CHECKING:
    PodVolumes = tuple[PodVolume, ...]
else:
    PodVolumes = tuple[PodVolume, ...] | None


class PodSpec(Trimmed, frozen=True, kw_only=True):
    node_name: str = ""
    volumes: PodVolumes = ()

    def __post_init__(self) -> None:
        if not self.volumes:
            force_setattr(self, "volumes", ())


class PodStatus(Trimmed, frozen=True, kw_only=True):
    """`phase` is Pending, Running, Succeeded, Failed or Unknown."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    conditions: Conditions = ()
    container_statuses: Containers = ()

    def __post_init__(self) -> None:
        for field in ("conditions", "container_statuses"):
            if not getattr(self, field):
                force_setattr(self, field, ())


class Pod(KubeObject, frozen=True, kw_only=True):
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class JobStatus(Trimmed, frozen=True, kw_only=True):
    """Servers omit counts of pods that are 0, and all until the controller has seen the Job."""

    active: int = 0
    succeeded: int = 0
    failed: int = 0
    conditions: Conditions = ()

    def __post_init__(self) -> None:
        if not self.conditions:
            force_setattr(self, "conditions", ())


class Job(KubeObject, frozen=True, kw_only=True):
    status: JobStatus = JobStatus()


class LeaseSpec(Trimmed, frozen=True, kw_only=True):
    """Times are RFC 3339 with microseconds, by the writer's clock."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, kw_only=True):
    spec: LeaseSpec = LeaseSpec()
