"""What nobody seemed to want is asked for once more, right before it is taken away."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.backends.model import Record
from localvolume.config.pools import PoolConfig
from localvolume.dynamic.act import Acts
from localvolume.dynamic.called import Calls
from localvolume.dynamic.calls import NotNow
from localvolume.dynamic.inline import Pods
from localvolume.dynamic.metrics import DynamicMetrics
from localvolume.dynamic.model import Action, Facts, RemoveCalled, TakeAway
from localvolume.dynamic.origins import Origins
from localvolume.dynamic.pools import Pools
from localvolume.dynamic.preconditions import Live, Superseded
from localvolume.dynamic.throttling.act import throttle_for
from localvolume.host.process.workers import Workers
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.volumes.manifest import NodeFacts, PublishingOptions
from localvolume.volumes.marks import NODE_LABEL
from tests.host.support_pools import config_of, wish

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
        await asyncio.wait_for(asked, 10)
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
