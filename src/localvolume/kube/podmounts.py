"""A Pod, trimmed to what its containers have mounted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import force_setattr

from localvolume.kube.objects import KubeObject, Trimmed


class VolumeMount(Trimmed, frozen=True, kw_only=True):
    """`sub_path_expr` replaces `sub_path` and may contain variables of the container."""

    name: str = ""
    mount_path: str = ""
    sub_path: str = ""
    sub_path_expr: str = ""


class Variable(Trimmed, frozen=True, kw_only=True):
    name: str = ""


class HostPath(Trimmed, frozen=True, kw_only=True):
    path: str = ""


class MountedVolume(Trimmed, frozen=True, kw_only=True):
    """`host_path` is None for other kinds of volumes."""

    name: str = ""
    host_path: HostPath | None = None


if TYPE_CHECKING:
    Variables = tuple[Variable, ...]
    VolumeMounts = tuple[VolumeMount, ...]
    Volumes = tuple[MountedVolume, ...]
else:
    Variables = tuple[Variable, ...] | None
    VolumeMounts = tuple[VolumeMount, ...] | None
    Volumes = tuple[MountedVolume, ...] | None


class Container(Trimmed, frozen=True, kw_only=True):
    env: Variables = ()
    volume_mounts: VolumeMounts = ()

    def __post_init__(self) -> None:
        for field in ("env", "volume_mounts"):
            if not getattr(self, field):
                force_setattr(self, field, ())


class MountsSpec(Trimmed, frozen=True, kw_only=True):
    containers: tuple[Container, ...] = ()
    volumes: Volumes = ()

    def __post_init__(self) -> None:
        if not self.volumes:
            force_setattr(self, "volumes", ())


class PodMounts(KubeObject, frozen=True, kw_only=True):
    spec: MountsSpec = MountsSpec()
