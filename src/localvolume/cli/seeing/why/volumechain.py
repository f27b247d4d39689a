"""What is known of a PersistentVolume, in the order in which one thing rests on the other."""

from __future__ import annotations

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.status.states import agent_of, jobs_of, state_of
from localvolume.controller.plan import volumes as controller
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import affinity, marks
from localvolume.volumes.objects import (
    ever_claimed,
    is_being_deleted,
    is_dynamic,
    is_flexvolume,
    path_of,
    phase_of,
)

Volume = PersistentVolume


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
        ("Path", path_of(volume) or "it is not of the kind local"),
        ("Node", _node(facts, node)),
        ("Affinity", controller.named(volume) if affinity.required_terms(volume) else "none"),
        ("Agent", f"{agent.state}{': ' if agent.why else ''}{agent.why}"),
        ("Claim", claim_name(volume)),
        ("Ever claimed", "yes" if ever_claimed(volume) else "no"),
        ("Reclaim policy", spec.persistent_volume_reclaim_policy or "?"),
        ("Finalizers", ", ".join(meta.finalizers) or "none"),
    ]
    known = {
        "Identity": marks.IDENTITY_ANNOTATION,
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
    return found + [("Unknown", f"{what}: {why}") for what, why in facts.unknown.items()]


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
    """The claim that it names, for people."""
    ref = volume.spec.claim_ref
    return f"{ref.namespace}/{ref.name}" if ref else "nobody"
