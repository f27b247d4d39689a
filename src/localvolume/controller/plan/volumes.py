"""What should happen to one PersistentVolume in the cluster, and why: pure.

A table of rules, each of which returns an action or None; the first action counts. Nothing else in
the project decides what is done about lost nodes, and none of this ever touches a disk: what was on
a lost node went with it, or comes back with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from localvolume.config.syntax.durations import format_duration
from localvolume.controller.model import (
    Action,
    Adopt,
    DeleteClaim,
    DeleteVolume,
    Keep,
    LetGo,
    MarkLost,
    MarkReturned,
    Policy,
    Report,
    Wait,
)
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.ours import is_dynamic, is_on_a_disk, provisioner_of
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import affinity, marks, periods
from localvolume.volumes.moments import moment
from localvolume.volumes.objects import (
    ever_claimed,
    is_being_deleted,
    is_finalized,
    is_held_by_claim,
    phase_of,
)
from localvolume.volumes.periods import NO_TIME, NOBODY, Moment, Witnessed


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known when one volume is judged. `witnessed`: what this leader itself has seen of
    the time for which the volume's nodes have been lost."""

    nodes: Nodes
    policy: Policy
    now: Moment = NO_TIME
    witnessed: Witnessed = NOBODY


def decide(facts: Facts, volume: PersistentVolume) -> Action:
    """The one action that these facts call for."""
    return next(answer for rule in RULES if (answer := rule(facts, volume)))


def not_ours(facts: Facts, volume: PersistentVolume) -> Action | None:
    if not is_on_a_disk(volume):
        return Keep(volume, "it is not a local volume")
    if marks.NODE_LABEL in volume.metadata.labels or is_dynamic(volume, facts.policy.makers):
        return None
    if volume.spec.local is None:
        return Keep(volume, "we do not serve whoever made it")
    if (
        marks.is_of_static_provisioner(provisioner_of(volume))
        or volume.spec.storage_class_name in facts.policy.delete_classes
    ):
        return None
    return Keep(volume, "neither an agent nor upstream made it, and its class is not listed")


def served(facts: Facts, volume: PersistentVolume) -> Action | None:
    """A node is there that can serve it; its agent finds out whether it is the old one.

    The node in our own label counts too, even if its hostname label has changed: it has the data.
    """
    dynamic = is_dynamic(volume, facts.policy.makers)
    name = facts.nodes.serving_dynamic(volume) if dynamic else facts.nodes.serving(volume)
    name = name or facts.nodes.keeping(volume)
    if not name:
        return None
    if marks.LOST_ANNOTATION in volume.metadata.annotations:
        return MarkReturned(volume, f"the node {name} is there again")
    return to_adopt(facts, volume) or Keep(volume, f"the node {name} is there")


def to_adopt(facts: Facts, volume: PersistentVolume) -> Action | None:
    """Another provisioner made it: with our label, its node's agent sees it and serves it."""
    if marks.NODE_LABEL in volume.metadata.labels:
        return None
    provisioner = provisioner_of(volume)
    if provisioner in facts.policy.makers:
        owner = facts.nodes.maker(volume)
    elif marks.is_of_static_provisioner(provisioner):
        owner = facts.nodes.owner(volume)
    else:
        return None
    if isinstance(owner, str):
        return Keep(volume, f"not adopted: {owner}")
    return Adopt(volume, f"{provisioner} made it", owner.metadata.name)


def never_said_where(facts: Facts, volume: PersistentVolume) -> Action | None:
    """Without a hostname there is no node to lose: others that match its terms may come.

    A dynamic volume, however, was made on one node, whatever label its affinity names.
    """
    terms = affinity.required_terms(volume)
    if affinity.hostnames(terms):
        return None
    if terms and is_dynamic(volume, facts.policy.makers):
        return None
    return Keep(volume, "its affinity names no node")


def newly_lost(facts: Facts, volume: PersistentVolume) -> Action | None:
    if lost_since(volume) is not None:
        return None
    then = _then(facts, volume)
    return MarkLost(volume, f"no node is there that can serve it ({named(volume)})", follows(then))


def lost(facts: Facts, volume: PersistentVolume) -> Action | None:
    return _then(facts, volume)


RULES: tuple[Callable[[Facts, PersistentVolume], Action | None], ...] = (
    not_ours,
    served,
    never_said_where,
    newly_lost,
    lost,
)


def follows(action: Action) -> str:
    """What people are told will happen to a lost volume, or would, if it is not done."""
    if isinstance(action, Report) and action.would:
        return f"{action.reason}; otherwise {action.would}"
    return action.reason


def lost_since(volume: PersistentVolume) -> float | None:
    """When its node was first found missing, in seconds since the epoch; None if not known."""
    return moment(volume.metadata.annotations.get(marks.LOST_ANNOTATION, ""))


def named(volume: PersistentVolume) -> str:
    """What its affinity names, for people: hostnames, else the values of other labels."""
    terms = affinity.required_terms(volume)
    if hostnames := affinity.hostnames(terms):
        return ", ".join(sorted(hostnames))
    asked = {
        f"{one.key} {one.operator} {', '.join(one.values)}".rstrip()
        for term in terms
        for one in term.match_expressions
    }
    return "; ".join(sorted(asked))


def _then(facts: Facts, volume: PersistentVolume) -> Action:
    """What follows for a volume whose nodes are all gone, or a Wait until it is due."""
    after, action = _due(facts, volume)
    if isinstance(action, Report | Keep):
        return action
    if any(not affinity.hostnames_of(term) for term in affinity.required_terms(volume)):
        return Report(volume, "nodes that its selector matches may still come")
    if volume.spec.storage_class_name not in facts.policy.delete_classes:
        return Report(volume, "its class is not listed for deleting", would=action.reason)
    since = lost_since(volume)
    if since is None:  # without a mark no time has passed
        return Wait(volume, _later(action, after), after) if after else action
    left = periods.left(since, since + after, facts.now, facts.witnessed)
    if left <= 0:
        return action
    text = _later(action, after)
    doubt = periods.doubt(since + after, facts.now)
    return Wait(volume, f"{text}; {doubt}" if doubt else text, left)


def _later(action: Action, seconds: float) -> str:
    return f"{action.reason} after {format_duration(round(seconds))}"


def _due(facts: Facts, volume: PersistentVolume) -> tuple[float, Action]:
    """The action, and how many seconds after the loss it is due."""
    phase, policy = phase_of(volume), volume.spec.persistent_volume_reclaim_policy
    going = is_being_deleted(volume)
    if is_held_by_claim(volume):
        return facts.policy.claim_delay, DeleteClaim(volume, "its claim is deleted")
    if going and not is_finalized(volume):
        return 0.0, Keep(volume, "it is being deleted")
    if not going and phase not in ("Available", "Released"):
        return 0.0, Report(volume, f"its phase is {phase}: somebody must look")
    if not going and ever_claimed(volume) and policy != "Delete":
        return 0.0, Report(volume, f"a claim used it, and its reclaim policy is {policy}")
    # Nothing is to be cleaned if no claim ever held it, or if it was kept and deleted by hand.
    abandons = ever_claimed(volume) and policy == "Delete"
    after = facts.policy.return_period if abandons else 0.0
    text = "it is removed, never cleaned" if abandons else "it is removed"
    if going:
        return after, LetGo(volume, text, abandons)
    return after, DeleteVolume(volume, text, abandons)
