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
from localvolume.volumes.objects import (
    is_csi,
    is_flexvolume,
    is_static,
    path_of,
    record_name_of,
    recorded_identity,
)

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
    found = _pool_of(volume, pools)
    if found is None:
        return None
    config, report = found
    record = _record_of(volume, report)
    path = host_path_of(volume, config, report)
    if not path:
        return None
    if config.backend == "lvm":
        return Location(path=path, kind="device", written=True, pool=config.name)
    if config.backend == "image":
        return Location(
            path=path,
            kind="device",
            below=config.mount_dir,
            written=True,
            takes_space=record.sparse if record else config.sparse,
            pool=config.name,
            image=_image_of(config, record),
        )
    inside = posixpath.relpath(path, config.host_dir)
    if not is_within(posixpath.normpath(path), config.host_dir):
        return None
    return Location(
        path=posixpath.join(config.mount_dir, inside),
        kind="directory",
        below=config.mount_dir,
        written=True,
        takes_space=True,
        pool=config.name,
    )


def host_path_of(volume: PersistentVolume, config: PoolConfig, report: PoolReport) -> str:
    """Where on the host a volume of that pool is, "" if that is not known."""
    if is_csi(volume):
        return _csi_path(volume, config, report)
    return _own_path(volume)


def _own_path(volume: PersistentVolume) -> str:
    """The path on the host that the object names, "" for none."""
    source = volume.spec.local or volume.spec.host_path
    return source.path if source is not None else ""


def _csi_path(volume: PersistentVolume, config: PoolConfig, report: PoolReport) -> str:
    """The same for a volume of our CSI driver, whose object names no path.

    It is where a `local` PersistentVolume of the same record would say. A device's path follows
    from names alone, so that it is missed even where the pool cannot be read.
    """
    from localvolume.backends.image.links import LINKS, one_name

    name = record_name_of(volume)
    if not one_name(name):
        return ""
    if config.backend == "lvm":
        return f"/dev/{config.lvm.group}/{name}" if config.lvm is not None else ""
    if config.backend == "image":
        said = volume.metadata.annotations.get(marks.POOL_ANNOTATION, "").rpartition("/")[2]
        pool_id = report.id or said
        return f"{LINKS}/{pool_id}/{name}" if one_name(pool_id) else ""
    record = _record_of(volume, report)
    if record is None or not record.directory:
        return ""
    return f"{config.host_dir.rstrip('/')}/{record.directory}"


def _record_of(volume: PersistentVolume, report: PoolReport) -> Record | None:
    """Its record, also where the pool has a problem; None if it is not known."""
    name = record_name_of(volume)
    return report.records.get(name) or report.dormant.get(name)


def _image_of(config: PoolConfig, record: Record | None) -> Image | None:
    """The file that must be behind the volume's device; None if no record says it."""
    from localvolume.backends.model import OURS
    from localvolume.backends.pool.layout import IMAGES

    if record is None or not record.inode:
        return None
    return Image(f"{config.mount_dir}/{OURS}/{IMAGES}", record.inode)


def _pool_of(volume: PersistentVolume, pools: Pools) -> tuple[PoolConfig, PoolReport] | None:
    """The pool that the volume names; else the one that has its record, for CSI, or the one that it
    lies in, for an older provisioner."""
    named = volume.metadata.annotations.get(marks.POOL_ANNOTATION)
    if named is not None:
        return pools.get(named.rpartition("/")[0])
    if is_csi(volume):
        having = [pool for pool in pools.values() if _record_of(volume, pool[1]) is not None]
        return having[0] if len(having) == 1 else None
    path = posixpath.normpath(_own_path(volume) or "/")
    return next(
        (pool for pool in pools.values() if pool[0].host_dir and is_within(path, pool[0].host_dir)),
        None,
    )
