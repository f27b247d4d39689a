"""What `localvolume status` says: pure, from facts to the documented shape (docs/seeing.md).

Sizes are in bytes, times RFC 3339 in UTC. `null` means that something could not be read, never that
it does not exist: the key `unknown` says why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from localvolume.cli.seeing import csi
from localvolume.cli.seeing.facts import Facts, identity_of, is_from_us, moment
from localvolume.cli.seeing.said import event_shape
from localvolume.cli.seeing.status import groups, growth, snapshots
from localvolume.cli.seeing.status.nodes import Shape, bytes_in, node_shape
from localvolume.cli.seeing.status.states import (
    STATES,
    Agent,
    agent_of,
    current_warnings,
    is_ready,
    jobs_of,
    state_of,
)
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims as claim_words
from localvolume.volumes import marks
from localvolume.volumes.capacity import bytes_of
from localvolume.volumes.moments import written
from localvolume.volumes.objects import is_csi, path_of
from localvolume.volumes.snapshots import AnyContent

# Problems that somebody should look at, worst first, each with its object and what to do: pure.

_ERRORS: Final = ("lost", "unhealthy", "vanished", "held", "failed")
_DO: Final = {
    "lost": "bring the node back with its disks, or delete the claim that holds it",
    "unhealthy": "look at the disk; nothing is healed by deleting",
    "vanished": "mount it again, or plug the disk in again",
    "held": "nothing is done to it until this is put right",
    "failed": "somebody must look",
}
WAITING_SECONDS: Final = 60.0
"""A younger claim does not count as waiting."""

_NODE_SECONDS: Final = 3960.0
_SEVERITIES: Final = ("error", "warning")


def problems(
    facts: Facts,
    volumes: Sequence[PersistentVolume],
    claims: Sequence[PersistentVolumeClaim],
    nodes: Sequence[str],
    only: str = "",
) -> list[dict[str, Any]]:
    """Each with `severity` (error, warning), `about`, `node`, `reason` and `do`; errors first.

    `said`: when the Event was seen that says so, None where the objects themselves do.
    """
    found = [
        *_of_namespaces(facts),
        *_of_driver(facts, volumes, claims),
        *(problem for name in nodes for problem in _of_node(facts, name)),
        *(problem for volume in volumes for problem in _of_volume(facts, volume)),
        *(problem for claim in claims for problem in _of_claim(facts, claim)),
        *(problem for volume in volumes for problem in _of_growth(facts, volume)),
        *(_problem("warning", *one) for one in snapshots.problems_of_snapshots(facts, only)),
        *(_problem("warning", *one) for one in groups.problems_of_groups(facts, only)),
    ]
    return sorted(found, key=lambda one: _SEVERITIES.index(one["severity"]))


def _problem(
    severity: str, about: str, node: str, text: str, do: str, said: str | None = None
) -> dict[str, Any]:
    found = {"severity": severity, "about": about, "node": node, "reason": text, "do": do}
    return {**found, "said": said or None}


def _of_namespaces(facts: Facts) -> Iterator[dict[str, Any]]:
    namespaces = _namespaces(facts)
    if len(namespaces) > 1:
        text = f"pods of DaemonSets with the label {facts.selector} are in several namespaces"
        text = (
            f"{text}, {', '.join(namespaces)}: what they say of themselves is taken for an agent's"
        )
        do = (
            "find out who uses that label where you installed no agents; "
            "--release-namespace says where yours are"
        )
        yield _problem("warning", "agents", "", text, do)


def _namespaces(facts: Facts) -> list[str]:
    """Those that have pods which call themselves agents."""
    return sorted({pod.metadata.namespace for found in facts.agents.values() for pod in found})


def _whose(facts: Facts, agent: Agent) -> str:
    """What kubectl is to describe: the agent's pod, or what should have made one."""
    if agent.pod:
        return f"pod -n {agent.pod.replace('/', ' ')}"
    namespaces = _namespaces(facts)
    where = f"-n {namespaces[0]}" if len(namespaces) == 1 else f"-A -l {facts.selector}"
    return f"daemonsets {where}"


def _of_driver(
    facts: Facts,
    volumes: Sequence[PersistentVolume],
    claims: Sequence[PersistentVolumeClaim],
) -> Iterator[dict[str, Any]]:
    """What keeps pods from using volumes of our CSI driver."""
    served = [one for one in volumes if is_csi(one)]
    waiting = [one for one in claims if claim_words.provisioner_of(one) == marks.CSI_DRIVER]
    if not served and not waiting:
        return
    if text := csi.without_driver(facts):
        do = "see that the controller runs: it makes it"
        yield _problem("error", f"csidriver/{marks.CSI_DRIVER}", "", text, do)
    used = {facts.node_of(one) for one in served} | {facts.node_of_claim(one) for one in waiting}
    for node in sorted(used):
        exists = facts.nodes is None or node in facts.nodes
        if exists and (text := csi.unregistered(facts, node)):
            do = f"{csi.SWITCH_ON}; until then no pod starts with such a volume"
            yield _problem("error", f"csinode/{node}", node, text, do)


def _of_node(facts: Facts, name: str) -> Iterator[dict[str, Any]]:
    about = f"node/{name}"
    exists = facts.nodes is None or name in facts.nodes
    agent = agent_of(facts, name)
    if exists and agent.state in ("missing", "not ready"):
        do = f"kubectl describe {_whose(facts, agent)}"
        yield _problem("error", about, name, f"its agent is {agent.state}: {agent.why}", do)
    for event in current_warnings(facts.events_of_node(name)):
        seen = moment(event.seen)
        if seen is not None and facts.now - seen <= _NODE_SECONDS:
            text = f"{event.reason}: {event.message}"
            do = f"kubectl describe node {name}"
            yield _problem("warning", about, name, text, do, event.seen)


def _of_volume(facts: Facts, volume: PersistentVolume) -> Iterator[dict[str, Any]]:
    name, state = volume.metadata.name, state_of(facts, volume)
    if state.word in _ERRORS:
        text = f"{state.word}: {state.why}" if state.why else state.word
        do = f"{_DO[state.word]}; localvolume why pv/{name}"
        yield _problem("error", f"pv/{name}", facts.node_of(volume), text, do, state.said)


def _of_claim(facts: Facts, claim: PersistentVolumeClaim) -> Iterator[dict[str, Any]]:
    meta = claim.metadata
    since = moment(meta.creation_timestamp)
    if since is None or facts.now - since < WAITING_SECONDS:
        return
    said = facts.events_about("PersistentVolumeClaim", claim)
    warning = next((one for one in said if one.type == "Warning"), None)
    ours = next((one for one in said if is_from_us(one)), warning)
    if ours is None and any(one.reason == "WaitForFirstConsumer" for one in said[:1]):
        return
    last = ours or next(iter(said), None)
    text = f"it waits: {last.message}" if last else "it waits, and nobody says why"
    do = f"localvolume why pvc/{meta.name} -n {meta.namespace}"
    about = f"pvc/{meta.name} -n {meta.namespace}"
    when = last.seen if last else None
    yield _problem("warning", about, facts.node_of_claim(claim), text, do, when)


def _of_growth(facts: Facts, volume: PersistentVolume) -> Iterator[dict[str, Any]]:
    ref = volume.spec.claim_ref
    claim = (facts.claims or {}).get(f"{ref.namespace}/{ref.name}") if ref else None
    if ref is None or claim is None or claim.metadata.uid != ref.uid:
        return
    if growth.is_to_grow(claim, volume) and (failed := growth.failure(facts, claim)):
        about = f"pvc/{ref.name} -n {ref.namespace}"
        text = f"it does not grow: {failed}"
        yield _problem("warning", about, facts.node_of(volume), text, f"localvolume why {about}")


VERSION = "localvolume.dev/status/v1"
"""The version of the shape. Keys may be added; none is removed or changes its meaning."""


def overview(facts: Facts, only: str = "") -> Shape:
    """The whole status, or only what concerns one node."""
    names = node_names(facts) if not only else [only]
    volumes = [one for one in facts.ours if not only or facts.is_of(one, only)]
    by_node: dict[str, list[PersistentVolume]] = {}
    for volume in volumes:
        by_node.setdefault(facts.node_of(volume), []).append(volume)
    found = problems(facts, volumes, waiting_claims(facts, only), names, only)
    return {
        "version": VERSION,
        "time": written(facts.now),
        "unknown": dict(facts.unknown),
        "summary": _summary(facts, volumes, names, len(found), only),
        "problems": found,
        "nodes": [node_shape(facts, name, by_node.get(name, ())) for name in names],
        "controller": _controller(facts),
        "volumes": None
        if facts.volumes is None
        else [volume_shape(facts, one) for one in sorted(volumes, key=_by_place(facts))],
        "claims": None
        if facts.claims is None
        else [_claim(facts, one) for one in waiting_claims(facts, only)],
        "cleanings": None
        if facts.volumes is None
        else [_cleaning(facts, one) for one in volumes if state_of(facts, one).word == "cleaning"],
        "snapshots": None
        if facts.contents is None
        else [snapshots.snapshot_shape(facts, one) for one in snapshots.contents_of(facts, only)],
        "groupSnapshots": None
        if facts.groups is None
        else [groups.group_shape(facts, one) for one in groups.groups_of(facts, only)],
        "orphans": None,
    }


def node_names(facts: Facts) -> list[str]:
    """The nodes that have anything of ours, including lost ones."""
    found = {facts.node_of(volume) for volume in facts.ours}
    found |= facts.agents.keys()
    for key in {**facts.capacities_by_node, **facts.disks_by_node}:
        node = facts.known_nodes.by_key(key)
        found.add(node.metadata.name if node else key)
    return sorted(found - {""})


def waiting_claims(facts: Facts, only: str = "") -> Sequence[PersistentVolumeClaim]:
    """Claims that wait for a volume of ours; for one node, those that were routed to it."""
    return [
        claim
        for _, claim in sorted((facts.claims or {}).items())
        if claim.status.phase in ("", "Pending")
        and (
            facts.is_our_class(claim_words.class_of(claim))
            or claim_words.provisioner_of(claim) in facts.provisioners
        )
        and (not only or facts.node_of_claim(claim) == only)
    ]


def _summary(
    facts: Facts, volumes: Sequence[PersistentVolume], names: Sequence[str], found: int, only: str
) -> Shape:
    known = facts.volumes is not None
    states = Counter(state_of(facts, one).word for one in volumes)
    agents = Counter(agent_of(facts, name).state for name in names)
    return {
        "nodes": len(names) if known or facts.pods is not None else None,
        "agents": {word: agents[word] for word in ("ready", "not ready", "missing", "unknown")},
        "volumes": {word: states[word] for word in STATES} if known else None,
        "volumeCount": len(volumes) if known else None,
        "capacityBytes": bytes_in(volumes) if known else None,
        "snapshots": None
        if facts.contents is None
        else _counts(snapshots.contents_of(facts, only)),
        "groupSnapshots": None if facts.groups is None else _counts(groups.groups_of(facts, only)),
        "claimsWaiting": None if facts.claims is None else len(waiting_claims(facts, only)),
        "problems": found,
    }


def _counts(contents: Iterable[AnyContent]) -> dict[str, int]:
    found = Counter(snapshots.state_of_content(one).word for one in contents)
    return {word: found[word] for word in snapshots.SNAPSHOT_STATES}


def _controller(facts: Facts) -> Shape:
    pods = None if facts.pods is None else facts.controllers
    lease = next(iter(facts.leases or ()), None)
    return {
        "pods": None if pods is None else len(pods),
        "ready": None if pods is None else sum(map(is_ready, pods)),
        "leader": lease.spec.holder_identity if lease else None,
        "renewed": lease.spec.renew_time if lease else None,
    }


def volume_shape(facts: Facts, volume: PersistentVolume) -> Shape:
    """One PersistentVolume, as `status` and `why` show it."""
    meta, spec, state = volume.metadata, volume.spec, state_of(facts, volume)
    ref = spec.claim_ref
    return {
        "name": meta.name,
        "node": facts.node_of(volume),
        "class": spec.storage_class_name,
        "state": state.word,
        "reason": state.why,
        "phase": volume.status.phase,
        "capacityBytes": bytes_of(spec.capacity.get("storage", "")),
        "volumeMode": spec.volume_mode or "Filesystem",
        "reclaimPolicy": spec.persistent_volume_reclaim_policy,
        "path": path_of(volume) or (spec.host_path.path if spec.host_path else ""),
        "csi": is_csi(volume),
        "attributesClass": csi.attributes_class_of(volume),
        "attributes": csi.attributes_of(facts, volume),
        "claim": f"{ref.namespace}/{ref.name}" if ref else "",
        "identity": identity_of(volume),
        "cleaned": meta.annotations.get(marks.CLEANED_ANNOTATION, ""),
        "pool": meta.annotations.get(marks.POOL_ANNOTATION, "").partition("/")[0],
        "created": meta.creation_timestamp,
        "deleting": meta.deletion_timestamp,
    }


def _claim(facts: Facts, claim: PersistentVolumeClaim) -> Shape:
    said = next(iter(facts.events_about("PersistentVolumeClaim", claim)), None)
    return {
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "class": claim_words.class_of(claim),
        "requestedBytes": claim_words.requested_bytes(claim),
        "node": facts.node_of_claim(claim),
        "created": claim.metadata.creation_timestamp,
        "lastEvent": event_shape(said) if said else None,
    }


def _cleaning(facts: Facts, volume: PersistentVolume) -> Shape:
    said = next(facts.words_about(volume), None)
    return {
        "persistentVolume": volume.metadata.name,
        "node": facts.node_of(volume),
        "deleting": volume.metadata.deletion_timestamp,
        "jobs": None
        if facts.jobs is None
        else [{"name": job.name, "state": job.state} for job in jobs_of(facts, volume)],
        "lastEvent": event_shape(said) if said else None,
    }


def _by_place(facts: Facts) -> Any:
    return lambda one: (facts.node_of(one), one.spec.storage_class_name, one.metadata.name)
