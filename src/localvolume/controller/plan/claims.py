"""Which node must serve a claim, and why: pure.

A table of rules, as in ``volumes``: the first answer counts. A claim is routed by our label alone;
a selected node is removed only if it does not exist or its class does not allow it. If an action
rests on the absence of a Node, the API server is asked once more before the action is done.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from localvolume.controller.plan.capacity import (
    REFUSED_SECONDS,
    Lack,
    Offer,
    Offers,
    allows,
    choose,
    lack,
    why_none,
)
from localvolume.controller.plan.copies import NO_SOURCES, Sources, home_of
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.ours import is_dynamic, is_static
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim, StorageClass
from localvolume.volumes import claims, marks
from localvolume.volumes.moments import moment

EVENT_FAILED = "ProvisioningFailed"
"""The reason that every external provisioner gives."""


class Refusal(NamedTuple):
    """A node gave the claim back: when (seconds since the epoch), and why ("": not known)."""

    since: float
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known when one claim is judged; `now` in seconds since the epoch.

    `offers` says what nodes have for a class. `taken` is how many bytes were routed to a node (by
    provisioner and node key) and are not bound yet, not counting this claim. `refused` are the
    nodes, by name, that gave the claim back.
    """

    provisioners: frozenset[str]
    classes: Mapping[str, StorageClass]
    nodes: Nodes
    volumes: Mapping[str, PersistentVolume]
    offers: Callable[[StorageClass], Offers]
    taken: Mapping[tuple[str, str], int] = field(default_factory=dict)
    refused: Mapping[str, Refusal] = field(default_factory=dict)
    now: float = 0.0
    flex_drivers: frozenset[str] = frozenset()
    sources: Sources = NO_SOURCES


@dataclass(frozen=True, slots=True)
class Action:
    """What should happen to one claim, and why (a clause for people)."""

    claim: PersistentVolumeClaim
    reason: str


@dataclass(frozen=True, slots=True)
class Route(Action):
    """Write this node's key as our label. `gone`: a node that must be checked not to exist."""

    key: str
    gone: str = ""


@dataclass(frozen=True, slots=True)
class Unroute(Action):
    """Remove our label. `gone` as for Route."""

    gone: str = ""


@dataclass(frozen=True, slots=True)
class Reschedule(Action):
    """Remove the selected node (and our label), so that the scheduler chooses another one.

    Reported on the claim. Before that, `node` is looked up in the API server.
    """

    node: str


@dataclass(frozen=True, slots=True)
class Nowhere(Action):
    """No node can take it now: say why, and judge again when capacities or nodes change."""

    lack: Lack


@dataclass(frozen=True, slots=True)
class Keep(Action):
    """It is as it should be, or none of our business. `here` is the key of the node to which it is
    routed while it is not bound: it will take capacity there."""

    here: str = ""


def decide(facts: Facts, claim: PersistentVolumeClaim) -> Action:
    """The one action that these facts call for."""
    return next(answer for rule in RULES if (answer := rule(facts, claim)))


def going(_facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    if claim.metadata.deletion_timestamp is None:
        return None
    return Keep(claim, "it is being deleted")


def bound(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    """A bound claim belongs where its volume is, so that the agent there sees it grow."""
    name = claim.spec.volume_name
    if not name:
        return None
    volume = facts.volumes.get(name)
    if volume is None:
        return Keep(claim, f"its volume {name} is not known")
    holder = volume.spec.claim_ref.uid if volume.spec.claim_ref else ""
    if not holder:
        return Keep(claim, f"its volume {name} is not bound to it yet")
    label, key = _label(claim), volume.metadata.labels.get(marks.NODE_LABEL, "")
    if holder == claim.metadata.uid and key:
        if is_dynamic(volume, facts.provisioners | facts.flex_drivers):
            if label == key:
                return Keep(claim, "its volume has the same label")
            return Route(claim, f"its volume {name} has this label", key)
        if not is_static(volume):
            return Keep(claim, "its volume is one of a provisioner that is not served")
    if label:
        return Unroute(claim, f"its volume {name} is none of the dynamic ones")
    return Keep(claim, "its volume is none of the dynamic ones")


def copied(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    """The node that has the content serves it at once, whichever is selected: pods follow it."""
    class_ = facts.classes.get(claims.class_of(claim))
    source = claims.source_of(claim)
    if class_ is None or source is None or class_.provisioner != marks.CSI_DRIVER:
        return None
    if claims.provisioner_of(claim) not in ("", marks.CSI_DRIVER):
        return None
    if not claims.is_copy(claim):
        return Keep(claim, f"a populator of {source.kind} fills its volume, and has it made")
    home = home_of(facts.sources, facts.nodes, claim)
    if isinstance(home, str):
        return Nowhere(claim, home, "node")
    node = facts.nodes.by_key(home.key)
    if node is None:
        return Nowhere(claim, f"{home.what} is on node {home.key}, which does not exist", "node")
    name = node.metadata.name
    if not allows(class_, node):
        why = f"{home.what} is on {name}, which is not in the class's allowedTopologies"
        return Nowhere(claim, why, "node")
    if _label(claim) == home.key:
        return Keep(claim, f"{name} has {home.what}, and it has its label", here=home.key)
    return Route(claim, f"{name} has {home.what}", home.key)


def asked_of_nobody(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    """No provisioner is asked to serve it before its first pod: problems are only reported."""
    class_ = facts.classes.get(claims.class_of(claim))
    if claims.provisioner_of(claim) or class_ is None:
        return None
    waits = class_.volume_binding_mode == "WaitForFirstConsumer"
    return _in_vain(facts, claim) if waits and class_.provisioner in facts.provisioners else None


def not_ours(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    """kube-controller-manager's annotation and the class must name the same served provisioner."""
    provisioner = claims.provisioner_of(claim)
    if not provisioner:
        return Keep(claim, "no provisioner is asked to serve it")
    if provisioner not in facts.provisioners | facts.flex_drivers:
        return Keep(claim, f"it is for {provisioner}")
    name = claims.class_of(claim)
    class_ = facts.classes.get(name)
    if class_ is None:
        return Keep(claim, f"its class {name!r} does not exist")
    if class_.provisioner != provisioner:
        return Keep(claim, f"its class is one of {class_.provisioner}, not of {provisioner}")
    return None


def selected(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    """The selected node decides, in either binding mode."""
    name = claims.selected_node(claim)
    if not name:
        return None
    node = facts.nodes.by_name(name)
    if node is None:
        return Reschedule(claim, f"the selected node {name} does not exist", name)
    class_ = facts.classes[claims.class_of(claim)]
    if not allows(class_, node):
        text = f"the selected node {name} is not in the class's allowedTopologies"
        return Reschedule(claim, text, name)
    if _is_flex(facts, claim):
        return None
    key = marks.node_key(name)
    if _label(claim) == key:
        return Keep(claim, f"{name} is selected, and it has its label", here=key)
    return Route(claim, f"{name} is selected", key)


def flex(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    """The controller makes its PersistentVolume (``provision``); it gets a node then or later."""
    return Keep(claim, "no agent makes its volume") if _is_flex(facts, claim) else None


def waits(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    if facts.classes[claims.class_of(claim)].volume_binding_mode != "WaitForFirstConsumer":
        return None
    if _label(claim):
        return Unroute(claim, "no node is selected for it any more")
    return _in_vain(facts, claim) or Keep(claim, "no node is selected for it yet")


def routed(facts: Facts, claim: PersistentVolumeClaim) -> Action | None:
    """An agent may be making its volume: it stays there, unless that node refused it or is gone."""
    key = _label(claim)
    node = facts.nodes.by_key(key)
    if not key or node is None or _is_refused(facts, node.metadata.name):
        return None
    return Keep(claim, f"it was routed to {node.metadata.name}", here=key)


def immediate(facts: Facts, claim: PersistentVolumeClaim) -> Action:
    label = _label(claim)
    # A key that is not a name cannot be looked up in the API server: only the cache can resolve it.
    gone = label if label and facts.nodes.by_key(label) is None else ""
    found = _best(facts, claim)
    if isinstance(found, Offer):
        return Route(claim, f"{found.node} has the most room", found.key, gone)
    return Unroute(claim, found.reason, gone) if label else found


def _in_vain(facts: Facts, claim: PersistentVolumeClaim) -> Nowhere | None:
    """Why the scheduler will find no node, if pools have a problem that it cannot know."""
    if not any(offer.problem for offer in facts.offers(facts.classes[claims.class_of(claim)])):
        return None
    found = _best(facts, claim)
    return found if isinstance(found, Nowhere) else None


def _best(facts: Facts, claim: PersistentVolumeClaim) -> Offer | Nowhere:
    refused = {name: one.why for name, one in facts.refused.items() if _is_refused(facts, name)}
    class_, wanted = facts.classes[claims.class_of(claim)], claims.requested_bytes(claim) or 0
    offers, provisioner = facts.offers(class_), class_.provisioner
    offer = choose(offers, wanted, provisioner, facts.taken, refused)
    if offer is not None:
        return offer
    why = why_none(offers, wanted, provisioner, facts.taken, refused)
    return Nowhere(claim, why, lack(offers, refused))


RULES: tuple[Callable[[Facts, PersistentVolumeClaim], Action | None], ...] = (
    going,
    bound,
    copied,
    asked_of_nobody,
    not_ours,
    selected,
    flex,
    waits,
    routed,
    immediate,
)


def refusal(claim: PersistentVolumeClaim) -> tuple[str, Refusal] | None:
    """The node that gave the claim back last, when and why; None if none did."""
    notes = claim.metadata.annotations
    text = notes.get(marks.REFUSED_ANNOTATION, "")
    name, _, when = text.rpartition(" ")
    since = moment(when)
    if not name or since is None:
        return None
    told, prefix = notes.get(marks.REFUSED_WHY_ANNOTATION, ""), f"{text} "
    why = told.removeprefix(prefix) if told.startswith(prefix) else ""
    return name, Refusal(since, why[: marks.LONGEST_WHY])


def refusals(
    known: Mapping[str, Refusal], claim: PersistentVolumeClaim, nodes: Nodes, now: float
) -> dict[str, Refusal]:
    """The nodes that gave the claim back lately: the claim itself names only the last one.

    Its owner may write there whatever and as often as they like. So only Nodes that there are
    count, each with its last refusal.
    """
    found, told = dict(known), refusal(claim)
    if told is not None:
        found[told[0]] = told[1]
    return {
        name: one
        for name, one in found.items()
        if _is_lately(one, now) and nodes.by_name(name) is not None
    }


def _is_refused(facts: Facts, name: str) -> bool:
    told = facts.refused.get(name)
    return told is not None and _is_lately(told, facts.now)


def _is_lately(told: Refusal, now: float) -> bool:
    """Even if the node's clock is ahead of ours by some minutes."""
    return abs(now - told.since) < REFUSED_SECONDS


def _is_flex(facts: Facts, claim: PersistentVolumeClaim) -> bool:
    return claims.provisioner_of(claim) in facts.flex_drivers


def _label(claim: PersistentVolumeClaim) -> str:
    return claim.metadata.labels.get(marks.NODE_LABEL, "")
