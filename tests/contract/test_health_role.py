"""Health is said in the end, and once, to an API server that refuses, is away or was overtaken."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.backends.model import PoolReport, Record
from localvolume.config.model import Configuration
from localvolume.config.pools import PoolConfig
from localvolume.health.metrics import HealthMetrics
from localvolume.health.model import Patience
from localvolume.health.role import HealthRole
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import CLAIMS, PERSISTENT_VOLUMES
from localvolume.kube.ownpod import OwnPod
from localvolume.volumes import marks
from localvolume_lab.sandbox import kinds
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.contract.support_api import claim, volume
from tests.suite.podmounts import host, pod
from tests.suite.until import until_async

QUICK = Patience(gone=0, over=0, again=0, rest=0.01, look=0.05, retry=0.05)
NAMES = ("one", "two")
CLAIMED = "three"
"""The volume, of our CSI driver, that a claim has."""


@dataclass
class Setting:
    """Two volumes, directories of one pool; take its directory away, and they are gone."""

    sandbox: Sandbox
    client: Client
    registry: CollectorRegistry
    directory: Path
    own_pod: OwnPod
    role: HealthRole | None = None

    def pools(self) -> dict[str, tuple[PoolConfig, PoolReport]]:
        place = str(self.directory)
        config = PoolConfig(name="p", host_dir="/mnt", mount_dir=place, provisioner="x")
        record = Record(
            name=CLAIMED, backend="directory", state="offered", directory=CLAIMED, size_bytes=1
        )
        return {"p": (config, PoolReport(name="p", records={CLAIMED: record}))}

    def take_away(self) -> None:
        self.directory.rename(self.directory.with_name("away"))

    def bring_back(self) -> None:
        self.directory.with_name("away").rename(self.directory)

    async def make_claimed(self, source: dict[str, Any], uid: str = "") -> None:
        """A claim with its volume, whose object has this source; and names that UID, if any."""
        made = await self.client.create(CLAIMS, claim(CLAIMED, CLAIMED), "default")
        reference = {"name": CLAIMED, "namespace": "default", "uid": uid or made.metadata.uid}
        body = volume(CLAIMED, claimRef=reference, annotations={marks.POOL_ANNOTATION: "p/id"})
        del body["spec"]["local"]
        body["spec"] |= source
        (self.directory / CLAIMED).mkdir()
        await self.client.create(PERSISTENT_VOLUMES, body)
        bound = MergePatch({"status": {"phase": "Bound"}})
        await self.client.patch(PERSISTENT_VOLUMES, CLAIMED, bound, subresource="status")

    def on_claim(self) -> list[tuple[str, str, str]] | None:
        """What the claim's status says of its volume's health; None if it says nothing."""
        found = self.sandbox.store.find(kinds.CLAIMS, CLAIMED, "default")
        assert found is not None
        health = found.body["status"].get("healthStatus")
        if health is None:
            return None
        assert health["lastProbeTime"].endswith("Z")
        return [(one["status"], one["reason"], one["message"]) for one in health["conditions"]]

    async def said_of(self, name: str, wanted: str) -> None:
        """Wait until its PersistentVolume says that of it."""

        async def said() -> str:
            found = await self.client.get(PERSISTENT_VOLUMES, name)
            return found.metadata.annotations.get(marks.HEALTH_ANNOTATION, "").partition(":")[0]

        await until_async(said, lambda found: found == wanted)

    async def said(self) -> list[str]:
        found = [await self.client.get(PERSISTENT_VOLUMES, name) for name in NAMES]
        return [
            one.metadata.annotations.get(marks.HEALTH_ANNOTATION, "").partition(":")[0]
            for one in found
        ]

    async def until(self, wanted: Callable[[list[str]], bool]) -> None:
        await until_async(self.said, wanted)

    def told(self) -> float:
        return sum(
            self.registry.get_sample_value(
                "localvolume_volume_unhealthy",
                {"persistentvolume": n, "claim": "", "storageclass": n, "reason": "DeviceGone"},
            )
            or 0
            for n in NAMES
        )

    def count(self, verb: str, resource: str) -> int:
        return sum((one.verb, one.resource) == (verb, resource) for one in self.sandbox.requests)


@pytest.fixture
async def setting(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Setting]:
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            for name in NAMES:
                annotations = {marks.POOL_ANNOTATION: "p/id"}
                await client.create(PERSISTENT_VOLUMES, volume(name, annotations=annotations))
            own_pod = OwnPod(client, "", "")
            made = Setting(sandbox, client, CollectorRegistry(), tmp_path / "pool", own_pod)
            for name in NAMES:
                (made.directory / name).mkdir(parents=True)
            sandbox.requests.clear()
            events = EventRecorder(client, "test", "node")
            volumes = Informer(client, PERSISTENT_VOLUMES, on_change=lambda *_: None)
            workers = Workers()
            role = HealthRole(
                client=client,
                events=events,
                workers=workers,
                metrics=HealthMetrics(made.registry),
                volumes=volumes,
                pools=made.pools,
                own_pod=own_pod,
                configuration=Configuration(),
                patience=getattr(request, "param", QUICK),
            )
            made.role = role
            tasks = [asyncio.create_task(one.run()) for one in (events, volumes, role)]
            try:
                yield made
            finally:
                for task in tasks:
                    task.cancel()
                    with contextlib.suppress(asyncio.CancelledError):
                        await task
                workers.close()


async def test_a_look_that_was_held_up_is_not_paid_for_with_blindness(setting: Setting) -> None:
    """By a disk that dies, at which somebody must look soon."""
    assert setting.role is not None
    assert setting.role.loop.rest is not None
    assert setting.role.loop.rest.after(3600.0) == QUICK.look


@pytest.mark.parametrize("status", [403, 409, 503])
async def test_what_is_refused_is_said_later_and_once(setting: Setting, status: int) -> None:
    fault = setting.sandbox.faults.answer(
        status, verb="patch", resource="persistentvolumes", times=4
    )
    setting.take_away()
    await setting.until(lambda said: said == ["DeviceGone"] * 2)
    assert fault.left == 0
    assert setting.told() == 2
    setting.bring_back()
    await setting.until(lambda said: said == [""] * 2)
    patches = setting.count("patch", "persistentvolumes")
    # Events are written beside all else.
    await until_async(lambda: setting.count("create", "events"), lambda count: count >= 4)
    await asyncio.sleep(0.3)
    assert setting.count("patch", "persistentvolumes") == patches == 4 + 4
    assert setting.count("create", "events") == 4, "of each volume that it began, and its end"


# What was refused was not written: the next attempt need not wait until it may be written again.
@pytest.mark.parametrize("setting", [replace(QUICK, again=600)], indirect=True)
async def test_while_the_server_is_away_one_request_is_enough_for_a_look(setting: Setting) -> None:
    fault = setting.sandbox.faults.answer(
        503, verb="patch", resource="persistentvolumes", name="two", times=None
    )
    refused = setting.sandbox.faults.answer(
        503, verb="patch", resource="persistentvolumes", name="one", times=None
    )
    setting.take_away()
    async with asyncio.timeout(30):
        await refused.hit.wait()
    # A look may have been between the two when they went, and have seen the second go first.
    tried = fault.hits
    await until_async(lambda: refused.hits, lambda hits: hits >= 3)
    assert fault.hits == tried, "the second was not even tried"
    assert await setting.said() == ["", ""]
    assert setting.told() == 2, "the metric needs no API server"
    setting.sandbox.faults.clear()
    await setting.until(lambda said: said == ["DeviceGone"] * 2)


async def test_a_directory_that_is_not_the_volumes_tells_nothing_of_them(setting: Setting) -> None:
    """S14: hostDir is edited, and what is seen at mountDir is what it was."""
    setting.own_pod.pod = pod(host(str(setting.directory), "/mnt/other"))

    def told(name: str) -> float:
        return setting.registry.get_sample_value(f"localvolume_{name}") or 0

    await until_async(lambda: told("volume_health_unknown"), lambda count: count == 2)
    setting.take_away()
    looked = told("health_looks_total")
    await until_async(lambda: told("health_looks_total"), lambda looks: looks >= looked + 2)
    assert await setting.said() == ["", ""]
    assert told("volume_health_unknown") == 2
    setting.own_pod.pod = pod(host(str(setting.directory), "/mnt"))
    await setting.until(lambda said: said == ["DeviceGone"] * 2)


# --- the status of a claim, which Kubernetes 1.37 has ------------------------------------------

OF_CSI = {"csi": {"driver": marks.CSI_DRIVER, "volumeHandle": CLAIMED}}
OF_LOCAL = {"local": {"path": f"/mnt/{CLAIMED}"}}


async def test_the_claim_of_a_csi_volume_says_it_too(setting: Setting) -> None:
    await setting.make_claimed(OF_CSI)
    setting.take_away()
    await setting.said_of(CLAIMED, "DeviceGone")
    found = setting.on_claim()
    assert found is not None
    # A look may have been between the pool's directory and the volume's when both went.
    ((state, reason, text),) = found
    assert (state, reason) == ("Inaccessible", "DeviceGone")
    places = (setting.directory, setting.directory / CLAIMED)
    assert text in [f"{place} is not there" for place in places]
    setting.bring_back()
    await setting.said_of(CLAIMED, "")
    assert setting.on_claim() == []
    assert setting.count("patch", "persistentvolumeclaims") == 2


async def test_that_of_a_local_volume_does_not(setting: Setting) -> None:
    """Only CSI drivers say it there."""
    await setting.make_claimed(OF_LOCAL)
    setting.take_away()
    await setting.said_of(CLAIMED, "DeviceGone")
    assert setting.on_claim() is None
    assert setting.count("patch", "persistentvolumeclaims") == 0


async def test_another_claim_of_the_name_is_told_nothing(setting: Setting) -> None:
    await setting.make_claimed(OF_CSI, uid="5f1c0a9b-an-earlier-claim")
    setting.take_away()
    await setting.said_of(CLAIMED, "DeviceGone")
    assert setting.on_claim() is None


async def test_what_the_claim_may_not_be_told_is_said_elsewhere(setting: Setting) -> None:
    await setting.make_claimed(OF_CSI)
    fault = setting.sandbox.faults.answer(
        403, verb="patch", resource="persistentvolumeclaims", times=1
    )
    setting.take_away()
    await setting.said_of(CLAIMED, "DeviceGone")
    assert fault.left == 0
    assert setting.on_claim() is None


async def test_a_claim_is_told_once_the_server_is_back(setting: Setting) -> None:
    """The PersistentVolume says nothing before: an agent that dies meanwhile begins again."""
    await setting.make_claimed(OF_CSI)
    fault = setting.sandbox.faults.answer(
        503, verb="patch", resource="persistentvolumeclaims", times=2
    )
    setting.take_away()
    await setting.said_of(CLAIMED, "DeviceGone")
    assert fault.left == 0
    assert setting.on_claim()
