"""Why a claim whose volume is made for it has none yet: pure. Uses the controller's rules."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

from localvolume.cli.seeing.csi import SWITCH_ON
from localvolume.cli.seeing.facts import NO_PROVISIONER, Facts, is_from_us
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.cli.seeing.status.states import agent_of
from localvolume.cli.seeing.unread import in_short
from localvolume.cli.seeing.why.claimchain import class_object, consumers, is_for_first_pod
from localvolume.cli.seeing.why.explanation import Verdict
from localvolume.cli.seeing.why.hands import controller_or_you, unmountable
from localvolume.cli.seeing.words import age
from localvolume.controller.plan.capacity import allows, offers_for, why_none
from localvolume.controller.plan.claims import Facts as RoutingFacts
from localvolume.controller.plan.claims import (
    Keep,
    Nowhere,
    Reschedule,
    Route,
    Unroute,
    decide,
    refusal,
)
from localvolume.dynamic.classes.parameters import read_class
from localvolume.flexvolume.plan.provision import ClaimFacts, Refuse, judge_claim
from localvolume.kube.objects import PersistentVolumeClaim, StorageClass
from localvolume.volumes import claims, marks
from localvolume.volumes.claims import fault_of

Claim = PersistentVolumeClaim


def flex(facts: Facts, claim: Claim) -> Verdict | None:
    class_ = class_object(facts, claim)
    if class_ is None or class_.provisioner not in marks.FLEX_DRIVERS:
        return None
    node = facts.known_nodes.by_name(claims.selected_node(claim))
    known = ClaimFacts(
        served=marks.FLEX_DRIVERS,
        storage_class=class_,
        there=(facts.volumes or {}).get(claims.volume_name(claim.metadata.uid)),
        node=node if node is not None and allows(class_, node) else None,
    )
    action = judge_claim(known, claim)
    if isinstance(action, Refuse):
        return _refused(action.reason)
    if not claims.selected_node(claim) and is_for_first_pod(class_):
        return waits_for_pod(facts, claim)
    text = f"a FlexVolume PersistentVolume is made for it by the controller: {action.reason}"
    then = "its volume is made on the node when it is mounted first"
    return Verdict(code="flexvolume", text=text, then=then, who=controller_or_you(facts))


def made(facts: Facts, claim: Claim) -> Verdict | None:
    """For a class of pools: what the controller and the agent say about the claim."""
    class_ = class_object(facts, claim)
    if class_ is None or class_.provisioner == NO_PROVISIONER:
        return None
    csi = class_.provisioner == marks.CSI_DRIVER
    if reason := fault_of(claim, copies=csi and claims.is_copy(claim)):
        return _refused(reason)
    if class_.provisioner in marks.OURS:
        wish = read_class(class_, flavor="native")
        if isinstance(wish, list):
            return _refused(f"class {class_.metadata.name}: {'; '.join(wish)}")
    name = claims.volume_name(claim.metadata.uid)
    if name in (facts.volumes or {}):
        text = f"its volume {name} is made, and is being bound"
        return Verdict(code="binding", text=text, then="it becomes Bound", who="Kubernetes")
    if csi and claims.is_copy(claim):
        return _copied(facts, claim)
    found = _routed(facts, claim, class_)
    if class_.provisioner != marks.CSI_DRIVER or found.code not in _UNEXPLAINED:
        return found
    return _without_csi(facts, claim) or found


def _copied(facts: Facts, claim: Claim) -> Verdict:
    """The verdict on a claim for content, which the node that has it serves at once."""
    key = claim.metadata.labels.get(marks.NODE_LABEL, "")
    node = facts.known_nodes.by_key(key) if key else None
    if key:
        name = node.metadata.name if node is not None else key
        return unmountable(facts, name) or _at_node(facts, claim, name)
    said = _newest_warning(facts, claim)
    what = said.message if said is not None else "it asks for what a claim or a VolumeSnapshot has"
    text = f"no agent was told of it yet: {what}"
    then = "the controller labels it for the node that has the content, whose agent makes a copy"
    return Verdict(code="to-route", text=text, then=then, who=controller_or_you(facts))


_UNEXPLAINED = frozenset({"no-pool", "making", "waits", "unschedulable"})
"""Verdicts behind which agents may be that do not serve CSI at all."""


def _without_csi(facts: Facts, claim: Claim) -> Verdict | None:
    """The verdict if the claim's node, or every node, lacks the driver of its class."""
    node = facts.node_of_claim(claim)
    if node:
        return unmountable(facts, node)
    if facts.registered is None or facts.registered:
        return None
    text = f"no CSINode names {marks.CSI_DRIVER}: no agent is registered with its kubelet"
    then = "it gets its volume once agents serve its class"
    return Verdict(code="not-registered", text=text, then=then, who=f"you: {SWITCH_ON}")


def _routed(facts: Facts, claim: Claim, class_: StorageClass) -> Verdict:
    told = refusal(claim)
    known = RoutingFacts(
        provisioners=facts.provisioners - marks.FLEX_DRIVERS,
        classes=facts.classes or {},
        nodes=facts.known_nodes,
        volumes=facts.volumes or {},
        offers=lambda one: offers_for(one, facts.capacities or (), facts.known_nodes),
        refused={told[0]: told[1]} if told else {},
        now=facts.now,
    )
    action = decide(known, claim)
    if isinstance(action, Keep) and action.here:
        return _at_node(facts, claim, facts.node_of_claim(claim))
    if isinstance(action, Reschedule):
        then = "the controller takes the node out of the claim, and the scheduler chooses another"
        return Verdict(
            code="node-unfit", text=action.reason, then=then, who=controller_or_you(facts)
        )
    if isinstance(action, Route | Unroute):
        said = _newest_warning(facts, claim) if told else None
        if said is not None:
            # The claim names only one node, which may have been the last of several.
            then = "nodes that did not give it back are asked, and those that did after 5 minutes"
            who = "you: put right what it says"
            return Verdict(code="given-back", text=said.message, then=then, who=who)
        text = f"no agent was told of it yet: {action.reason}"
        then = "the controller labels it for a node, whose agent makes its volume"
        return Verdict(code="to-route", text=text, then=then, who=controller_or_you(facts))
    if isinstance(action, Nowhere):
        if facts.capacities is None:
            missing = in_short(facts.unknown["csistoragecapacities"])
            why = f"what room there is could not be read: csistoragecapacities: {missing}"
            return Verdict(
                code="unknown", text=why, then="unknown", who="you: ask with more rights"
            )
        found = _nowhere(action, class_)
        if is_for_first_pod(class_):
            return replace(found, then=f"{found.then}, and a pod uses it")
        return found
    if is_for_first_pod(class_):
        return waits_for_pod(facts, claim)
    text = f"the controller leaves it alone: {action.reason}"
    return Verdict(code="left", text=text, then="it waits", who="Kubernetes")


def _nowhere(action: Nowhere, class_: StorageClass) -> Verdict:
    text = action.reason
    match action.lack:
        case "room":
            then = "it gets its volume as soon as a node has room"
            who = "you: make room, add a pool, or ask for less"
            return Verdict(code="no-room", text=text, then=then, who=who)
        case "pool":
            then = "it gets its volume as soon as a node has a pool for its class"
            who = (
                f"you: give a node a pool that serves {class_.metadata.name}, and see to its agent"
            )
            return Verdict(code="no-pool", text=text, then=then, who=who)
        case "node":
            then = "it gets its volume as soon as one of them can make it"
            who = "you: put right what it says of the nodes"
            return Verdict(code="no-node", text=text, then=then, who=who)


def _at_node(facts: Facts, claim: Claim, node: str) -> Verdict:
    """The verdict on a claim that one node's agent has to serve."""
    agent = agent_of(facts, node)
    if agent.state in ("missing", "not ready"):
        text = f"{node} is to make its volume, and the agent there is {agent.state}: {agent.why}"
        who = f"you: get the agent of {node} going"
        return Verdict(code="no-agent", text=text, then="it is made once the agent runs", who=who)
    said = _newest_warning(facts, claim)
    text = f"the agent of {node} is making its volume"
    if said is None:
        return Verdict(code="making", text=text, then="it becomes Bound")
    if _is_begun_anew(facts, claim, said):
        # It may have failed again since: not every Event of an object with many is written.
        text = f"{text}; {age(facts.now, said.seen)} ago, it failed: {said.message}"
        return Verdict(code="making", text=text, then="it becomes Bound, unless that happens again")
    then = "the agent tries again as soon as something changes"
    who = f"you: put that right (class, pools of {node}, or the claim)"
    return Verdict(code="failing", text=f"{node}: {said.message}", then=then, who=who)


def waits_for_pod(facts: Facts, claim: Claim) -> Verdict:
    """WaitForFirstConsumer: nothing happens before a pod is scheduled."""
    pods = consumers(facts, claim)
    if facts.consumers is not None and not pods:
        text = "its class waits for the first pod that uses it, and there is none"
        who = "you: create a pod that uses it"
        return Verdict(code="no-pod", text=text, then="nothing, until there is a pod", who=who)
    told = [
        event
        for pod in pods
        for event in facts.events_about("Pod", pod)
        if event.reason == "FailedScheduling"
    ]
    if told:
        names = ", ".join(pod.metadata.name for pod in pods)
        text = f"no node was found for its pod ({names}): {told[0].message}"
        text += _why_no_capacity(facts, claim)
        who = "you: see what the nodes lack"
        return Verdict(code="unschedulable", text=text, then="the scheduler tries again", who=who)
    text = "its class waits for the first pod that uses it to be scheduled"
    return Verdict(code="waits", text=text, then="the scheduler chooses a node", who="Kubernetes")


def _why_no_capacity(facts: Facts, claim: Claim) -> str:
    class_ = class_object(facts, claim)
    if class_ is None or facts.capacities is None or class_.provisioner == NO_PROVISIONER:
        return ""
    offers = offers_for(class_, facts.capacities, facts.known_nodes)
    wanted = claims.requested_bytes(claim) or 0
    if any(not offer.why_not and offer.largest >= wanted for offer in offers):
        return ""
    return f" ({why_none(offers, wanted, class_.provisioner, {}, {})})"


def _refused(reason: str) -> Verdict:
    who = "you: delete the claim and create it as it can be served, or correct the class"
    return Verdict(code="refused", text=f"it cannot be served: {reason}", then="nothing", who=who)


def _is_begun_anew(facts: Facts, claim: Claim, failed: SeenEvent) -> bool:
    """Whether we said after the failure that the volume is being made."""
    events = facts.events_about("PersistentVolumeClaim", claim)
    newer = takewhile(lambda one: one is not failed, events)
    return any(one.reason == "Provisioning" and is_from_us(one) for one in newer)


def _newest_warning(facts: Facts, claim: Claim) -> SeenEvent | None:
    events = facts.events_about("PersistentVolumeClaim", claim)
    if events and events[0].type == "Normal" and events[0].reason == "ProvisioningSucceeded":
        return None
    return next((one for one in events if one.type == "Warning"), None)
