"""Why a claim is as it is: pure. The rules of the controller and the agents decide here too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from localvolume.cli.seeing.facts import NO_PROVISIONER, Facts, recency
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.cli.seeing.status import growth
from localvolume.cli.seeing.status.states import state_of
from localvolume.cli.seeing.unread import in_short
from localvolume.cli.seeing.why.claimchain import chain, class_object, consumers, is_for_first_pod
from localvolume.cli.seeing.why.explanation import Explanation, Verdict
from localvolume.cli.seeing.why.hands import unmountable
from localvolume.cli.seeing.why.made import flex, made, waits_for_pod
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.config.provisioner import CSI_DRIVER
from localvolume.config.syntax.readers import did_you_mean
from localvolume.kube.objects import (
    LabelSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
)
from localvolume.volumes import affinity, claims, modifying
from localvolume.volumes.capacity import bytes_of, quantity
from localvolume.volumes.objects import is_being_deleted, is_csi, phase_of

Claim = PersistentVolumeClaim


def why_claim(facts: Facts, claim: Claim) -> Explanation:
    """The verdict, and what it rests on."""
    meta = claim.metadata
    verdict = next(answer for rule in RULES if (answer := rule(facts, claim)))
    events: list[SeenEvent] = list(facts.events_about("PersistentVolumeClaim", claim))
    for pod in consumers(facts, claim):
        events += facts.events_about("Pod", pod)
    return Explanation(
        about=f"pvc/{meta.name} -n {meta.namespace}",
        verdict=verdict,
        chain=chain(facts, claim),
        events=sorted(events, key=recency, reverse=True),
    )


def going(facts: Facts, claim: Claim) -> Verdict | None:
    if claim.metadata.deletion_timestamp is None:
        return None
    pods = ", ".join(pod.metadata.name for pod in consumers(facts, claim)) or "none that is known"
    others = ", ".join(claim.metadata.finalizers) or "none"
    text = f"it is being deleted; finalizers keep it: {others}; pods that use it: {pods}"
    return Verdict(
        code="deleting", text=text, then="it goes with the last pod that uses it", who="their owner"
    )


def without_its_volume(_facts: Facts, claim: Claim) -> Verdict | None:
    if claim.status.phase != "Lost":
        return None
    text = f"its PersistentVolume {claim.spec.volume_name} is gone: phase Lost"
    who = (
        "you: if localvolume move-to-csi was ended while it moved that volume, run it again; else"
        " delete the claim: its data is not coming back by itself"
    )
    return Verdict(code="lost", text=text, then="it stays Lost", who=who)


def bound(facts: Facts, claim: Claim) -> Verdict | None:
    if claim.status.phase != "Bound":
        return None
    name = claim.spec.volume_name
    volume = (facts.alone if facts.volumes is None else facts.volumes).get(name)
    if volume is None:
        text = f"it is bound to {name}, which could not be read or is gone"
        who = "you: look at it, or ask with the right to get persistentvolumes"
        return Verdict(code="bound-unknown", text=text, then="unknown", who=who)
    if changing := _growing(facts, claim, volume) or _modified(claim, volume):
        return changing
    state = state_of(facts, volume)
    if state.word not in ("bound", "available", "pending"):
        of = why_volume(facts, volume).verdict
        text = f"it is bound to {name}, and of that: {of.text}"
        return Verdict(code=f"bound-{state.word}", text=text, then=of.then, who=of.who)
    if is_csi(volume) and (found := unmountable(facts, facts.node_of(volume))):
        text = f"it is bound to {name}, and no pod can begin to use it: {found.text}"
        return replace(found, text=text)
    text = f"it is bound to {name}, and nothing is wrong that is known"
    return Verdict(code="bound", text=text, then=f"pods that use it run on {facts.node_of(volume)}")


def classless(facts: Facts, claim: Claim) -> Verdict | None:
    name = claims.class_of(claim)
    if not name and not claim.spec.volume_name:
        text = "it names no StorageClass: only a PersistentVolume without class fits"
        who = "you: create it anew with storageClassName"
        return Verdict(code="no-class", text=text, then="it waits", who=who)
    if name and facts.classes is not None and name not in facts.classes:
        text = f"there is no StorageClass {name!r}{did_you_mean(name, facts.classes)}"
        who = "you: create the class, or the claim anew with another one"
        return Verdict(code="class-missing", text=text, then="it waits for the class", who=who)
    return None


def not_ours(facts: Facts, claim: Claim) -> Verdict | None:
    class_ = class_object(facts, claim)
    if class_ is None or class_.provisioner in {NO_PROVISIONER, *facts.provisioners}:
        return None
    text = (
        f"its class {class_.metadata.name} is of the provisioner {class_.provisioner}, "
        "which localvolume does not serve"
    )
    who = f"whoever runs {class_.provisioner}; for one it replaces: --dynamic-provisioners"
    return Verdict(code="class-not-ours", text=text, then="nothing by localvolume", who=who)


def unreadable(facts: Facts, claim: Claim) -> Verdict | None:
    missing = [name for name in ("storageclasses", "persistentvolumes") if name in facts.unknown]
    if not missing or (class_object(facts, claim) and "persistentvolumes" not in missing):
        return None
    text = "; ".join(f"{name}: {in_short(facts.unknown[name])}" for name in missing)
    who = "you: ask with the right to list them"
    return Verdict(code="unknown", text=f"nobody can tell: {text}", then="unknown", who=who)


def of_prepared(facts: Facts, claim: Claim) -> Verdict:
    found = prepared(facts, claim)
    if found is not None:
        return found
    class_ = class_object(facts, claim)
    if class_ is not None and is_for_first_pod(class_) and not claim.spec.volume_name:
        return waits_for_pod(facts, claim)
    text = "volumes are there that fit, and it is about to be bound"
    return Verdict(code="binding", text=text, then="it becomes Bound", who="Kubernetes")


RULES: tuple[Callable[[Facts, Claim], Verdict | None], ...] = (
    going,
    without_its_volume,
    bound,
    classless,
    not_ours,
    unreadable,
    flex,
    made,
    of_prepared,
)


def _growing(facts: Facts, claim: Claim, volume: PersistentVolume) -> Verdict | None:
    if not growth.is_to_grow(claim, volume):
        return None
    if said := growth.failure(facts, claim):
        who = "you: see what it says; the agent tries again"
        return Verdict(code="cannot-grow", text=said, then="it stays as large as it is", who=who)
    asked = claims.requested_bytes(claim) or 0
    has = bytes_of(volume.spec.capacity.get("storage", "")) or 0
    text = f"it asks for {quantity(asked)} and has {quantity(has)}: its volume is to grow"
    return Verdict(code="growing", text=text, then="the agent grows it, in use")


def _modified(claim: Claim, volume: PersistentVolume) -> Verdict | None:
    """Why its volume has not what its VolumeAttributesClass says."""
    name, has = modifying.class_of(claim), modifying.current_of(claim)
    said = claim.status.modify_volume_status
    if name == has and said is None:
        return None
    if not is_csi(volume):
        text = f"only volumes of {CSI_DRIVER} have a VolumeAttributesClass, and it names {name}"
        who = "you: leave it so, or move the volume: localvolume move-to-csi"
        then = "nothing of the class is applied"
        return Verdict(code="not-modified", text=text, then=then, who=who)
    why = modifying.failure_of(claim)
    text = f"it names VolumeAttributesClass {name}, and its volume has {has or 'none'}"
    text = f"{text}: {why}" if why else text
    then = f"the volume goes on with {has or 'none'}"
    match said.status if said is not None else "":
        case "Infeasible":
            who = "you: name another class, or the former one again"
            return Verdict(code="not-modified", text=text, then=then, who=who)
        case "Pending":
            who = "you: create the class, or name another one"
            return Verdict(code="not-modified", text=text, then=then, who=who)
    return Verdict(code="modifying", text=text, then="the agent gives it that, in use")


# Why a prepared PersistentVolume does not fit a claim: pure, by the rules of the binder.
#
# Source: the Kubernetes documentation of persistent volumes ("Binding", "Selector", "Access
# modes").

# Why a claim of a class with prepared volumes is not bound.

_NAMED = 3
"""How many volumes each reason names as examples."""


def misfit(
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    node: tuple[str, Mapping[str, str]] | None = None,
) -> str:
    """The first reason why the claim cannot have the volume, "" if it can.

    `node`: name and labels of the node that is selected for the claim, if any.
    """
    spec, wanted = volume.spec, claim.spec
    if is_being_deleted(volume):
        return "it is being deleted"
    ref = spec.claim_ref
    mine = ref is not None and (ref.namespace, ref.name) == _name(claim)
    if ref is not None and not mine:
        return "another claim has it, or it is kept for one"
    if mine and ref is not None and ref.uid not in ("", claim.metadata.uid):
        return "an earlier claim of this name had it"
    if phase_of(volume) not in ("Available", "Pending", "Bound"):
        return f"it is {phase_of(volume)}"
    if spec.storage_class_name != claims.class_of(claim):
        return f"its class is {spec.storage_class_name or 'none'}"
    mode = wanted.volume_mode or "Filesystem"
    if (spec.volume_mode or "Filesystem") != mode:
        return f"its volumeMode is {spec.volume_mode or 'Filesystem'}, not {mode}"
    if missing := sorted(set(wanted.access_modes) - set(spec.access_modes)):
        return f"it does not have access mode {', '.join(missing)}"
    asked, has = claims.requested_bytes(claim) or 0, bytes_of(spec.capacity.get("storage", "")) or 0
    if has < asked:
        return f"it is too small: less than {quantity(asked)}"
    if not selects(wanted.selector, volume.metadata.labels):
        return "the claim's selector does not match its labels"
    terms = affinity.required_terms(volume)
    if node and terms and not any(affinity.matches(term, *node) for term in terms):
        return f"it is not on the selected node {node[0]}"
    return ""


def selects(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """Whether a label selector matches; None matches everything."""
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    rest = NodeSelectorTerm(match_expressions=selector.match_expressions)
    return not rest.match_expressions or affinity.matches(rest, "", labels)


def summed_up(reasons: Iterable[tuple[str, str]]) -> Sequence[str]:
    """`3: it is too small: less than 1Gi (a, b, c)`: from (volume, reason), most common first."""
    groups: dict[str, list[str]] = {}
    for name, reason in reasons:
        groups.setdefault(reason, []).append(name)
    found = []
    for reason, names in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0])):
        more = ", …" if len(names) > _NAMED else ""
        found.append(f"{len(names)}: {reason} ({', '.join(sorted(names)[:_NAMED])}{more})")
    return found


def _name(claim: PersistentVolumeClaim) -> tuple[str, str]:
    return claim.metadata.namespace, claim.metadata.name


def prepared(facts: Facts, claim: PersistentVolumeClaim) -> Verdict | None:
    """What keeps the claim from being bound, or None if volumes fit."""
    if name := claim.spec.volume_name:
        return _prebound(facts, claim, name)
    class_name = claims.class_of(claim)
    volumes = [
        one for one in (facts.volumes or {}).values() if one.spec.storage_class_name == class_name
    ]
    if not volumes:
        text = f"no PersistentVolume has the class {class_name}"
        who = "you: see on the nodes what `localvolume plan` says of the class's directory"
        return Verdict(code="no-volumes", text=text, then="it waits for one", who=who)
    whys = [(one.metadata.name, misfit(claim, one)) for one in volumes]
    if all(why for _, why in whys):
        text = f"none of the {len(volumes)} volumes of its class fits: "
        text += "; ".join(summed_up(whys))
        who = "you: prepare a volume that fits, or create the claim as it can be served"
        return Verdict(code="no-fit", text=text, then="it waits for one that fits", who=who)
    selected = claims.selected_node(claim)
    node = facts.known_nodes.by_name(selected) if selected else None
    if node is None:
        return None
    place = (node.metadata.name, node.metadata.labels)
    there = [(one.metadata.name, misfit(claim, one, place)) for one in volumes]
    if not all(why for _, why in there):
        return None
    text = f"the node {selected} is selected and no volume there fits: "
    text += "; ".join(summed_up(there))
    then = "the scheduler chooses anew"
    return Verdict(code="no-fit-on-node", text=text, then=then, who="Kubernetes")


def _prebound(facts: Facts, claim: PersistentVolumeClaim, name: str) -> Verdict | None:
    volume = (facts.volumes or {}).get(name)
    if volume is None:
        text = f"it asks for the PersistentVolume {name}, which does not exist"
        who = "you: create the claim anew"
        return Verdict(code="no-such-volume", text=text, then="it waits for it", who=who)
    why = misfit(claim, volume)
    if not why:
        return None
    text = f"it asks for the PersistentVolume {name}, and {why}"
    who = "you: create the claim anew, or see: localvolume why pv/" + name
    return Verdict(code="volume-unfit", text=text, then="it waits for it", who=who)
