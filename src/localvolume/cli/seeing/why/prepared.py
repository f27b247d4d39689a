"""Why a claim of a class of prepared volumes has none: pure."""

from __future__ import annotations

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.why.explanation import Verdict
from localvolume.cli.seeing.why.fitting import misfit, summed_up
from localvolume.kube.objects import PersistentVolumeClaim
from localvolume.volumes import claims


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
