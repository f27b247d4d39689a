"""What is asked for once more right before it is done: what nobody seemed to want, and what an
administrator allows."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.backends.model import NotThisVolume, Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.act import Acts
from localvolume.dynamic.called import Calls
from localvolume.dynamic.calls import NotNow
from localvolume.dynamic.inline import Pods
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.dynamic.model import Action, Facts, Make, MakeCalled, RemoveCalled, TakeAway
from localvolume.dynamic.origins import Origins
from localvolume.dynamic.pools import Pools
from localvolume.dynamic.preconditions import Live, Superseded
from localvolume.dynamic.throttling.act import throttle_for
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES, SNAPSHOT_CONTENTS, SNAPSHOTS
from localvolume.volumes.manifest import NodeFacts, PublishingOptions
from localvolume.volumes.marks import NODE_LABEL
from localvolume.volumes.snapshots import MODE_CHANGE
from tests.decisions.support_dynamic_calls import given_to
from tests.host.support_pools import config_of, wish
from tests.suite.names import CSI

NODE = "node-1"
SPEC: dict[str, Any] = {
    "storageClassName": "local",
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Mi"}},
}


@dataclass
class Ground:
    """A pool with a volume that was made and never offered, and nobody wants."""

    client: Client
    live: Live
    pools: Pools
    pool: PoolConfig
    made: Record

    async def take_away(self) -> None:
        action = TakeAway(key=self.made.name, reason="nobody", pool=self.pool, record=self.made)
        await self.do(action, Calls(self.pools, lambda: None, {}))

    async def do(self, action: Action, calls: Calls) -> None:
        acts = Acts(
            client=self.client,
            events=EventRecorder(self.client, "test", NODE),
            pools=self.pools,
            live=self.live,
            metrics=DynamicMetrics(CollectorRegistry()),
            node_name=NODE,
            options=PublishingOptions,
            saw_volume=lambda _: None,
            saw_claim=lambda _: None,
            calls=calls,
            throttle=throttle_for("", None),
            origins=Origins(self.client, NODE, lambda: None),
            pods=Pods(self.client),
        )
        facts = Facts(
            node=NodeFacts(NODE, "uid", NODE, {}),
            provisioners=frozenset(),
            classes={},
            pools=(),
            claims={},
            volumes={},
        )
        await acts.do(action, facts)

    async def delete_claim(self) -> None:
        await self.client.delete(CLAIMS, "data", "default", uid=self.made.claim_uid)
        unprotected = MergePatch({"metadata": {"finalizers": None}})
        await self.client.patch(CLAIMS, "data", unprotected, "default")

    async def records(self) -> set[str]:
        (pool,) = await self.pools.look()
        return set(pool.report.records)


@pytest.fixture
async def ground(client: Client, tmp_path: Path) -> AsyncIterator[Ground]:
    claim = {"metadata": {"name": "data", "labels": {NODE_LABEL: NODE}}, "spec": SPEC}
    uid = (await client.create(CLAIMS, claim, "default")).metadata.uid
    workers, pool = Workers(limit=2), config_of(tmp_path, must_be_mounted=False)
    pools = Pools(workers)
    pools.configure([pool], [])
    # Only root makes volumes for others.
    wanted = wish(claim="default/data", claim_uid=uid, uid=os.geteuid(), gid=os.getegid())
    made = await pools.call(pool, wanted.name, lambda store: store.make(wanted))
    live = Live(client, NODE, lambda _: None, lambda _: False, unwanted_seconds=0.0)
    yield Ground(client, live, pools, pool, made)
    pools.close()
    workers.close()


async def test_what_nobody_wants_is_taken_away(ground: Ground) -> None:
    await ground.delete_claim()
    await ground.take_away()
    assert await ground.records() == set()


async def test_a_call_is_refused_for_which_something_else_is_taken_away(ground: Ground) -> None:
    calls, why = Calls(ground.pools, lambda: None, {}), NotNow("its source has grown")
    asked = asyncio.ensure_future(calls.snapshot("pvc-1", "pvc-0"))
    await asyncio.sleep(0)
    calls.looking()
    assert [call.key for call in calls.waiting()] == ["pvc-1"]
    begun = RemoveCalled(
        key="pvc-1", reason=str(why), pool=ground.pool, record=ground.made, refusal=why
    )
    await ground.do(begun, calls)
    with pytest.raises(NotNow, match="its source has grown"):
        await asyncio.wait_for(asked, 60)
    assert await ground.records() == set()


async def test_what_its_claim_wants_after_all_is_not(ground: Ground) -> None:
    with pytest.raises(Superseded, match="pvc-1 is wanted after all"):
        await ground.take_away()
    assert await ground.records() == {"pvc-1"}


async def test_what_a_persistentvolume_names_after_all_is_not(ground: Ground) -> None:
    """As one that an agent asked for before it was killed, and the API server has made since."""
    await ground.delete_claim()
    await ground.live.ask(ground.made)
    names, _, _ = ground.live.unwanted()
    assert "pvc-1" in names
    spec = {
        "capacity": {"storage": "1Mi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "local",
        "local": {"path": "/pool/pvc-1"},
        "nodeAffinity": {
            "required": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [NODE]}]}
                ]
            }
        },
    }
    body = {"metadata": {"name": "pvc-1"}, "spec": spec}
    await ground.client.create(PERSISTENT_VOLUMES, body)
    with pytest.raises(Superseded, match="pvc-1 is wanted after all"):
        await ground.take_away()
    assert await ground.records() == {"pvc-1"}


async def test_a_filesystem_is_had_as_blocks_only_while_that_is_allowed(ground: Ground) -> None:
    """An administrator took the annotation away, and the last look had seen it."""
    client, source = ground.client, {"kind": "VolumeSnapshot", "name": "s"}
    source["apiGroup"] = "snapshot.storage.k8s.io"
    claim = await client.create(
        CLAIMS, {"metadata": {"name": "blocks"}, "spec": {**SPEC, "dataSource": source}}, "default"
    )
    asks = {"volumeSnapshotClassName": "any", "source": {"persistentVolumeClaimName": "data"}}
    snapshot = await client.create(SNAPSHOTS, {"metadata": {"name": "s"}, "spec": asks}, "default")
    ref = {"kind": "VolumeSnapshot", "namespace": "default", "name": "s"}
    spec = {
        "driver": CSI,
        "deletionPolicy": "Delete",
        "source": {"volumeHandle": "pvc-1"},
        "volumeSnapshotRef": {**ref, "uid": snapshot.metadata.uid},
    }
    notes = {NODE_LABEL: NODE, MODE_CHANGE: "true"}
    content = {"metadata": {"name": "c", "annotations": notes}, "spec": spec}
    await client.create(SNAPSHOT_CONTENTS, content)
    cut = {"status": {"snapshotHandle": "csi-1", "readyToUse": True}}
    await client.patch(SNAPSHOT_CONTENTS, "c", MergePatch(cut), subresource="status")
    told = {"status": {"boundVolumeSnapshotContentName": "c", "readyToUse": True}}
    await client.patch(SNAPSHOTS, "s", MergePatch(told), "default", subresource="status")
    origin = wish("csi-1", state="offered", snapshot_of="pvc-1")
    restore = Make(
        key="pvc-2",
        reason="a pool has room",
        claim=claim,
        pool=ground.pool,
        record=wish("pvc-2", made_from="csi-1", volume_mode="Block"),
        origin=origin,
    )
    calls = Calls(ground.pools, lambda: None, {})
    # It gets as far as the pool, which has no such snapshot.
    with pytest.raises(NotThisVolume, match="csi-1"):
        await ground.do(restore, calls)
    taken = MergePatch({"metadata": {"annotations": {MODE_CHANGE: None}}})
    await client.patch(SNAPSHOT_CONTENTS, "c", taken)
    with pytest.raises(Superseded, match="the other volumeMode is not allowed any more"):
        await ground.do(restore, calls)
    same = replace(restore, record=replace(restore.record, volume_mode="Filesystem"))
    with pytest.raises(NotThisVolume, match="csi-1"):
        await ground.do(same, calls)
    assert await ground.records() == {"pvc-1"}


@pytest.mark.parametrize("kind", ["clone", "snapshot"])
async def test_a_volume_is_copied_only_while_its_tenant_has_it(ground: Ground, kind: str) -> None:
    """It was the tenant's when that was planned. Others' copies had their turns first."""
    client, volumes = ground.client, {"pvc-9": given_to("default", "pvc-9")}
    source = {"kind": "PersistentVolumeClaim", "name": "gone"}
    asks = {"metadata": {"name": "copy"}, "spec": {**SPEC, "dataSource": source}}
    claim = await client.create(CLAIMS, asks, "default")
    told: Any = {"key": "copy", "reason": "asked for", "pool": ground.pool, "origin": wish("pvc-9")}
    action: Make | MakeCalled = Make(
        record=wish("copy", made_from="pvc-9"), claim=claim, fresh=False, **told
    )
    if kind == "snapshot":
        action = MakeCalled(record=wish("copy", snapshot_of="pvc-9"), namespace="default", **told)
    calls = Calls(ground.pools, lambda: None, volumes)
    # It gets as far as the pool, which has no such volume.
    with pytest.raises(NotThisVolume, match="pvc-9"):
        await ground.do(action, calls)
    # Another had it since: the API server was set back to before.
    kept = replace(action, origin=wish("pvc-9", generation=1))
    with pytest.raises(Superseded, match="no claim of namespace default has volume pvc-9"):
        await ground.do(kept, calls)
    volumes["pvc-9"] = given_to("theirs", "pvc-9")
    with pytest.raises(Superseded, match="no claim of namespace default has volume pvc-9"):
        await ground.do(action, calls)
