"""What somebody should look at, worst first, each with whom it is about and what to do: pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from localvolume.cli.seeing.facts import Facts, is_from_us, moment
from localvolume.cli.seeing.status import growth
from localvolume.cli.seeing.status.states import agent_of, state_of
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim

_ERRORS: Final = ("lost", "unhealthy", "vanished", "held", "failed")
_DO: Final = {
    "lost": "bring the node back with its disks, or delete the claim that holds it",
    "unhealthy": "look at the disk; nothing is healed by deleting",
    "vanished": "mount it again, or plug the disk in again",
    "held": "nothing is done to it until this is put right",
    "failed": "somebody must look",
}
WAITING_SECONDS: Final = 60.0
"""A claim that is younger has not waited yet."""

_NODE_SECONDS: Final = 3960.0
_SEVERITIES: Final = ("error", "warning")


def problems(
    facts: Facts,
    volumes: Sequence[PersistentVolume],
    claims: Sequence[PersistentVolumeClaim],
    nodes: Sequence[str],
) -> list[dict[str, Any]]:
    """Each with `severity` (error, warning), `about`, `node`, `text` and `do`; errors first."""
    found = [
        *_of_namespaces(facts),
        *(problem for name in nodes for problem in _of_node(facts, name)),
        *(problem for volume in volumes for problem in _of_volume(facts, volume)),
        *(problem for claim in claims for problem in _of_claim(facts, claim)),
        *(problem for volume in volumes for problem in _of_growth(facts, volume)),
    ]
    return sorted(found, key=lambda one: _SEVERITIES.index(one["severity"]))


def _problem(severity: str, about: str, node: str, text: str, do: str) -> dict[str, Any]:
    return {"severity": severity, "about": about, "node": node, "text": text, "do": do}


def _of_namespaces(facts: Facts) -> Iterator[dict[str, Any]]:
    pods = (pod for found in facts.agents.values() for pod in found)
    namespaces = sorted({pod.metadata.namespace for pod in pods})
    if len(namespaces) > 1:
        text = f"pods of DaemonSets with the label {facts.selector} are in several namespaces"
        text = (
            f"{text}, {', '.join(namespaces)}: what they say of themselves is taken for an agent's"
        )
        do = (
            "who did not install agents there has no business with that label; "
            "--release-namespace says where ours are"
        )
        yield _problem("warning", "agents", "", text, do)


def _of_node(facts: Facts, name: str) -> Iterator[dict[str, Any]]:
    about = f"node/{name}"
    exists = facts.nodes is None or name in facts.nodes
    agent = agent_of(facts, name)
    if exists and agent.state in ("missing", "not ready"):
        do = "kubectl describe pod" + (f" -n {agent.pod.replace('/', ' ')}" if agent.pod else "s")
        yield _problem("error", about, name, f"its agent is {agent.state}: {agent.why}", do)
    said = set()
    for event in facts.events_of_node(name):
        if event.type != "Warning" or (event.reason, event.message) in said:
            continue
        said.add((event.reason, event.message))
        seen = moment(event.seen)
        if seen is not None and facts.now - seen <= _NODE_SECONDS:
            text = f"{event.reason}: {event.message}"
            yield _problem("warning", about, name, text, f"kubectl describe node {name}")


def _of_volume(facts: Facts, volume: PersistentVolume) -> Iterator[dict[str, Any]]:
    name, state = volume.metadata.name, state_of(facts, volume)
    if state.word in _ERRORS:
        text = f"{state.word}: {state.why}" if state.why else state.word
        do = f"{_DO[state.word]}; localvolume why pv/{name}"
        yield _problem("error", f"pv/{name}", facts.node_of(volume), text, do)


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
    yield _problem("warning", about, facts.node_of_claim(claim), text, do)


def _of_growth(facts: Facts, volume: PersistentVolume) -> Iterator[dict[str, Any]]:
    ref = volume.spec.claim_ref
    claim = (facts.claims or {}).get(f"{ref.namespace}/{ref.name}") if ref else None
    if ref is None or claim is None or claim.metadata.uid != ref.uid:
        return
    if growth.is_to_grow(claim, volume) and (failed := growth.failure(facts, claim)):
        about = f"pvc/{ref.name} -n {ref.namespace}"
        text = f"it does not grow: {failed.message}"
        yield _problem("warning", about, facts.node_of(volume), text, f"localvolume why {about}")
