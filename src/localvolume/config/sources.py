"""Joins all sources of an agent's configuration into one.

They are our ConfigMap, kutti's and elastic's environment, local-path's ConfigMap as it is, OpenEBS'
base paths, and TopoLVM's lvmd.yaml. A problem in any of them makes the whole invalid, and the last
valid one stays in force.

The readers of others' formats are imported only when needed: most agents need none.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, TypeVar

from localvolume.config import loading, variables
from localvolume.config.flags.agent import LOCAL_PATH_PROVISIONER
from localvolume.config.model import Configuration, ConfigurationInvalid, Problem, Served

if TYPE_CHECKING:
    from localvolume.config.flexvolume import FlexVolumeConfig
    from localvolume.config.foreign.localpath import LocalPath
    from localvolume.config.foreign.lvmd import Lvmd
    from localvolume.config.pools import PoolConfig

NO_SOURCES: Final = Configuration()

_VARIABLES: Final = (
    variables.KUTTI_NODE_NAME,
    variables.KUTTI_ROOT_PATH,
    variables.OPENEBS_IO_BASE_PATH,
    variables.DRIVER_KIND,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Others:
    """What environment and flags say about the provisioners that are replaced."""

    kutti: PoolConfig | None = None
    local_path: str | None = None
    """local-path's config.json, or the directory of its mounted ConfigMap."""
    local_path_provisioner: str = LOCAL_PATH_PROVISIONER
    openebs: tuple[PoolConfig, ...] = ()
    openebs_base_path: str = ""
    lvmd: str | None = None
    """TopoLVM's lvmd.yaml, or the directory that it is in."""
    flexvolume: FlexVolumeConfig | None = None

    @property
    def any(self) -> bool:
        named = self.local_path or self.lvmd
        return bool(self.kutti or named or self.openebs or self.flexvolume)

    @property
    def directories(self) -> tuple[str, ...]:
        """Further directories to watch for changes."""
        paths = [os.path.abspath(path) for path in (self.local_path, self.lvmd) if path]
        return tuple(path if os.path.isdir(path) else os.path.dirname(path) for path in paths)

    @classmethod
    def read(
        cls,
        environ: Mapping[str, str],
        *,
        local_path_config: str | None = None,
        local_path_provisioner_name: str = LOCAL_PATH_PROVISIONER,
        openebs_base_path: Sequence[str] = (),
        flexvolume_driver: str | None = None,
        lvmd_config: str | None = None,
    ) -> Others:
        """Read the environment and the flags of these names. Raises EnvironmentInvalid."""
        given = local_path_config or openebs_base_path or flexvolume_driver or lvmd_config
        if not (given or any(one.text(environ) for one in _VARIABLES)):
            return cls()
        from localvolume.config.foreign import elastic, kutti, openebs

        base_paths = openebs.pools(openebs_base_path, environ)
        return cls(
            kutti=kutti.pool(environ),
            local_path=local_path_config,
            local_path_provisioner=local_path_provisioner_name,
            openebs=base_paths,
            openebs_base_path=openebs.default_base_path(base_paths, environ),
            lvmd=lvmd_config,
            flexvolume=elastic.flexvolume(environ, flexvolume_driver),
        )


def loader(
    others: Others, node_name: str, *, has_image: bool = True
) -> Callable[[str], Configuration]:
    """Return a function that reads all sources, given our ConfigMap's directory.

    It raises ConfigurationInvalid. An agent that only replaces another provisioner needs no
    ConfigMap of ours; but if there was one and it is gone, that is an error.
    """
    needed = not others.any

    def load(directory: str) -> Configuration:
        nonlocal needed
        problems: list[Problem] = []
        own = NO_SOURCES
        needed = needed or os.path.isdir(directory)
        if needed:
            try:
                own = loading.load(directory, has_image=has_image)
            except ConfigurationInvalid as invalid:
                problems += invalid.problems
        found = _local_path(others, node_name, problems)
        lvmd = _lvmd(others, problems)
        pools = own.pools + (found.pools if found else ()) + others.openebs
        pools += lvmd.pools if lvmd else ()
        if others.kutti:
            pools += (others.kutti,)
        if not problems:
            problems += _pool_faults(own, pools)
            problems += _flex_faults(others, own, pools)
            problems += _device_faults(own, pools, others.flexvolume or own.flexvolume)
        if problems:
            raise ConfigurationInvalid(sorted(problems))
        flexvolume = others.flexvolume or own.flexvolume
        return replace(
            own,
            pools=tuple(_kept_from(own, pool) for pool in pools),
            served=_served(others, found),
            flexvolume=_kept_from(own, flexvolume) if flexvolume else None,
            warnings=own.warnings
            + (found.warnings if found else ())
            + (lvmd.warnings if lvmd else ()),
        )

    return load


def _pool_faults(own: Configuration, pools: Sequence[PoolConfig]) -> Iterator[Problem]:
    """Why the pools, whatever their source, conflict with each other or with our classes."""
    if not pools:
        return
    from localvolume.config.pools import faults_between

    discovery = [(one.name, one.host_dir, one.mount_dir) for one in own.storage_classes.values()]
    for fault in faults_between(pools, discovery):
        yield Problem("", "pools", fault)


def _device_faults(
    own: Configuration, pools: Sequence[PoolConfig], flexvolume: FlexVolumeConfig | None
) -> Iterator[Problem]:
    """Which discovery directories hold the devices of logical volumes, which none may."""
    configs = [*(one.lvm for one in pools), flexvolume.lvm if flexvolume else None]
    groups = [one.groups for one in configs if one]
    if not groups:
        return
    from localvolume.config.pools import faults_of_devices

    discovery = [(one.name, one.host_dir, one.mount_dir) for one in own.storage_classes.values()]
    for fault in faults_of_devices(groups, discovery):
        yield Problem("", "storageClassMap", fault)


_User = TypeVar("_User", "PoolConfig", "FlexVolumeConfig")


def _kept_from(own: Configuration, user: _User) -> _User:
    """The user of LVM, told which directories offer devices to tenants, here and on the host."""
    if user.lvm is None:
        return user
    classes = own.storage_classes.values()
    directories = [path for one in classes for path in (one.host_dir, one.mount_dir)]
    return replace(user, lvm=user.lvm.kept_from(directories))


def _flex_faults(
    others: Others, own: Configuration, pools: Sequence[PoolConfig]
) -> Iterator[Problem]:
    """What is wrong between FlexVolume's configuration, ours or elastic's, and all the rest."""
    config = others.flexvolume or own.flexvolume
    if config is None:
        return
    from localvolume.config import flexkeys

    if others.flexvolume and own.flexvolume:
        yield Problem("", "flexvolume", "is given beside DRIVER_KIND or --flexvolume-driver")
    for fault in flexkeys.faults(config, own.storage_classes, pools):
        yield Problem("", "flexvolume", fault)


def _local_path(others: Others, node_name: str, problems: list[Problem]) -> LocalPath | None:
    if others.local_path is None:
        return None
    from localvolume.config.foreign import localpath

    try:
        return localpath.load(others.local_path, node_name, others.local_path_provisioner)
    except ConfigurationInvalid as invalid:
        problems += invalid.problems
        return None


def _lvmd(others: Others, problems: list[Problem]) -> Lvmd | None:
    if others.lvmd is None:
        return None
    from localvolume.config.foreign import lvmd

    try:
        return lvmd.load(others.lvmd)
    except ConfigurationInvalid as invalid:
        problems += invalid.problems
        return None


def _served(others: Others, found: LocalPath | None) -> tuple[Served, ...]:
    """The provisioners that are replaced here, even those that have no pool on this node."""
    served: list[Served] = []
    if others.kutti:
        served.append(Served(others.kutti.provisioner, "kutti"))
    if found is not None:
        served.append(
            Served(others.local_path_provisioner, "local-path", refusals=dict(found.refusals))
        )
    if others.openebs:
        served.append(
            Served(
                others.openebs[0].provisioner,
                "openebs",
                default_host_dir=others.openebs_base_path,
                host_dirs=frozenset(pool.host_dir for pool in others.openebs),
            )
        )
    return tuple(served)
