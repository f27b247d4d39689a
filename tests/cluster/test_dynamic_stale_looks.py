"""What ends while the pools are looked at: its room is not promised a second time."""

import asyncio
import time
from typing import Any

import pytest

from localvolume.backends.pool.pool import PoolStore
from localvolume.dynamic.pools import Pools
from tests.cluster.support_dynamic import DynamicLab
from tests.suite.names import NODE_LABEL

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def test_a_volume_made_during_a_look_keeps_its_room(
    dynamic: DynamicLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The look at the pool came before it, and the look at what is under way after it.

    The pool has room for two such volumes; the first one is made slowly, and each plan is made half
    a second after the pool was looked at.
    """
    look, make = Pools.look, PoolStore.make

    async def early(self: Pools) -> Any:
        found = await look(self)
        await asyncio.sleep(0.5)
        return found

    def late(self: PoolStore, record: Any) -> Any:
        time.sleep(1.3)
        return make(self, record)

    monkeypatch.setattr(Pools, "look", early)
    monkeypatch.setattr(PoolStore, "make", late)
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start()
    first = dynamic.claim(cls, size="20Mi")
    dynamic.claim_event(first, "Provisioning")
    others = [dynamic.claim(cls, size="20Mi") for _ in range(2)]
    dynamic.made(first)

    def settled() -> list[bool]:
        found = [dynamic.read_claim(claim) for claim in others]
        return [
            claim is not None
            and (
                claim["status"]["phase"] == "Bound"
                or NODE_LABEL not in claim["metadata"].get("labels", {})
            )
            for claim in found
        ]

    dynamic.until(settled, all)
    assert len(dynamic.volumes()) == 2
