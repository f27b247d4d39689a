"""A claim that is deleted and made anew, of which the watch tells as one change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from localvolume.controller.caches.cluster import Cluster
from localvolume.controller.caches.demand import Demand
from localvolume.controller.caches.trimmed import VOLUMES
from localvolume.controller.caches.trimmedclaims import CLAIMS, CLASSES, KnownClaim
from localvolume.controller.flexvolume import FlexVolumes
from localvolume.controller.leading import Means, Pace
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.model import Policy
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.volumes import marks
from localvolume.volumes.claims import volume_name
from localvolume.volumes.periods import Clock
from tests.suite.until import until_async


@pytest.fixture
async def demand(client: Client) -> AsyncIterator[Demand]:
    """What a leader knows while it makes FlexVolume PersistentVolumes. Of claims it hears what the
    test says: no watch could be made to tell two things in one moment."""
    cluster = Cluster(client)
    demand = Demand(client, cluster)
    means = Means(
        client=client,
        cluster=cluster,
        demand=demand,
        events=EventRecorder(client, "test", "one"),
        metrics=ControllerMetrics(),
        policy=Policy(),
        pace=Pace(),
        clock=Clock(),
    )
    informers = (cluster.volumes, cluster.nodes, demand.classes, demand.capacities)
    listing = asyncio.create_task(demand.claims.run())
    await demand.claims.synced.wait()
    listing.cancel()
    tasks = [asyncio.create_task(one.run()) for one in (*informers, FlexVolumes(means))]
    yield demand
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def made(client: Client) -> KnownClaim:
    notes = {"volume.kubernetes.io/storage-provisioner": marks.FLEX_DRIVER}
    spec = {
        "storageClassName": "flex",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    body = {"metadata": {"name": "data", "annotations": notes}, "spec": spec}
    return await client.create(CLAIMS, body, "default")


async def names(client: Client) -> list[str]:
    return [one.metadata.name for one in (await client.list_page(VOLUMES)).items]


async def test_each_gets_a_volume_of_its_own(client: Client, demand: Demand) -> None:
    flex = {"metadata": {"name": "flex"}, "provisioner": marks.FLEX_DRIVER}
    await client.create(CLASSES, {**flex, "volumeBindingMode": "Immediate"})
    await until_async(lambda: demand.classes.items)
    first = await made(client)
    demand.claims.apply_own_write(first)
    wanted = [volume_name(first.metadata.uid)]
    await until_async(lambda: names(client), lambda found: found == wanted)
    await client.delete(CLAIMS, "data", "default", uid=first.metadata.uid)
    # pvc-protection: there is no controller to take it off.
    nothing = MergePatch({"metadata": {"finalizers": None}})
    await client.patch(CLAIMS, "data", nothing, "default")
    second = await made(client)
    demand.claims.apply_own_write(second)
    wanted.append(volume_name(second.metadata.uid))
    await until_async(lambda: names(client), lambda found: sorted(found) == sorted(wanted))
    # What becomes of the first one's is nothing to the second.
    await client.patch(VOLUMES, wanted[0], MergePatch({"metadata": {"labels": {"a": "b"}}}))
    assert sorted(await names(client)) == sorted(wanted)
