"""Where a node's volumes should be, from their objects and the configuration: pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from localvolume.config.model import Configuration
from localvolume.health.model import Image, Location, Thin
from localvolume.kube.objects import PersistentVolume
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes import marks
from localvolume.volumes.hostdirs import misplaced
from localvolume.volumes.identity import is_within
from localvolume.volumes.objects import is_flexvolume, is_static, path_of, recorded_identity

if TYPE_CHECKING:
    # An agent without pools must not have to import the code for pools.
    from localvolume.backends.model import PoolReport, Record
    from localvolume.config.flexvolume import FlexVolumeConfig
    from localvolume.config.pools import PoolConfig

Pools: TypeAlias = "Mapping[str, tuple[PoolConfig, PoolReport]]"
"""The pools of this node as of the last look, by name."""


def well_placed(
    configuration: Configuration, pools: Pools, pod: PodMounts | None
) -> tuple[Configuration, Pools]:
    """Both, without the classes and pools whose directory here is not the host's: what lies there
    says nothing about their volumes. `pod` is the agent's own."""
    classes = {
        name: one
        for name, one in configuration.storage_classes.items()
        if not misplaced(pod, one.host_dir, one.mount_dir)
    }
    known = {
        name: one
        for name, one in pools.items()
        if not misplaced(pod, one[0].host_dir, one[0].mount_dir)
    }
    return replace(configuration, storage_classes=classes), known


def location_of(
    volume: PersistentVolume, configuration: Configuration, pools: Pools
) -> Location | None:
    """Where the volume should be; None if its class or pool is not configured (any more)."""
    if is_flexvolume(volume):
        return _of_flexvolume(volume, configuration.flexvolume)
    if is_static(volume):
        return _of_class(volume, configuration)
    return _of_pool(volume, pools)


def thin_of(location: Location, pools: Pools) -> Thin | None:
    """How full the volume's thin pool is; None if it has none, or if that is unknown."""
    found = pools.get(location.pool) if location.pool else None
    if found is None:
        return None
    config, report = found
    if config.lvm is None or not config.lvm.thin_pool or report.problem:
        return None
    return Thin(
        name=f"{config.lvm.group}/{config.lvm.thin_pool}",
        data_percent=report.data_percent,
        metadata_percent=report.metadata_percent,
        health=report.thin_health,
    )


def _of_class(volume: PersistentVolume, configuration: Configuration) -> Location | None:
    config = configuration.storage_classes.get(volume.spec.storage_class_name)
    directory, name = posixpath.split(path_of(volume))
    if config is None or directory != config.host_dir or name in ("", ".", ".."):
        return None
    return Location(path=f"{config.mount_dir}/{name}", kind=_static_kind(volume))


def _static_kind(volume: PersistentVolume) -> Literal["mount", "device", "any"]:
    if volume.spec.volume_mode == "Block":
        return "device"
    try:
        kind = (recorded_identity(volume) or {}).get("kind")
    except ValueError:
        kind = None
    if kind == "filesystem":
        return "mount"
    return "device" if kind == "block" else "any"


def _of_flexvolume(volume: PersistentVolume, config: FlexVolumeConfig | None) -> Location | None:
    """The driver makes it at the first mount: nothing is wrong if nothing is there before."""
    if config is None:
        return None
    name = volume.metadata.name
    if config.driver == "lvm" and config.lvm is not None:
        path = f"/dev/{config.lvm.group}/{name}"
        return Location(path=path, kind="device", written=True, may_be_absent=True)
    if config.driver == "bindmount":
        path = f"{config.bind_root}/{name}"
        return Location(path=path, kind="directory", written=True, may_be_absent=True)
    return None


def _of_pool(volume: PersistentVolume, pools: Pools) -> Location | None:
    source = volume.spec.local or volume.spec.host_path
    found = _pool_of(volume, pools)
    if source is None or found is None:
        return None
    config, report = found
    if config.backend == "lvm":
        return Location(path=source.path, kind="device", written=True, pool=config.name)
    if config.backend == "image":
        record = report.records.get(volume.metadata.name)
        return Location(
            path=source.path,
            kind="device",
            below=config.mount_dir,
            written=True,
            takes_space=record.sparse if record else config.sparse,
            pool=config.name,
            image=_image_of(config, record),
        )
    inside = posixpath.relpath(source.path, config.host_dir)
    if not is_within(posixpath.normpath(source.path), config.host_dir):
        return None
    return Location(
        path=posixpath.join(config.mount_dir, inside),
        kind="directory",
        below=config.mount_dir,
        written=True,
        takes_space=True,
        pool=config.name,
    )


def _image_of(config: PoolConfig, record: Record | None) -> Image | None:
    """The file that must be behind the volume's device; None if no record says it."""
    from localvolume.backends.model import OURS
    from localvolume.backends.pool.layout import IMAGES

    if record is None or not record.inode:
        return None
    return Image(f"{config.mount_dir}/{OURS}/{IMAGES}", record.inode)


def _pool_of(volume: PersistentVolume, pools: Pools) -> tuple[PoolConfig, PoolReport] | None:
    """The pool that the volume names; for one of an older provisioner, the pool that it lies in."""
    named = volume.metadata.annotations.get(marks.POOL_ANNOTATION)
    if named is not None:
        return pools.get(named.rpartition("/")[0])
    source = volume.spec.local or volume.spec.host_path
    if source is None:
        return None
    path = posixpath.normpath(source.path)
    return next(
        (pool for pool in pools.values() if pool[0].host_dir and is_within(path, pool[0].host_dir)),
        None,
    )
