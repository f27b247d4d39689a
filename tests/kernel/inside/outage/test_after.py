"""A node that starts again after its power was cut (test_before.py): nothing is lost, nor left."""

from __future__ import annotations

from pathlib import Path

import pytest

from localvolume.backends.lvm.record import COPIED
from localvolume.host.lvm.commands import Lvm
from localvolume.volumes.lvtags import decode
from tests.cluster.support_csi import mounted_below
from tests.cluster.support_snapshots import Snapshot
from tests.suite.api import CLAIMS

from .support_outage import (
    NOTED,
    OBJECTS,
    THICK,
    THIN,
    OutageLab,
    is_filled,
    node_on,
    numbers_in,
    told,
)


@pytest.mark.parametrize(("what", "cuts"), [("kept", False), ("given-up", True)])
def test_it_goes_on(tmp_path: Path, lvm: Lvm, what: str, cuts: bool) -> None:
    """Snapshots that are still wanted are finished, of the moment that they are of; of those that
    were deleted while the node was off nothing is left."""
    facts = told()
    with node_on(tmp_path, lvm, OBJECTS) as node:
        node.pools()
        snapshots = {pool: _snapshot(node, f"{what}-{pool}") for pool in ("thick", "thin")}
        _are_half_made(node, snapshots, cuts=cuts)
        if what == "given-up":
            for one in snapshots.values():
                node.delete_snapshot(one)
        assert mounted_below(node.kubelet) == []
        node.serve_here()
        # The kubelet makes its calls again.
        written = {}
        for pool, handle in facts["handles"].items():
            place = node.caller.use(handle)
            written[pool] = numbers_in(place / "numbers")
            assert written[pool] >= facts["written"][pool]
            assert is_filled(place)
        if what == "kept":
            for pool, one in snapshots.items():
                node.ready(one)
                claim = node.objects.get(f"{CLAIMS}/{what}-{pool}")
                place = node.restored(one, claim)
                # The one that was half copied has its moment before the outage.
                most = facts["cut"] if pool == "thick" else written
                assert facts["asked"][pool] <= numbers_in(place / "numbers") <= most[pool]
                assert is_filled(place)
                node.delete_snapshot(one)
        for one in snapshots.values():
            node.until(lambda one=one: node.read_snapshot(one), lambda left: left is None)  # type: ignore[misc]
        _all_goes(node)


def _all_goes(node: OutageLab) -> None:
    """Nothing is left of the claims once they are deleted, nor of anything else."""
    for claim in node.plane.request("GET", CLAIMS)["items"]:
        handle = node.handle(claim)
        for place in mounted_below(node.kubelet / "pods"):
            if f"/{handle}/" in place:
                node.caller.unpublish(handle, Path(place).relative_to(node.kubelet).parts[1])
        node.caller.unstage(handle)
        node.delete(claim)
    assert mounted_below(node.kubelet) == []
    node.until(lambda: node.names(THICK) | node.names(THIN), lambda left: not left)
    assert node.orphans() == []


def _snapshot(node: OutageLab, name: str) -> Snapshot:
    found = node.read_snapshot({"metadata": {"name": name}})
    assert found is not None
    return found


def _are_half_made(node: OutageLab, snapshots: dict[str, Snapshot], *, cuts: bool) -> None:
    """As the outage has left them; nobody says that they can be used."""
    for one in snapshots.values():
        assert not one.get("status", {}).get("readyToUse")
        content = node.content_of(one)
        assert content is not None
        assert not content.get("status", {}).get("readyToUse")
    tags = [decode(one.tags) for one in node.lvm.volumes(THICK)]
    (copied,) = [int(one[COPIED]) for one in tags if COPIED in one]
    assert copied == NOTED
    assert len(node.names(THICK)) == 3
    assert len(node.names(THIN)) == (2 if cuts else 1)
