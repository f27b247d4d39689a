"""What the page says when a volume or claim is chosen: the words of `localvolume why`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.page.model import HEALTHS, health_of
from localvolume.cli.seeing.status.overview import waiting_claims
from localvolume.cli.seeing.status.states import state_of
from localvolume.cli.seeing.why.claim import why_claim
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.kube.cache import key_of
from localvolume.kube.objects import PersistentVolume

MOST: Final = 2000
"""How many explanations a file holds: those of what is not well come first."""


def explained(facts: Facts, about: str) -> dict[str, Any] | None:
    """The explanation of `pv/NAME` or `pvc/NAMESPACE/NAME`, or None if there is no such thing."""
    kind, _, name = about.partition("/")
    if kind == "pv" and (volume := (facts.volumes or {}).get(name)):
        return why_volume(facts, volume).shape()
    if kind == "pvc" and (claim := (facts.claims or {}).get(name)):
        return why_claim(facts, claim).shape()
    return None


def explanations(facts: Facts, only: str = "") -> dict[str, Any]:
    """Those of a file that nobody can ask: waiting claims, then volumes, the unwell first."""
    found: dict[str, Any] = {}
    for about in _worth(facts, only):
        if len(found) == MOST:
            break
        if why := explained(facts, about):
            found[about] = why
    return found


def _worth(facts: Facts, only: str) -> Iterator[str]:
    for claim in waiting_claims(facts, only):
        yield f"pvc/{key_of(claim)}"
    volumes = [one for one in facts.ours if not only or facts.is_of(one, only)]

    def wellness(volume: PersistentVolume) -> int:
        return -HEALTHS.index(health_of(state_of(facts, volume).word))

    for volume in sorted(volumes, key=wellness):
        yield f"pv/{volume.metadata.name}"
