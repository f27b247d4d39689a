"""Looks for a pod's own volumes in the pools of this node, and changes nothing."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from localvolume.backends.model import OURS
from localvolume.backends.pool.layout import RECORDS
from localvolume.cli.judging import seen_here
from localvolume.cli.ownpod import own_pod
from localvolume.cli.planning import pools as planned_pools
from localvolume.cli.planning.facts import offline
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.why.pod import Looked
from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.loading import load
from localvolume.config.model import Configuration, ConfigurationInvalid
from localvolume.dynamic.inline import with_mounts
from localvolume.dynamic.model import Pool
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.moments import written
from localvolume.volumes.objects import is_dynamic

_NOT_HERE: Final = "this is not that node"


async def look(client: Client, facts: Facts, config: str, node: str, here: str, uid: str) -> Looked:
    """What this host says of the volumes of the pod with that UID, if it is that `node`."""
    if node != here:
        return Looked(why_not=_NOT_HERE)
    configuration = _configuration(config)
    if isinstance(configuration, str):
        return Looked(why_not=configuration)
    key = marks.node_key(node)
    volumes = [
        one
        for one in (facts.volumes or {}).values()
        if one.metadata.labels.get(marks.NODE_LABEL) == key and is_dynamic(one)
    ]
    try:
        pod = await own_pod(client)
        found, _, _ = await planned_pools.look(configuration, volumes, pod)
    except (ApiError, OSError) as error:
        return Looked(why_not=str(error))
    facts_of_node = NodeFacts(node, "", node, {marks.HOSTNAME_LABEL: node})
    known = replace(offline(facts_of_node, found), pods_with_mounts=())
    return Looked(known=known, since=_since(found, uid), mounted=_is_mounted(uid))


def _configuration(config: str) -> Configuration | str:
    """The agent's configuration, or why there is none."""
    if not os.path.isdir(config):
        return f"there is no configuration at {config}"
    try:
        return load(config)
    except (ConfigurationInvalid, EnvironmentInvalid) as invalid:
        return "; ".join(map(str, invalid.problems))


def _since(pools: Sequence[Pool], uid: str) -> dict[str, str]:
    """When the records of the pod's volumes were last written; a volume group has no such time."""
    found = {}
    for pool in pools:
        config = pool.config
        if not config.host_dir:
            continue
        where = seen_here(config.mount_dir, config.host_dir)
        for name, record in pool.report.records.items():
            if record.pod_uid != uid:
                continue
            try:
                changed = os.stat(f"{where}/{OURS}/{RECORDS}/{name}.json").st_mtime
            except OSError:
                continue
            found[name] = written(changed)
    return found


def _is_mounted(uid: str) -> bool | None:
    try:
        return uid in with_mounts({uid})
    except (OSError, ValueError):
        return None
