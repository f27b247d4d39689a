"""What is known of a claim, each fact after those it depends on: pure."""

from __future__ import annotations

from collections.abc import Sequence

from localvolume.cli.seeing.facts import NO_PROVISIONER, Facts
from localvolume.cli.seeing.status.states import agent_of
from localvolume.cli.seeing.unread import unread_facts
from localvolume.cli.seeing.words import size
from localvolume.controller.plan.capacity import offers_for
from localvolume.controller.plan.claims import refusal
from localvolume.kube.objects import PersistentVolumeClaim, StorageClass
from localvolume.kube.workloads import Pod
from localvolume.volumes import claims, marks, modifying

Claim = PersistentVolumeClaim


def chain(facts: Facts, claim: Claim) -> list[tuple[str, str]]:
    """Pairs of a name and what is known of it."""
    class_, spec = class_object(facts, claim), claim.spec
    mode = spec.volume_mode or "Filesystem"
    node = facts.node_of_claim(claim)
    pods = consumers(facts, claim)
    found = [
        ("Phase", claim.status.phase or "Pending"),
        (
            "Asks for",
            ", ".join([size(claims.requested_bytes(claim)), *spec.access_modes, mode]),
        ),
        ("Class", claims.class_of(claim) or "none"),
    ]
    if class_ is not None:
        kind = "prepared volumes" if class_.provisioner == NO_PROVISIONER else class_.provisioner
        found += [
            ("Volumes from", kind),
            ("Binding", class_.volume_binding_mode or "Immediate"),
            ("May grow", "yes" if class_.allow_volume_expansion else "no"),
        ]
    if name := modifying.current_of(claim):
        found.append(("Attributes by", name))
    if facts.consumers is not None:
        found.append(("Pods", ", ".join(pod.metadata.name for pod in pods) or "none uses it"))
    found.append(("Volume", spec.volume_name or "none yet"))
    if node:
        agent = agent_of(facts, node)
        found += [("Node", node), ("Agent", f"{agent.state}{': ' if agent.why else ''}{agent.why}")]
    if told := claim.metadata.annotations.get(marks.REFUSED_ANNOTATION):
        given = refusal(claim)
        why = f": {given[1].why}" if given and given[1].why else ""
        found.append(("Given back by", f"{told}{why}"))
    if class_ is not None and class_.provisioner in facts.provisioners:
        found += _capacity(facts, claim, class_)
    return found + unread_facts(facts.unknown)


def _capacity(facts: Facts, claim: Claim, class_: StorageClass) -> list[tuple[str, str]]:
    if facts.capacities is None or claim.status.phase == "Bound":
        return []
    offers = offers_for(class_, facts.capacities, facts.known_nodes)
    texts = [
        f"{one.node}: {size(one.capacity)}, at most {size(one.largest)} in one"
        + (f" ({why})" if (why := one.why_not or one.problem) else "")
        for one in offers[:8]
    ]
    if len(offers) > len(texts):
        texts.append(f"and {len(offers) - len(texts)} more")
    found = [("Room", "; ".join(texts) or "no node publishes any for this class")]
    name = class_.provisioner
    if facts.drivers is not None and name in marks.OURS - facts.drivers:
        found.append(("Scheduler", f"there is no CSIDriver {name}: the scheduler heeds no room"))
    return found


def consumers(facts: Facts, claim: Claim) -> Sequence[Pod]:
    """The pods that use the claim and have not ended."""
    name = claim.metadata.name

    def uses(pod: Pod) -> bool:
        return any(
            (
                one.persistent_volume_claim is not None
                and one.persistent_volume_claim.claim_name == name
            )
            or (one.ephemeral is not None and f"{pod.metadata.name}-{one.name}" == name)
            for one in pod.spec.volumes
        )

    found = [pod for pod in facts.consumers or () if uses(pod)]
    return [pod for pod in found if pod.status.phase not in ("Succeeded", "Failed")]


def class_object(facts: Facts, claim: Claim) -> StorageClass | None:
    """The claim's StorageClass, if it exists and could be read."""
    return (facts.classes or {}).get(claims.class_of(claim))


def is_for_first_pod(class_: StorageClass) -> bool:
    """Whether the class binds only once a pod is scheduled."""
    return class_.volume_binding_mode == "WaitForFirstConsumer"
