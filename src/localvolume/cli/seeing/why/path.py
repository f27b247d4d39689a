"""What PersistentVolumes say about a path on a node, if this is not that node: pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from localvolume.cli.seeing.facts import Facts
from localvolume.cli.seeing.why.explanation import Explanation
from localvolume.cli.seeing.why.volume import why_volume
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes.identity import is_within
from localvolume.volumes.objects import path_of


def volumes_at(facts: Facts, path: str, node: str) -> Sequence[PersistentVolume]:
    """The volumes at the path, else those that contain it, else those below it."""
    known = [
        (where, one)
        for one in (facts.volumes or {}).values()
        if (where := place_of(one)) and (not node or facts.is_of(one, node))
    ]
    for chosen in (
        [one for where, one in known if where == path],
        [one for where, one in known if is_within(path, where)],
        [one for where, one in known if is_within(where, path)],
    ):
        if chosen:
            return sorted(chosen, key=lambda one: one.metadata.name)
    return ()


def place_of(volume: PersistentVolume) -> str:
    host = volume.spec.host_path
    return path_of(volume) or (host.path if host else "")


def why_place(facts: Facts, path: str, volumes: Sequence[PersistentVolume]) -> Explanation:
    """Explains a path by the first of these volumes, which are at, around or below it."""
    names = [one.metadata.name for one in volumes]
    found = why_volume(facts, volumes[0])
    text = f"{names[0]} is at {place_of(volumes[0])}, and of that: {found.verdict.text}"
    chain = [*found.chain]
    if len(names) > 1:
        chain.insert(0, ("Also here", ", ".join(names[1:])))
    return replace(found, about=path, verdict=replace(found.verdict, text=text), chain=tuple(chain))
