"""What this node itself says about a path: from the agent's plan, or from the path's pool."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

from localvolume.backends.model import Record
from localvolume.backends.pool.survey import survey
from localvolume.cli import plan
from localvolume.cli.ownpod import own_pod
from localvolume.cli.seeing.bundle.hostfacts import planned
from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.kinds import CONTENTS
from localvolume.cli.seeing.why.explanation import Explanation, Verdict
from localvolume.cli.seeing.why.snapshot import contents_named, why_snapshot
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.cli.seeing.words import pairs, size
from localvolume.config.environment import EnvironmentInvalid
from localvolume.config.loading import load
from localvolume.config.model import Configuration, ConfigurationInvalid
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.model import Pool
from localvolume.dynamic.plan.orphans import orphans_of, place_of
from localvolume.health.plan.paths import host_path_of
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError
from localvolume.kube.podmounts import PodMounts
from localvolume.volumes.hostdirs import misplaced
from localvolume.volumes.identity import is_within
from localvolume.volumes.moments import written

_NEXT: Final = {
    "publish": ("a PersistentVolume is created for it", "nobody: the agent does it"),
    "keep": ("nothing is to be done", "nobody"),
    "skip": ("it is never offered", "you, if it should be: namePattern"),
    "format": ("a filesystem is made on it, once its plan is approved", "you: approve the plan"),
    "hold": ("it is left alone, and looked at again when something changes", "you: put that right"),
}


class NotHere(Exception):
    """This is not the node, or its plan cannot be made; the message says why."""


class Here:
    """The host that this process runs on, with its agent's configuration."""

    def __init__(self, client: Client, config: str, node: str, namespace: str) -> None:
        self._client = client
        self._node = node
        self._namespace = namespace
        if not os.path.isdir(config):
            raise NotHere(f"there is no configuration at {config}")
        try:
            self._configuration: Configuration = load(config)
        except (ConfigurationInvalid, EnvironmentInvalid) as invalid:
            raise NotHere("; ".join(map(str, invalid.problems))) from None

    async def why(self, facts: Facts, path: str) -> Explanation | None:
        """None if the path belongs to neither a class nor a pool of this node. Raises NotHere."""
        path = self._on_host(path)
        try:
            rows = await planned(
                self._client, self._configuration, self._node, self._namespace, facts.volumes
            )
        except (plan.Unknown, ApiError) as error:
            raise NotHere(str(error)) from None
        around = [row for row in rows if row["path"] and is_within(path, row["path"])]
        exact = [row for row in rows if path in (row["path"], *_links(row))]
        if row := next(iter(exact or around), None):
            return _of_row(facts, path, row)
        for pool in self._configuration.pools:
            if pool.host_dir and is_within(path, pool.host_dir):
                wrong = misplaced(await self._own_pod(), pool.host_dir, pool.mount_dir)
                return await asyncio.to_thread(_of_pool, facts, path, pool, wrong)
        for class_ in self._configuration.storage_classes.values():
            if path == class_.host_dir:
                return _of_class(path, class_.name, rows)
            if is_within(path, class_.host_dir):
                text = f"nothing is at {path}, in the directory of the class {class_.name}"
                verdict = Verdict(
                    code="no-entry", text=text, then="it is offered once it is there", who="you"
                )
                return Explanation(about=path, verdict=verdict)
        return None

    async def _own_pod(self) -> PodMounts | None:
        try:
            return await own_pod(self._client)
        except ApiError as error:
            raise NotHere(str(error)) from None

    def _on_host(self, path: str) -> str:
        """The path on the host, if it was given as the agent sees it."""
        places = [
            (one.mount_dir, one.host_dir) for one in self._configuration.storage_classes.values()
        ]
        places += [(one.mount_dir, one.host_dir) for one in self._configuration.pools]
        for mount_dir, host_dir in places:
            if mount_dir and is_within(path, mount_dir):
                return host_dir + path[len(mount_dir.rstrip("/")) :]
        return path


def _links(row: Mapping[str, Any]) -> Sequence[str]:
    """The other names of a disk."""
    found: Sequence[str] = row.get("disk", {}).get("links", ())
    return found


def _of_row(facts: Facts, path: str, row: Mapping[str, Any]) -> Explanation:
    """What the plan says, and what is known of the PersistentVolume that the row is about."""
    chain = [("Verdict", str(row["verdict"])), ("Reason", str(row["reason"]))]
    chain += [("Class", str(row["class"]))] if row.get("class") else []
    chain += [("Entry", row["path"])] if row["path"] != path else []
    chain += [("Kind", row["kind"])] if "kind" in row else []
    chain += [("Size", size(row["capacityBytes"]))] if "capacityBytes" in row else []
    of_disk = {"filter": "Filter", "volumePath": "Volume", "plan": "Plan"}
    chain += [(name, str(row[key])) for key, name in of_disk.items() if key in row]
    if row.get("identity"):
        chain.append(("Identity", pairs(row["identity"])))
    name = row.get("persistentVolume", "")
    volume = (facts.volumes or {}).get(name)
    word = row["verdict"]
    then, who = _NEXT.get(word, (f"the agent's next step: {word}", "nobody: the agent does it"))
    text = f"{word}: {row['reason']}"
    if volume is None:
        return Explanation(
            about=path,
            verdict=Verdict(code=f"plan-{word}".replace(" ", "-"), text=text, then=then, who=who),
            chain=chain,
        )
    of = why_volume(facts, volume)
    text += f"; {name}: {of.verdict.text}"
    if word == "keep":
        then, who = of.verdict.then, of.verdict.who
    return Explanation(
        about=path,
        verdict=Verdict(code=f"plan-{word}".replace(" ", "-"), text=text, then=then, who=who),
        chain=[*chain, ("PersistentVolume", name), *of.chain],
        events=of.events,
    )


def _of_class(path: str, name: str, rows: Sequence[Mapping[str, Any]]) -> Explanation:
    own = [row for row in rows if row["class"] == name]
    text = f"it is the directory of the class {name}, with {len(own)} entries"
    chain = [(os.path.basename(row["path"]), f"{row['verdict']}: {row['reason']}") for row in own]
    verdict = Verdict(code="class", text=text, then="each entry is judged for itself")
    return Explanation(about=path, verdict=verdict, chain=chain)


def _of_snapshot(
    facts: Facts,
    path: str,
    config: PoolConfig,
    record: Record,
    head: Sequence[tuple[str, str]],
) -> Explanation:
    """What the pool's record says of it, and what the object of the cluster does."""
    chain = [
        *head,
        ("Snapshot", f"{record.name} of volume {record.snapshot_of}"),
        ("Cut", written(record.cut_at / 1e9) if record.cut_at else "not yet"),
        ("Restores to", size(record.size_bytes)),
        ("Holds", f"{size(record.holds_bytes)} of the pool's room at the most"),
    ]
    what = f"it is the snapshot {record.name} in the pool {config.name}"
    for content in contents_named(facts, record.name, ""):
        of = why_snapshot(facts, content)
        verdict = Verdict(
            code=of.verdict.code,
            text=f"{what}, for {of.about}: {of.verdict.text}",
            then=of.verdict.then,
            who=of.verdict.who,
        )
        return Explanation(about=path, verdict=verdict, chain=[*chain, *of.chain], events=of.events)
    unread = CONTENTS.plural in facts.unknown
    text = f"{what}, and " + (
        "whether a VolumeSnapshotContent stands for it is not known"
        if unread
        else "no VolumeSnapshotContent stands for it: it was retained, or a CSI call made it"
    )
    who = "you: offer it anew by its handle, or remove it by a content with the policy Delete"
    verdict = Verdict(code="snapshot", text=text, then="it is never removed by itself", who=who)
    return Explanation(about=path, verdict=verdict, chain=chain)


def _of_pods_own(
    path: str, config: PoolConfig, record: Record, head: Sequence[tuple[str, str]]
) -> Explanation:
    """What the pool's record says of a volume that a pod's spec asked for: it has no object."""
    chain = [
        *head,
        ("Volume", record.name),
        ("Pod", f"{record.pod}, UID {record.pod_uid}"),
        ("Size", size(record.size_bytes)),
    ]
    text = f"it is a volume of the spec of pod {record.pod}, in the pool {config.name}"
    then = "it is removed once the pod is over and nothing of it is mounted"
    verdict = Verdict(code="inline", text=text, then=then, who="nobody: kubelet and agent do it")
    return Explanation(about=path, verdict=verdict, chain=chain)


def _of_pool(facts: Facts, path: str, config: PoolConfig, wrong: str | None) -> Explanation:
    pool = Pool(config=config, report=survey(config))
    head = [("Pool", f"{config.name}, backend {config.backend}, at {config.host_dir}")]
    if problem := wrong or pool.report.problem:
        text = f"it lies in the pool {config.name}, which cannot be used: {problem}"
        then, who = "no volume is made, grown or removed there", "you: put that right"
        verdict = Verdict(code="pool-problem", text=text, then=then, who=who)
        return Explanation(about=path, verdict=verdict, chain=head)
    for volume in (facts.volumes or {}).values():
        where = host_path_of(volume, config, pool.report)
        if where and where != config.host_dir and is_within(path, where):
            of = why_volume(facts, volume)
            text = f"it is {volume.metadata.name} of the pool {config.name}: {of.verdict.text}"
            verdict = Verdict(
                code=of.verdict.code, text=text, then=of.verdict.then, who=of.verdict.who
            )
            return Explanation(
                about=path, verdict=verdict, chain=[*head, *of.chain], events=of.events
            )
    for record in pool.report.records.values():
        if record.snapshot_of and is_within(path, f"{config.host_dir}/{place_of(record)}"):
            return _of_snapshot(facts, path, config, record, head)
        if record.pod_uid and is_within(path, f"{config.host_dir}/{place_of(record)}"):
            return _of_pods_own(path, config, record, head)
    claims = (facts.claims or {}).values()
    for orphan in orphans_of([pool], facts.volumes, claims) if facts.volumes is not None else ():
        if is_within(path, f"{config.host_dir}/{orphan.place}"):
            text = (
                f"it lies in the pool {config.name} and belongs to no PersistentVolume: an orphan"
            )
            who = "you: look at it, and remove it by hand if nobody wants it"
            verdict = Verdict(
                code="orphan", text=text, then="it is never removed by itself", who=who
            )
            was = [("Made for", f"{orphan.name} {orphan.claim}")] if orphan.name else []
            return Explanation(about=path, verdict=verdict, chain=[*head, *was])
    text = f"it is the pool {config.name} or a place of its own, and no volume"
    verdict = Verdict(code="pool", text=text, then="volumes are made there for claims")
    return Explanation(about=path, verdict=verdict, chain=head)
