"""PersistentVolumes of anybody's: which may mean what is about to be erased."""

from __future__ import annotations

import pytest

from localvolume.kube.objects import (
    HostPathSource,
    LocalSource,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolume,
    PVSpec,
    VolumeNodeAffinity,
)
from localvolume.static.strangers import overlaps, path_here
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts

NODE = NodeFacts("n1", "uid", "host1", {marks.HOSTNAME_LABEL: "host1", "rack": "r1"})
AT = LocalSource(path="/mnt/disks/a")


def _affinity(key: str, operator: str, *values: str) -> VolumeNodeAffinity:
    one = NodeSelectorRequirement(key=key, operator=operator, values=values)
    term = NodeSelectorTerm(match_expressions=(one,))
    return VolumeNodeAffinity(required=NodeSelector(node_selector_terms=(term,)))


@pytest.mark.parametrize(
    ("affinity", "here"),
    [
        (None, True),
        (VolumeNodeAffinity(), True),
        (_affinity(marks.HOSTNAME_LABEL, "In", "host1", "host2"), True),
        (_affinity(marks.HOSTNAME_LABEL, "In", "host2"), False),
        (_affinity(marks.HOSTNAME_LABEL, "NotIn", "host2"), True),
        (_affinity("rack", "In", "r1"), True),
        (_affinity("rack", "In", "r2"), False),
        (_affinity("rack", "Exists"), True),
    ],
)
def test_it_counts_unless_it_means_other_nodes_only(
    affinity: VolumeNodeAffinity | None, here: bool
) -> None:
    volume = PersistentVolume(spec=PVSpec(local=AT, node_affinity=affinity))
    assert path_here(volume, NODE) == ("/mnt/disks/a" if here else "")


def test_its_path_is_read_as_the_kubelet_reads_it() -> None:
    for path in ("/mnt/disks/a/", "//mnt/disks/./a", "/mnt/x/../disks/a"):
        for spec in (
            PVSpec(local=LocalSource(path=path)),
            PVSpec(host_path=HostPathSource(path=path)),
        ):
            assert path_here(PersistentVolume(spec=spec), NODE) == "/mnt/disks/a"
    assert path_here(PersistentVolume(spec=PVSpec()), NODE) == ""


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/mnt/disks/a", True),
        ("/mnt/disks/a/sub", True),
        ("/mnt/disks", True),
        ("/", True),
        ("/mnt/disks/ab", False),
        ("/mnt/disks/b", False),
    ],
)
def test_what_lies_within_or_around_is_shared(path: str, shared: bool) -> None:
    assert overlaps(path, "/mnt/disks/a") is shared
