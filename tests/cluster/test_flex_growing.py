"""Claims that ask for more: the volume grows, then its object, then the claim's status says so.

Directories stand in for logical volumes: their driver notes the size, and no kernel is needed.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.pools import LvmConfig
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.driver import Volume
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.flexvolume.keeping import Keeping
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.plan.binding import tags_of
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import CLAIMS as CLAIM
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES
from localvolume.volumes.manifest import NodeFacts
from tests.cluster.support_flex import OURS, FlexLab, flex_lab_for
from tests.cluster.support_objects import Objects
from tests.suite.api import CLAIMS, CLASSES, MERGE
from tests.suite.conditions import conditions_of
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root")


@pytest.fixture
def lab(objects: Objects, unique: str, tmp_path: Path) -> Iterator[FlexLab]:
    with flex_lab_for(objects, unique, tmp_path) as made:
        body = {
            "metadata": {"name": unique},
            "provisioner": OURS,
            "allowVolumeExpansion": True,
            "volumeBindingMode": "Immediate",
        }
        objects.make(CLASSES, body)
        yield made


class Look:
    """What the role would see to, one look at a time."""

    def __init__(self, lab: FlexLab, client: Client, driver: BindDriver, kind: Any) -> None:
        self.lab = lab
        self.client = client
        self.driver = driver
        workers = Workers()
        turns = Turns(workers)
        lvm = LvmConfig(group="disks") if kind == "lvm" else None
        self.keeping = Keeping(
            client=client,
            events=EventRecorder(client, "test", lab.node),
            workers=workers,
            config=FlexVolumeConfig(driver=kind, lvm=lvm),
            driver=driver,
            turns=turns,
            binding=Binding(client, lab.node, lambda: client.get(NODES, lab.node), lambda _: None),
            metrics=FlexMetrics(CollectorRegistry()),
            node_name=lab.node,
            saw_volume=lambda _: None,
            saw_claim=lambda _: None,
        )

    async def __call__(self, name: str) -> None:
        volume = await self.client.get(PERSISTENT_VOLUMES, name)
        claim = await self.client.get(CLAIM, name, "default")
        node = NodeFacts(self.lab.node, "", self.lab.hostname, {})
        await self.keeping.look(node, {name: volume}, {f"default/{name}": claim})


@asynccontextmanager
async def looking(lab: FlexLab, kind: str = "lvm") -> AsyncIterator[Look]:
    async with Client(find_access(str(lab.plane.kubeconfig)), user_agent="test") as client:
        yield Look(lab, client, BindDriver(str(lab.root)), kind)


async def made(look: Look, size: str = "") -> str:
    """A bound volume of the class that has been mounted here, and now asks for `size`."""
    lab = look.lab
    volume = lab.volume(class_name=lab.unique)
    name: str = volume["metadata"]["name"]
    live = await look.client.get(PERSISTENT_VOLUMES, name)
    tags = {key: value for key, value in tags_of(live).items() if value}
    target = lab.target(volume)
    look.driver.mount(Volume(name=name, size_bytes=8 * MIB, tags=tags), str(target))
    if size:
        body = {"spec": {"resources": {"requests": {"storage": size}}}}
        lab.plane.request("PATCH", f"{CLAIMS}/{name}", body, content_type=MERGE)
        # kube-controller-manager takes every FlexVolume for one that the node grows, and says of
        # the object that it has grown.
        lab.until(lambda: sizes(lab, name)[0], lambda found: found == size)
        lab.until(
            lambda: lab.objects.get(f"{CLAIMS}/{name}")["status"].get("conditions", []),
            lambda found: any(one["type"] == "FileSystemResizePending" for one in found),
        )
    return name


def sizes(lab: FlexLab, name: str) -> tuple[str, str]:
    """Of the object, and of the claim's status."""
    volume = lab.read(name)
    assert volume is not None
    claim = lab.objects.get(f"{CLAIMS}/{name}")
    return volume["spec"]["capacity"]["storage"], claim["status"]["capacity"]["storage"]


def has(look: Look) -> int:
    """What the volume was grown to, in MiB."""
    return look.driver.list_volumes()[0].size_bytes // MIB


async def test_a_claim_that_asks_for_more_gets_it(lab: FlexLab) -> None:
    async with looking(lab) as look:
        name = await made(look, "16Mi")
        await look(name)
        assert sizes(lab, name) == ("16Mi", "16Mi")
        assert look.driver.list_volumes()[0].size_bytes == 16 * MIB
        assert not conditions_of(lab.objects.get(f"{CLAIMS}/{name}"))
        before = lab.objects.get(f"{CLAIMS}/{name}")["metadata"]["resourceVersion"]
        await look(name)
        assert lab.objects.get(f"{CLAIMS}/{name}")["metadata"]["resourceVersion"] == before


async def test_it_goes_on_where_it_was_cut_short(lab: FlexLab) -> None:
    """Grown, and nobody was told; then the object said so, and the claim not."""
    async with looking(lab) as look:
        name = await made(look, "16Mi")
        look.driver.grow(name, 16 * MIB)
        assert sizes(lab, name) == ("16Mi", "8Mi")
        await look(name)
        assert sizes(lab, name) == ("16Mi", "16Mi")


async def test_what_asks_for_nothing_is_left_alone(lab: FlexLab) -> None:
    async with looking(lab) as look:
        name = await made(look)
        await look(name)  # which says that its claim has had it
        before = lab.read(name)
        await look(name)
        assert lab.read(name) == before
        assert sizes(lab, name) == ("8Mi", "8Mi")


async def test_directories_do_not_grow(lab: FlexLab) -> None:
    async with looking(lab, "bindmount") as look:
        name = await made(look, "16Mi")
        await look(name)
        assert (has(look), sizes(lab, name)[1]) == (8, "8Mi")


async def test_another_objects_volume_does_not_grow(lab: FlexLab) -> None:
    async with looking(lab) as look:
        name = await made(look, "16Mi")
        look.driver.note(name, {"pv-uid": "another"})
        await look(name)
        assert (has(look), sizes(lab, name)[1]) == (8, "8Mi")


async def test_another_nodes_is_no_business_of_ours(lab: FlexLab) -> None:
    async with looking(lab) as look:
        name = await made(look, "16Mi")
        lab.patch(name, {"metadata": {"labels": {"localvolume.dev/node": "another"}}})
        await look(name)
        assert (has(look), sizes(lab, name)[1]) == (8, "8Mi")
