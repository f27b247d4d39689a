"""Why a PersistentVolume is as it is: pure. A table of rules: the first answer is the verdict."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from localvolume.cli.seeing import csi
from localvolume.cli.seeing.facts import Facts, identity_of
from localvolume.cli.seeing.status.states import agent_of, jobs_of, state_of
from localvolume.cli.seeing.unread import in_short, unread_facts
from localvolume.cli.seeing.why.explanation import Explanation, Verdict
from localvolume.cli.seeing.why.hands import (
    agent_note,
    controller_or_you,
    held,
    nobody_there,
    unmountable,
)
from localvolume.cli.seeing.words import age, pairs
from localvolume.config.syntax.durations import BadDuration, format_duration, parse_duration
from localvolume.controller.model import Adopt, Policy
from localvolume.controller.plan import volumes as controller
from localvolume.dynamic.classes.parameters import read_class
from localvolume.dynamic.model import ClassFacts, Wish
from localvolume.dynamic.plan.undoing import undo_of
from localvolume.kube.objects import Meta, PersistentVolume, StorageClass
from localvolume.volumes import affinity, marks
from localvolume.volumes.modifying import class_of_volume
from localvolume.volumes.moments import written
from localvolume.volumes.objects import (
    claim_of,
    ever_claimed,
    is_being_deleted,
    is_csi,
    is_dynamic,
    is_finalized,
    is_flexvolume,
    is_held_by_claim,
    path_of,
    phase_of,
)

Volume = PersistentVolume


def why_volume(facts: Facts, volume: Volume) -> Explanation:
    """The verdict, and what it rests on."""
    verdict = next(answer for rule in RULES if (answer := rule(facts, volume)))
    return Explanation(
        about=f"pv/{volume.metadata.name}",
        verdict=verdict,
        chain=chain(facts, volume),
        events=facts.events_about("PersistentVolume", volume),
    )


def not_ours(facts: Facts, volume: Volume) -> Verdict | None:
    if facts.is_ours(volume):
        return None
    text = "localvolume does not serve it: neither an agent nor a provisioner it replaces made it"
    return Verdict(code="not-ours", text=text, then="nothing is ever done to it by localvolume")


def lost(facts: Facts, volume: Volume) -> Verdict | None:
    if not facts.is_lost(volume):
        return None
    since = volume.metadata.annotations.get(marks.LOST_ANNOTATION)
    when = f" for {age(facts.now, since)}" if since else ""
    text = f"no node is there{when} that could serve it ({controller.named(volume)})"
    said = next(
        (e for e in facts.events_about("PersistentVolume", volume) if "Referenced" in e.reason),
        None,
    )
    then = said.message if said else "it stays, unless its class is one of --storageclass-names"
    who = "you: bring the node back with its disks, or delete the claim and restore from a backup"
    return Verdict(code="lost", text=text, then=then, who=who)


def not_adopted(facts: Facts, volume: Volume) -> Verdict | None:
    if marks.NODE_LABEL in volume.metadata.labels or is_flexvolume(volume):
        return None
    if facts.nodes is None:
        why = facts.unknown.get("nodes", "")
        text = (
            f"no agent serves it yet, and nobody can tell whether one will: nodes: {in_short(why)}"
        )
        who = "you: ask with the right to list nodes"
        return Verdict(code="unknown", text=text, then="unknown", who=who)
    policy = Policy(provisioners=facts.provisioners, flex_drivers=marks.FLEX_DRIVERS)
    known = controller.Facts(facts.known_nodes, policy)
    action = controller.decide(known, volume)
    if isinstance(action, Adopt):
        text = f"it is not adopted yet, and will be: {action.reason}"
        then = f"the controller labels it for {action.node_name}, whose agent then serves it"
        return Verdict(code="to-adopt", text=text, then=then, who=controller_or_you(facts))
    text = f"no agent serves it: {action.reason}"
    who = "you: see the page of the tool that made it"
    return Verdict(code="not-adopted", text=text, then="nothing is done to it", who=who)


def not_cleaned(facts: Facts, volume: Volume) -> Verdict | None:
    """It should be cleaned and is not. This says more than that its disk is unhealthy."""
    ends = is_being_deleted(volume) or phase_of(volume) == "Released"
    if not ends or is_held_by_claim(volume) or not ever_claimed(volume):
        return None
    if volume.spec.persistent_volume_reclaim_policy != "Delete":
        return None
    if is_being_deleted(volume) and not is_finalized(volume):
        return None
    return held(facts, volume)


def unhealthy(_facts: Facts, volume: Volume) -> Verdict | None:
    health = volume.metadata.annotations.get(marks.HEALTH_ANNOTATION)
    if health is None:
        return None
    text = f"it is not healthy: {health}"
    then = "nothing is healed by deleting: it stays as it is until the cause is gone"
    who = "you: look at the disk and the kernel's log of the node; save the data first"
    return Verdict(code="unhealthy", text=text, then=then, who=who)


def going(facts: Facts, volume: Volume) -> Verdict | None:
    """The verdict on a volume that is being deleted."""
    if not is_being_deleted(volume):
        return None
    policy = volume.spec.persistent_volume_reclaim_policy
    if is_held_by_claim(volume):
        text = f"it is being deleted, and its claim {claim_name(volume)} still has it"
        then = "it goes when the claim is gone; until then pods go on using it"
        return Verdict(code="deleting-claimed", text=text, then=then, who="whoever has the claim")
    if not is_finalized(volume):
        others = ", ".join(volume.metadata.finalizers) or "none"
        text = f"it is being deleted, and other finalizers keep the object: {others}"
        return Verdict(
            code="deleting-others", text=text, then="it goes with them", who="whoever set them"
        )
    said = held(facts, volume)
    if said and said.code == "waits":
        return said
    if absent := nobody_there(facts, volume, "it is not seen to, and its object stays"):
        return absent
    if policy != "Delete":
        text = f"it is being deleted, and its reclaim policy is {policy}: the data stays"
        then = "the agent lets the object go and leaves the data"
        return Verdict(code="letting-go", text=text, then=then)
    if not ever_claimed(volume):
        text = "it is being deleted, and no claim ever held it"
        return Verdict(code="letting-go", text=text, then="the agent lets the object go")
    work = "removes its volume" if is_made(volume) else "cleans its volume and proves it clean"
    text = f"its claim is gone and its reclaim policy is Delete: the agent {work}"
    jobs = [job for job in jobs_of(facts, volume) if job.state == "unfinished"]
    then = f"the Job {jobs[0].name} is at work; then the object goes" if jobs else "the object goes"
    then += "" if is_made(volume) else ", and the volume is offered anew"
    return Verdict(code="cleaning", text=text, then=then)


def released(facts: Facts, volume: Volume) -> Verdict | None:
    """The verdict on a volume whose claim is gone."""
    if phase_of(volume) != "Released":
        return None
    policy = volume.spec.persistent_volume_reclaim_policy
    if policy == "Retain":
        who = "you: look at the data, then delete the PersistentVolume, or set the policy to Delete"
        text = f"its claim {claim_name(volume)} is gone, and its reclaim policy is Retain"
        return Verdict(code="retain", text=text, then="nothing, ever: the data stays", who=who)
    if policy != "Delete":
        text = f"its claim is gone, and its reclaim policy is {policy}, which is not supported"
        who = "you: set persistentVolumeReclaimPolicy to Retain or Delete"
        return Verdict(code="policy", text=text, then="nothing: the data stays", who=who)
    if not claim_of(volume):
        return _undone(volume)
    if absent := nobody_there(facts, volume, "it is neither cleaned nor offered anew"):
        return absent
    if is_dynamic(volume) and (kept := _kept(facts, volume)):
        return kept
    text = "its claim is gone and its reclaim policy is Delete"
    who = "nobody: the agent is about to see to it"
    return Verdict(code="to-clean", text=text, then="it is deleted, and cleaned first", who=who)


def failed(_facts: Facts, volume: Volume) -> Verdict | None:
    if phase_of(volume) != "Failed":
        return None
    text = (
        f"its phase is Failed: {volume.status.message or volume.status.reason or 'nobody said why'}"
    )
    who = "you: look at its Events; the data is there"
    return Verdict(code="failed", text=text, then="nothing is done to it", who=who)


def left_alone(facts: Facts, volume: Volume) -> Verdict | None:
    return held(facts, volume)


def bound(facts: Facts, volume: Volume) -> Verdict | None:
    if phase_of(volume) != "Bound":
        return None
    if is_csi(volume) and (found := unmountable(facts, facts.node_of(volume))):
        text = f"the claim {claim_name(volume)} has it, and no pod can begin to use it"
        return replace(found, text=f"{text}: {found.text}")
    text = f"the claim {claim_name(volume)} has it, and nothing is wrong that is known"
    policy = volume.spec.persistent_volume_reclaim_policy
    ends = {"Delete": "what it holds is removed", "Retain": "it stays with its data"}
    then = f"when the claim is deleted, {ends.get(policy or '', 'it stays')}"
    return Verdict(code="bound", text=text, then=then + agent_note(facts, volume))


def offered(facts: Facts, volume: Volume) -> Verdict | None:
    phase = phase_of(volume)
    if phase != "Available":
        return None
    if volume.spec.claim_ref is not None and is_made(volume):
        return _undone(volume)
    if volume.spec.claim_ref is not None:
        text = f"it is kept for the claim {claim_name(volume)}, which is not bound to it"
        who = "you: create that claim, or take claimRef out"
        return Verdict(code="reserved", text=text, then="no other claim gets it", who=who)
    then = f"a claim of class {volume.spec.storage_class_name or 'none'} that fits gets it"
    text = "it is offered, and no claim has it"
    return Verdict(code="available", text=text, then=then + agent_note(facts, volume))


def not_seen_yet(_facts: Facts, volume: Volume) -> Verdict:
    text = f"its phase is {phase_of(volume)}: kube-controller-manager has not seen it yet"
    return Verdict(
        code="pending", text=text, then="it becomes Available or Bound", who="Kubernetes"
    )


RULES: tuple[Callable[[Facts, Volume], Verdict | None], ...] = (
    not_ours,
    lost,
    not_adopted,
    not_cleaned,
    unhealthy,
    going,
    released,
    failed,
    left_alone,
    bound,
    offered,
    not_seen_yet,
)


def _undone(volume: Volume) -> Verdict:
    text = f"its claim was deleted and that was undone: it waits for claim {claim_name(volume)}"
    who = "you: create that claim again"
    return Verdict(code="undone", text=text, then="the claim gets it with its data", who=who)


def _kept(facts: Facts, volume: Volume) -> Verdict | None:
    """The verdict while its removal can be undone, or if its agent cannot tell for how long."""
    class_facts = _class_facts(facts, volume)
    if class_of_volume(volume) and marks.KEPT_ANNOTATION in volume.metadata.annotations:
        # Its VolumeAttributesClass may have said another time than its class: the volume's record
        # has that, and what was promised by it counts.
        class_facts = None
    undo = undo_of(volume, class_facts, None)
    if undo.problem and (undo.until or 0.0) <= facts.now:
        text = f"its claim is gone, and it is not removed: {undo.problem}"
        who = "you: do one of these, or: localvolume undo " + volume.metadata.name
        return Verdict(code="not-cleaned", text=text, then="the data stays", who=who)
    since = volume.metadata.annotations.get(marks.RELEASED_ANNOTATION, "").partition(" ")[0]
    if undo.until is not None:
        end = written(undo.until) if undo.until > facts.now else ""
    elif undo.period is None:
        end = f"its pool's undoPeriod from {since} on" if undo.marked else ""
    else:
        end = format_duration(undo.period) if undo.period else ""
    if not end:
        return None
    gone = f"has been gone for {age(facts.now, since)}" if undo.marked else "is gone"
    text = f"its claim {gone}, and that can still be undone"
    then = f"it is removed after {end}, unless: localvolume undo {volume.metadata.name}"
    return Verdict(code="undo", text=text, then=then, who="you, if you want it back")


def _class_facts(facts: Facts, volume: Volume) -> ClassFacts | None:
    """Its class, as far as it is known here. A class that cannot be read says nothing."""
    name = volume.spec.storage_class_name
    if facts.classes is None:
        return ClassFacts(object=StorageClass(metadata=Meta(name=name)))
    found = facts.classes.get(name)
    if found is None or found.provisioner not in facts.provisioners:
        return None
    if found.provisioner in marks.OURS:
        wish = read_class(found, flavor="native")
        if isinstance(wish, list):
            return ClassFacts(object=found, problem="; ".join(wish))
        return ClassFacts(object=found, wish=wish)
    # Only the agents' configuration says how they read classes of other provisioners.
    try:
        said = parse_duration(found.parameters["undoPeriod"])
    except (KeyError, BadDuration):
        return ClassFacts(object=found)
    return ClassFacts(object=found, wish=Wish(undo_seconds=said))


# What is known of the volume, each fact after those it depends on.


def chain(facts: Facts, volume: Volume) -> list[tuple[str, str]]:
    """Pairs of a name and what is known of it."""
    meta, spec = volume.metadata, volume.spec
    node = facts.node_of(volume)
    agent = agent_of(facts, node)
    kind = "made for a claim" if is_made(volume) else "prepared by an administrator"
    class_ = (facts.classes or {}).get(spec.storage_class_name)
    exists = "" if class_ or facts.classes is None else " (there is no such StorageClass)"
    found = [
        ("State", state_of(facts, volume).word),
        ("Phase", phase_of(volume) + (", being deleted" if is_being_deleted(volume) else "")),
        (
            "Kind",
            f"{kind}, {spec.volume_mode or 'Filesystem'}, {spec.capacity.get('storage', '?')}",
        ),
        ("Class", f"{spec.storage_class_name or 'none'}{exists}"),
        *_attributes(facts, volume),
        *_source(facts, volume, node),
        ("Node", _node(facts, node)),
        ("Affinity", controller.named(volume) if affinity.required_terms(volume) else "none"),
        ("Agent", f"{agent.state}{': ' if agent.why else ''}{agent.why}"),
        ("Claim", claim_name(volume)),
        ("Ever claimed", "yes" if ever_claimed(volume) else "no"),
        ("Reclaim policy", spec.persistent_volume_reclaim_policy or "?"),
        ("Finalizers", ", ".join(meta.finalizers) or "none"),
    ]
    if (identity := identity_of(volume)) is not None:
        found.append(("Identity", pairs(identity)))
    elif unreadable := meta.annotations.get(marks.IDENTITY_ANNOTATION):
        found.append(("Identity", f"it cannot be read: {unreadable}"))
    known = {
        "Cleaned": marks.CLEANED_ANNOTATION,
        "Pool": marks.POOL_ANNOTATION,
        "Health": marks.HEALTH_ANNOTATION,
        "Released since": marks.RELEASED_ANNOTATION,
        "Kept until": marks.KEPT_ANNOTATION,
        "Lost since": marks.LOST_ANNOTATION,
        "Made by": marks.PROVISIONED_BY_ANNOTATION,
    }
    found += [
        (name, meta.annotations[key]) for name, key in known.items() if key in meta.annotations
    ]
    found += [("Job", f"{j.name}: {j.state} {j.reason}".rstrip()) for j in jobs_of(facts, volume)]
    return found + unread_facts(facts.unknown)


def _attributes(facts: Facts, volume: Volume) -> list[tuple[str, str]]:
    """What its VolumeAttributesClass says, if it has one."""
    name, said = csi.attributes_class_of(volume), csi.attributes_of(facts, volume)
    if not name:
        return []
    if said is None:
        why = "cannot be read" if facts.attributes is None else "is gone; its record has them"
        return [("Attributes by", f"{name}, which {why}")]
    told = ", ".join(f"{key}={value}" for key, value in sorted(said.items()))
    return [("Attributes by", f"{name}: {told or 'none'}")]


def _source(facts: Facts, volume: Volume, node: str) -> list[tuple[str, str]]:
    """Where pods get it from."""
    if volume.spec.csi is None or not is_csi(volume):
        return [("Path", path_of(volume) or "it is not of the kind local")]
    found = [
        ("CSI", f"{volume.spec.csi.driver}, handle {volume.spec.csi.volume_handle}"),
        ("Path", "its pool's record has it, on the node"),
    ]
    if facts.registered is not None and node:
        found.append(("Registered", "yes" if node in facts.registered else "no"))
    return found


def _node(facts: Facts, name: str) -> str:
    if facts.nodes is None or not name:
        return name or "it says none"
    node = facts.nodes.get(name)
    if node is None:
        return f"{name} (there is no such Node)"
    taints = ", ".join(taint.key for taint in node.spec.taints)
    return f"{name} (taints: {taints})" if taints else name


def is_made(volume: Volume) -> bool:
    """Whether it was made for a claim, not prepared by an administrator."""
    return is_dynamic(volume) or is_flexvolume(volume)


def claim_name(volume: Volume) -> str:
    """The claim that the volume names, for people."""
    ref = volume.spec.claim_ref
    return f"{ref.namespace}/{ref.name}" if ref else "nobody"
