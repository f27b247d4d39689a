"""Why a claim of a class of prepared volumes has none: pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.why.explanation import Verdict
from localvolume.kube.objects import (
    LabelSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
)
from localvolume.volumes import affinity, claims
from localvolume.volumes.capacity import bytes_of, quantity
from localvolume.volumes.objects import is_being_deleted, phase_of

# Why a prepared PersistentVolume is not what a claim asks for: pure, as the binder matches them.
#
# Source: the Kubernetes documentation of persistent volumes ("Binding", "Selector", "Access
# modes").

_NAMED = 3
"""Of how many volumes each reason names examples."""


def misfit(
    claim: PersistentVolumeClaim,
    volume: PersistentVolume,
    node: tuple[str, Mapping[str, str]] | None = None,
) -> str:
    """The first reason why the claim cannot have the volume, "" where it can.

    `node`: name and labels of the node that the claim is to be served on, where one is selected.
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
    """Whether a label selector matches; none matches all."""
    if selector is None:
        return True
    if any(labels.get(key) != value for key, value in selector.match_labels.items()):
        return False
    rest = NodeSelectorTerm(match_expressions=selector.match_expressions)
    return not rest.match_expressions or affinity.matches(rest, "", labels)


def summed_up(reasons: Iterable[tuple[str, str]]) -> Sequence[str]:
    """`3: it is too small: less than 1Gi (a, b, c)`: pairs of a volume and why not, most first."""
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
    """What keeps it from being bound, or None where volumes fit."""
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
