"""Why a claim is as it is: pure. The same judges decide here as in controller and agents."""

from __future__ import annotations

from collections.abc import Callable

from localvolume.cli.seeing.facts import NO_PROVISIONER, Facts, recency
from localvolume.cli.seeing.kinds import SeenEvent
from localvolume.cli.seeing.status import growth
from localvolume.cli.seeing.status.states import state_of
from localvolume.cli.seeing.why.claimchain import chain, class_object, consumers, is_for_first_pod
from localvolume.cli.seeing.why.explanation import Explanation, Verdict
from localvolume.cli.seeing.why.made import flex, made, waits_for_pod
from localvolume.cli.seeing.why.prepared import prepared
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.config.syntax.readers import did_you_mean
from localvolume.kube.objects import PersistentVolume, PersistentVolumeClaim
from localvolume.volumes import claims
from localvolume.volumes.capacity import bytes_of, quantity

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
    who = "you: delete the claim; its data is not coming back by itself"
    return Verdict(code="lost", text=text, then="it stays Lost", who=who)


def bound(facts: Facts, claim: Claim) -> Verdict | None:
    if claim.status.phase != "Bound":
        return None
    name = claim.spec.volume_name
    volume = (facts.volumes or {}).get(name)
    if volume is None:
        text = f"it is bound to {name}, which could not be read or is gone"
        return Verdict(
            code="bound-unknown", text=text, then="nobody can tell", who="you: look at it"
        )
    if growing := _growing(facts, claim, volume):
        return growing
    state = state_of(facts, volume)
    if state.word not in ("bound", "available", "pending"):
        of = why_volume(facts, volume).verdict
        text = f"it is bound to {name}, and of that: {of.text}"
        return Verdict(code=f"bound-{state.word}", text=text, then=of.then, who=of.who)
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
    text = "; ".join(f"{name}: {facts.unknown[name]}" for name in missing)
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
        return Verdict(
            code="cannot-grow", text=said.message, then="it stays as large as it is", who=who
        )
    asked = claims.requested_bytes(claim) or 0
    has = bytes_of(volume.spec.capacity.get("storage", "")) or 0
    text = f"it asks for {quantity(asked)} and has {quantity(has)}: its volume is to grow"
    return Verdict(code="growing", text=text, then="the agent grows it, in use")
