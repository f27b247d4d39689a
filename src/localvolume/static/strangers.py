"""PersistentVolumes of anybody's: whether one may mean what is about to be erased."""

from __future__ import annotations

from localvolume.kube.objects import PersistentVolume
from localvolume.static.world import plain
from localvolume.volumes import affinity
from localvolume.volumes.identity import is_within
from localvolume.volumes.manifest import NodeFacts
from localvolume.volumes.objects import is_on_node


def path_here(volume: PersistentVolume, node: NodeFacts) -> str:
    """The path that the object names on this node's host; "" where it names none here for certain.

    Without an affinity (hostPath), or with one that cannot be read, it may mean any node.
    """
    source = volume.spec.local or volume.spec.host_path
    if source is None:
        return ""
    terms = affinity.required_terms(volume)
    elsewhere = (
        terms
        and not is_on_node(volume, node.hostname)
        and not any(affinity.matches(term, node.name, node.labels) for term in terms)
    )
    return "" if elsewhere else plain(source.path)


def overlaps(path: str, other: str) -> bool:
    """Whether one of two directories is, or lies in, the other."""
    return is_within(path, other) or is_within(other, path)
