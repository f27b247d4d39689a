"""`localvolume why`: why a volume, claim, snapshot, pod or path is as it is, and who must act."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Collection
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from localvolume.cli.output.exits import exit_statuses
from localvolume.cli.output.refusal import say
from localvolume.cli.output.unreached import unreached
from localvolume.cli.ownpod import own_namespace, own_node
from localvolume.cli.rows import print_value
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import CONTENTS, EVENTS
from localvolume.cli.seeing.kinds import PODS as SEEN_PODS
from localvolume.cli.seeing.reading import (
    ACCESS_FLAGS,
    access_of,
    claim_named,
    read,
    volume_named,
    with_consumers,
    with_volume_of,
)
from localvolume.cli.seeing.why.claim import why_claim
from localvolume.cli.seeing.why.explanation import Explanation
from localvolume.cli.seeing.why.group import groups_named, why_group
from localvolume.cli.seeing.why.path import place_of, volumes_at, why_place
from localvolume.cli.seeing.why.snapshot import contents_named, why_snapshot
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.config.flags.agent import CONFIG_DIRECTORY
from localvolume.config.flags.table import Flag, add_flags, output
from localvolume.config.syntax.readers import did_you_mean
from localvolume.kube.client import Client
from localvolume.kube.errors import AccessInvalid, ApiError, NotThere
from localvolume.kube.kinds import GROUP_CONTENTS
from localvolume.kube.listing import listed
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes.marks import CSI_DRIVER

_VOLUME = ("pv", "persistentvolume", "persistentvolumes")
_SNAPSHOT = (
    *("vs", "volumesnapshot", "volumesnapshots", "snapshot"),
    *("vsc", "volumesnapshotcontent", "volumesnapshotcontents", "snapshotcontent"),
)
_GROUP = (
    *("vgs", "volumegroupsnapshot", "volumegroupsnapshots", "groupsnapshot"),
    *("vgsc", "volumegroupsnapshotcontent", "volumegroupsnapshotcontents", "groupsnapshotcontent"),
)
_POD = ("po", "pod", "pods")
_CLAIM = ("pvc", "persistentvolumeclaim", "persistentvolumeclaims", "claim")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = (
        "A path is explained by what the agent's plan says of it, on its node; elsewhere, or with "
        "--node, by what PersistentVolumes say. "
        + exit_statuses("explained", "there is no such thing")
    )
    parser.add_argument(
        "what",
        metavar="WHAT",
        help="pv/NAME, pvc/NAME, snapshot/NAME or groupsnapshot/NAME (or the name of its content, "
        "or its handle), a bare name (of any of them), pod/NAME for the volumes of its own spec, "
        "or /a/path",
    )
    here = f"this host is the node, with this configuration (default {CONFIG_DIRECTORY}, if any)"
    add_flags(
        parser,
        Flag("-n --namespace", "NAME", "of the claim, pod, VolumeSnapshot or VolumeGroupSnapshot"),
        Flag("--node", "NAME", "the node that has the path", default=""),
        Flag("--config", "DIR", here),
        output("text", "json", "yaml"),
        *ACCESS_FLAGS,
    )


class _NoSuch(Exception):
    """Nothing has that name: perhaps it was mistyped."""


@dataclass(frozen=True, slots=True)
class _Answer:
    now: float
    found: Explanation


def run(arguments: argparse.Namespace) -> int:
    try:
        answer = asyncio.run(_answer(arguments))
    except _NoSuch as error:
        say("why", error)
        return 1
    except (AccessInvalid, ApiError) as error:
        return unreached("why", error)
    if arguments.output == "text":
        print(answer.found.text(answer.now))
    else:
        print_value(answer.found.shape(), arguments.output)
    return 0


async def _answer(arguments: argparse.Namespace) -> _Answer:
    async with Client(access_of(arguments), user_agent="localvolume-why") as client:
        facts = await read(client, arguments.selector, arguments.release_namespace, of_one=True)
        what: str = arguments.what
        if what.startswith("/"):
            return _Answer(facts.now, await _path(client, facts, arguments))
        namespace = arguments.namespace or client.access.namespace
        kind, _, name = what.rpartition("/")
        if kind.lower() in _VOLUME:
            return _Answer(facts.now, await _volume(client, facts, name))
        if kind.lower() in _CLAIM:
            return _Answer(facts.now, await _claim(client, facts, namespace, name))
        if kind.lower() in _SNAPSHOT:
            return _Answer(facts.now, _snapshot(facts, namespace, name))
        if kind.lower() in _GROUP:
            return _Answer(facts.now, _group(facts, namespace, name))
        if kind.lower() in _POD:
            return _Answer(facts.now, await _pod(client, facts, namespace, name, arguments))
        if kind:
            # namespace/name, as one reads it in kubectl's tables.
            return _Answer(facts.now, await _claim(client, facts, kind, name))
        if await _if_there(volume_named(client, facts, name)):
            return _Answer(facts.now, await _volume(client, facts, name))
        if await _if_there(claim_named(client, facts, namespace, name)):
            return _Answer(facts.now, await _claim(client, facts, namespace, name))
        if contents_named(facts, name, namespace):
            return _Answer(facts.now, _snapshot(facts, namespace, name))
        if groups_named(facts, name, namespace):
            return _Answer(facts.now, _group(facts, namespace, name))
        _must_be_readable(facts, "persistentvolumes", "persistentvolumeclaims")
        _must_be_readable(facts, CONTENTS.plural, GROUP_CONTENTS.plural)
        known = {*(facts.volumes or {}), *_names_in(facts, namespace)}
        hint = _hint(name, known) or _elsewhere(facts, name)
        raise _NoSuch(
            f"there is no PersistentVolume {name}, and no claim, snapshot or group of snapshots of "
            f"that name in {namespace}{hint}"
        )


async def _if_there(found: Awaitable[PersistentVolume | PersistentVolumeClaim | None]) -> bool:
    """False also where it may not be read: what could not be listed is told in the end."""
    try:
        return await found is not None
    except ApiError:
        return False


async def _volume(client: Client, facts: Facts, name: str) -> Explanation:
    volume = await volume_named(client, facts, name)
    if volume is None:
        raise _NoSuch(f"there is no PersistentVolume {name}{_hint(name, facts.volumes or {})}")
    return why_volume(facts, volume)


def _snapshot(facts: Facts, namespace: str, name: str) -> Explanation:
    found = contents_named(facts, name, namespace)
    if not found:
        _must_be_readable(facts, CONTENTS.plural)
        known = {one.spec.volume_snapshot_ref.name for one in (facts.contents or {}).values()}
        hint = _hint(name, known | (facts.contents or {}).keys())
        raise _NoSuch(
            f"no VolumeSnapshotContent of {CSI_DRIVER} is called {name}, is for a VolumeSnapshot "
            f"{name} in {namespace}, or has the handle {name}{hint}"
        )
    # Several may stand for one snapshot; the one that is going says least about it.
    return why_snapshot(facts, min(found, key=lambda one: bool(one.metadata.deletion_timestamp)))


def _group(facts: Facts, namespace: str, name: str) -> Explanation:
    found = groups_named(facts, name, namespace)
    if not found:
        _must_be_readable(facts, GROUP_CONTENTS.plural)
        known = {one.spec.volume_group_snapshot_ref.name for one in (facts.groups or {}).values()}
        hint = _hint(name, known | (facts.groups or {}).keys())
        raise _NoSuch(
            f"no VolumeGroupSnapshotContent of {CSI_DRIVER} is called {name}, is for a "
            f"VolumeGroupSnapshot {name} in {namespace}, or has the handle {name}{hint}"
        )
    return why_group(facts, min(found, key=lambda one: bool(one.metadata.deletion_timestamp)))


async def _claim(client: Client, facts: Facts, namespace: str, name: str) -> Explanation:
    claim = await claim_named(client, facts, namespace, name)
    if claim is None:
        hint = _hint(name, _names_in(facts, namespace)) or _elsewhere(facts, name)
        raise _NoSuch(f"there is no claim {name} in the namespace {namespace}{hint}")
    facts = await with_volume_of(client, facts, claim)
    return why_claim(await with_consumers(client, facts, namespace), claim)


async def _pod(
    client: Client, facts: Facts, namespace: str, name: str, arguments: argparse.Namespace
) -> Explanation:
    from localvolume.cli.seeing.why.pod import POD_EVENTS, why_pod
    from localvolume.cli.seeing.why.podhere import look

    try:
        pod = await client.get(SEEN_PODS, name, namespace)
    except NotThere:
        raise _NoSuch(f"there is no pod {name} in the namespace {namespace}") from None
    about = f"involvedObject.kind=Pod,involvedObject.uid={pod.metadata.uid}"
    try:
        events = await listed(client, EVENTS, namespace, field_selector=about)
    except ApiError as error:
        # An agent, in whose pod this is asked, may not read them.
        events, facts = [], replace(facts, unknown={**facts.unknown, POD_EVENTS: str(error)})
    here = arguments.node or own_node()
    config = arguments.config or CONFIG_DIRECTORY
    looked = await look(client, facts, config, pod.spec.node_name, here, pod.metadata.uid)
    facts = await with_consumers(client, facts, namespace)
    return why_pod(facts, pod, events, looked)


async def _path(client: Client, facts: Facts, arguments: argparse.Namespace) -> Explanation:
    path = str(PurePosixPath(arguments.what))
    here = own_node()
    whys: dict[str, str] = {}
    if arguments.config or arguments.node in ("", here):
        from localvolume.cli.seeing.why.here import Here, NotHere

        try:
            config = arguments.config or CONFIG_DIRECTORY
            node = Here(client, config, arguments.node or here, own_namespace())
            found = await node.why(facts, path)
        except NotHere as error:
            whys[f"{here} itself"] = str(error)
        else:
            if found is not None:
                return found
    _must_be_readable(facts, "persistentvolumes")
    facts = replace(facts, unknown={**facts.unknown, **whys})
    volumes = volumes_at(facts, path, arguments.node)
    if not volumes:
        places = {place for one in (facts.volumes or {}).values() if (place := place_of(one))}
        on = f" of {arguments.node}" if arguments.node else ""
        reasons = "".join(f"; {what}: {why}" for what, why in whys.items())
        raise _NoSuch(f"no PersistentVolume{on} is at {path}{_hint(path, places)}{reasons}")
    return why_place(facts, path, volumes)


def _must_be_readable(facts: Facts, *kinds: str) -> None:
    """Raises ApiError if these could not be read: then they must not be reported as absent."""
    for kind in kinds:
        if kind in facts.unknown:
            raise ApiError(f"{kind}: {facts.unknown[kind]}")


def _names_in(facts: Facts, namespace: str) -> list[str]:
    keys = (key.partition("/") for key in facts.claims or {})
    return [name for within, _, name in keys if within == namespace]


def _elsewhere(facts: Facts, name: str) -> str:
    """The other namespaces that have a claim of that name, for a hint."""
    found = sorted(key for key in facts.claims or {} if key.partition("/")[2] == name)
    return f"; there is {', '.join(found[:3])}: say -n NAMESPACE" if found else ""


def _hint(name: str, known: Collection[str]) -> str:
    return did_you_mean(name, known)
