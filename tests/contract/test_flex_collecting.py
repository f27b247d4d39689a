"""FlexVolume's collector against an API server that fails, refuses, and says this and that: only
what it certainly does not know any more is removed, and only after the grace period."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from localvolume.config.flexvolume import NAMES, FlexVolumeConfig
from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.collecting import Collector, CollectorMetrics
from localvolume.flexvolume.driver import Volume
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.flexvolume.keeping import Adopted, Keeping
from localvolume.flexvolume.metrics import FlexMetrics
from localvolume.flexvolume.paces import FlexPaces
from localvolume.flexvolume.plan.collect import Action, ForgetGone, Keep, NoteGone, Remove
from localvolume.flexvolume.turns import Turns
from localvolume.host.process.workers import Workers
from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.events import EventRecorder
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES
from localvolume.kube.objects import Node
from localvolume.volumes import marks
from localvolume.volumes.manifest import NodeFacts, node_facts
from localvolume_lab.sandbox.sandbox import Sandbox
from tests.suite.until import until_async

pytestmark = pytest.mark.needs("root")

NODE = "node-1"
GRACE = 600.0


def manifest(name: str = "pvc-1", host: str = NODE) -> dict[str, Any]:
    term = {"key": marks.HOSTNAME_LABEL, "operator": "In", "values": [host]}
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete",
            "flexVolume": {"driver": marks.ELASTIC_FLEX_DRIVER, "options": {"sizeBytes": "1"}},
            "claimRef": {"namespace": "ns", "name": "claim", "uid": "c-1"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [term]}]}},
        },
    }


@dataclass
class Setting:
    """One volume with data in a directory, its PersistentVolume, and clocks that tests set."""

    sandbox: Sandbox
    client: Client
    root: Path
    now: float = 1_800_000_000.0
    steady: float = 0.0
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)
    collector: Collector = field(init=False)
    uid: str = ""

    def __post_init__(self) -> None:
        self.driver = BindDriver(str(self.root / "volumes"))
        self.metrics = CollectorMetrics(self.registry)
        self.begin()

    def begin(self) -> None:
        """As a new process does."""
        self.workers = Workers()
        self.turns = Turns(self.workers)
        self.collector = Collector(
            self.client,
            self.driver,
            self.workers,
            self.turns,
            self.metrics,
            grace_seconds=GRACE,
            watched_seconds=FlexPaces().watched,
            now=lambda: self.now,
            steady=lambda: self.steady,
        )

    async def make(self) -> None:
        live = await self.client.create(PERSISTENT_VOLUMES, manifest())
        self.uid = live.metadata.uid
        tags = {"pv-uid": self.uid, "claim": "ns/claim", "policy": "Delete"}
        target = self.root / "target"
        target.mkdir()
        self.driver.mount(Volume(name="pvc-1", size_bytes=1, tags=tags), str(target))
        (target / "file").write_text("tenant data")
        self.driver.unmount("pvc-1", str(target))

    async def delete(self) -> None:
        await self.client.delete(PERSISTENT_VOLUMES, "pvc-1", uid=self.uid)
        # pv-protection: there is no controller to take it off.
        nothing = MergePatch({"metadata": {"finalizers": None}})
        await self.client.patch(PERSISTENT_VOLUMES, "pvc-1", nothing)
        # As the role does before it lets an object go.
        self.driver.note("pvc-1", {"ended": self.uid})

    def later(self, seconds: float) -> None:
        self.now += seconds
        self.steady += seconds

    async def sweep(self, **there: str) -> Action:
        (action,) = await self.sweep_all(there)
        return action

    async def sweep_all(self, there: Mapping[str, str]) -> list[Action]:
        """Removals that begin with it end as well."""
        actions = await self.collector.sweep(there)
        async with asyncio.timeout(60):
            while self.collector.removals.busy:
                await asyncio.sleep(0.001)
        return actions

    def has_data(self) -> bool:
        return (self.root / "volumes/pvc-1/file").exists()

    def counted(self, name: str, **labels: str) -> float | None:
        return self.registry.get_sample_value(f"localvolume_flexvolume_{name}", labels)


@pytest.fixture
async def setting(tmp_path: Path) -> AsyncIterator[Setting]:
    (tmp_path / "volumes").mkdir()
    async with Sandbox(controllers=False) as sandbox:
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test") as client:
            one = Setting(sandbox, client, tmp_path)
            await one.make()
            yield one


async def due(setting: Setting) -> None:
    """Its PersistentVolume is gone for the whole grace period."""
    await setting.delete()
    assert isinstance(await setting.sweep(), NoteGone)
    setting.later(GRACE)


async def test_a_volume_goes_after_the_grace_period_and_it_is_told(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """E-FV-52: pvgc: unknown is purged, known is kept, the API's alone ignored."""
    caplog.set_level("INFO", logger="localvolume.flexvolume.collecting")
    assert isinstance(await setting.sweep(), Keep)
    await setting.delete()
    assert isinstance(await setting.sweep(), NoteGone)
    assert setting.counted("gone_volumes", fate="due") == 1
    setting.later(GRACE - 1)
    assert isinstance(await setting.sweep(), Keep)
    setting.later(1)
    assert setting.has_data()
    assert isinstance(await setting.sweep(), Remove)
    assert setting.driver.list_volumes() == []
    assert setting.counted("removed_total") == 1
    assert [r.getMessage()[:8] for r in caplog.records if "removed:" in r.getMessage()] == [
        "removed:"
    ]
    assert await setting.sweep_all({}) == []


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"status": 403}, id="forbidden"),
        pytest.param({"status": 500}, id="internal-error"),
        pytest.param({"status": 503}, id="unavailable"),
        pytest.param({"status": 404, "reason": "PageNotFound"}, id="a-proxys-404"),
        pytest.param({"status": 410}, id="gone-is-no-404"),
    ],
)
async def test_an_error_of_the_api_keeps_it(setting: Setting, fault: dict[str, Any]) -> None:
    await due(setting)
    setting.sandbox.faults.answer(**fault, verb="get", resource="persistentvolumes", times=None)
    for _ in range(2):
        assert isinstance(await setting.sweep(), Keep)
        setting.later(GRACE)
    assert setting.has_data()
    setting.sandbox.faults.clear()
    assert isinstance(await setting.sweep(), Remove)
    assert not setting.has_data()


async def test_it_is_asked_again_right_before_it_is_removed(setting: Setting) -> None:
    await due(setting)
    setting.sandbox.faults.answer(
        status=503, verb="get", resource="persistentvolumes", times=None, skip=1
    )
    assert isinstance(await setting.sweep(), Remove)
    assert setting.has_data()
    assert setting.counted("removed_total") == 0


async def test_a_removal_under_way_is_neither_waited_for_nor_begun_again(setting: Setting) -> None:
    await due(setting)
    await setting.collector.sweep({})
    async with setting.turns.of("pvc-1", 10.0):
        for _ in range(2):
            (action,) = await setting.collector.sweep({})
            assert isinstance(action, Remove)
        assert setting.has_data()
    # It may end before another sweep has listed it.
    await until_async(lambda: not setting.collector.removals.busy)
    assert not setting.has_data()
    assert (setting.counted("remove_failed_total"), setting.counted("removed_total")) == (0, 1)


async def test_another_object_of_its_name_keeps_it(setting: Setting) -> None:
    await due(setting)
    live = await setting.client.create(PERSISTENT_VOLUMES, manifest())
    assert live.metadata.uid != setting.uid
    assert isinstance(await setting.sweep(), ForgetGone)
    (listed,) = setting.driver.list_volumes()
    assert not {"gone-since", "ended"} & listed.tags.keys()
    setting.later(10 * GRACE)
    assert isinstance(await setting.sweep(), Keep)
    assert setting.has_data()


async def test_the_note_of_a_deletion_that_begins_meanwhile_stays(setting: Setting) -> None:
    """The end of an earlier day was undone; another one begins between the look and the act."""
    setting.driver.note("pvc-1", {"ended": setting.uid})
    delete = setting.client.delete(PERSISTENT_VOLUMES, "pvc-1", uid=setting.uid)
    async with setting.turns.of("pvc-1", 10.0):
        sweeping = asyncio.create_task(setting.sweep())
        asked = len(setting.sandbox.requests)
        async with asyncio.timeout(30):
            while len(setting.sandbox.requests) == asked:
                await asyncio.sleep(0.01)
        await delete
    assert isinstance(await sweeping, ForgetGone)
    (listed,) = setting.driver.list_volumes()
    assert listed.tags["ended"] == setting.uid


async def test_what_the_caller_has_seen_is_believed_only_to_be_there(setting: Setting) -> None:
    """W-03: A cache that has lost its objects, or their labels, removes nothing; elastic's did."""
    before = len(setting.sandbox.requests)
    assert isinstance(await setting.sweep(**{"pvc-1": setting.uid}), Keep)
    assert len(setting.sandbox.requests) == before
    for _ in range(3):
        assert isinstance(await setting.sweep(), Keep)
        setting.later(GRACE)
    assert setting.has_data()


async def test_a_policy_of_retain_keeps_it_for_good(setting: Setting) -> None:
    """W-04: elastic: Retain is ignored."""
    setting.driver.note("pvc-1", {"policy": "Retain"})
    await setting.delete()
    for _ in range(3):
        assert isinstance(await setting.sweep(), Keep)
        setting.later(GRACE)
    assert setting.has_data()
    assert setting.counted("gone_volumes", fate="kept") == 1


async def test_clocks_that_are_set_remove_nothing_early(setting: Setting) -> None:
    """W-37: Azure: orphans are removed without a grace period."""
    await setting.delete()
    assert isinstance(await setting.sweep(), NoteGone)
    setting.now += 100 * GRACE
    assert isinstance(await setting.sweep(), Keep)
    setting.now -= 200 * GRACE
    assert isinstance(await setting.sweep(), NoteGone)
    assert setting.has_data()


async def test_a_new_process_watches_for_itself(setting: Setting) -> None:
    await due(setting)
    setting.begin()
    assert isinstance(await setting.sweep(), Keep)
    setting.later(30)
    assert isinstance(await setting.sweep(), Remove)


async def test_what_is_mounted_stays_until_it_is_not(setting: Setting) -> None:
    await due(setting)
    target = str(setting.root / "target")
    tags = {"pv-uid": setting.uid, "claim": "ns/claim", "policy": "Delete"}
    (listed,) = setting.driver.list_volumes()
    setting.driver.mount(Volume(name="pvc-1", size_bytes=1, tags=tags), target)
    notes = {key: listed.tags[key] for key in ("gone-since", "ended")}
    setting.driver.note("pvc-1", notes)
    action = await setting.sweep()
    assert isinstance(action, Keep)
    assert "in use" in action.reason
    setting.driver.unmount("pvc-1", target)
    assert isinstance(await setting.sweep(), Remove)


async def test_nothing_unmarked_is_ever_listed_or_removed(setting: Setting) -> None:
    """E-FV-52, W-02: elastic's removed `lost+found`, and any stray directory."""
    for name in ("lost+found", "pvc-stray"):
        (setting.root / "volumes" / name).mkdir()
    await due(setting)
    assert isinstance(await setting.sweep(), Remove)
    setting.later(GRACE)
    assert await setting.sweep_all({}) == []
    left = {path.name for path in (setting.root / "volumes").iterdir() if path.is_dir()}
    assert left >= {"lost+found", "pvc-stray"}


# --- adoption ----------------------------------------------------------------------------------


async def adopting(setting: Setting) -> Callable[[], Awaitable[Adopted]]:
    labels = {marks.HOSTNAME_LABEL: NODE}
    node = await setting.client.create(NODES, {"metadata": {"name": NODE, "labels": labels}})
    facts = node_facts(NODE, node)
    assert isinstance(facts, NodeFacts)

    async def asked() -> Node:
        return node

    keeping = Keeping(
        client=setting.client,
        events=EventRecorder(setting.client, "test", NODE),
        workers=setting.workers,
        config=FlexVolumeConfig(driver="bindmount", names=NAMES),
        driver=setting.driver,
        turns=setting.turns,
        binding=Binding(setting.client, NODE, asked, lambda _: None),
        metrics=FlexMetrics(CollectorRegistry()),
        node_name=NODE,
        saw_volume=lambda _: None,
        saw_claim=lambda _: None,
    )
    return lambda: keeping.adopt(facts)


async def test_what_elastic_made_is_adopted_if_its_object_says_so(setting: Setting) -> None:
    root = setting.root / "volumes"
    for name in ("pvc-2", "pvc-3", "pvc-4", "lost+found"):
        (root / name).mkdir()
    await setting.client.create(PERSISTENT_VOLUMES, manifest("pvc-2"))
    await setting.client.create(PERSISTENT_VOLUMES, manifest("pvc-3", host="node-2"))
    adopt = await adopting(setting)
    adopted = await adopt()
    assert (adopted.names, adopted.complete) == (["pvc-2"], True)
    tags = {owned.name: owned.tags for owned in setting.driver.list_volumes()}
    assert tags.keys() == {"pvc-1", "pvc-2"}
    live = await setting.client.get(PERSISTENT_VOLUMES, "pvc-2")
    assert tags["pvc-2"]["pv-uid"] == live.metadata.uid
    assert tags["pvc-2"]["policy"] == "Delete"
    assert marks.FINALIZER in live.metadata.finalizers
    assert live.metadata.labels[marks.NODE_LABEL] == NODE
    other = await setting.client.get(PERSISTENT_VOLUMES, "pvc-3")
    assert marks.FINALIZER not in other.metadata.finalizers


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param({"status": 503, "verb": "get"}, id="get"),
        pytest.param({"status": 503, "verb": "patch"}, id="patch"),
        pytest.param({"status": 404, "verb": "get", "reason": "PageNotFound"}, id="a-proxys-404"),
    ],
)
async def test_an_error_of_the_api_adopts_nothing(setting: Setting, fault: dict[str, Any]) -> None:
    (setting.root / "volumes/pvc-2").mkdir()
    await setting.client.create(PERSISTENT_VOLUMES, manifest("pvc-2"))
    adopt = await adopting(setting)
    setting.sandbox.faults.answer(**fault, times=None)
    adopted = await adopt()
    assert (adopted.names, adopted.complete) == ([], False)
    assert {owned.name for owned in setting.driver.list_volumes()} == {"pvc-1"}
    setting.sandbox.faults.clear()
    assert (await adopt()).names == ["pvc-2"]


async def test_what_is_noted_and_cannot_be_read_is_left_alone_and_told_once(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where no object is left that would tell of it."""
    await setting.delete()
    record = setting.root / "volumes/.localvolume/flexvolumes/pvc-1.json"
    written = record.read_bytes()
    record.write_bytes(written[:20])
    for _ in range(3):
        assert await setting.sweep_all({}) == []
        setting.later(GRACE + 1)
    (said,) = [text for text in caplog.messages if "pvc-1" in text]
    assert said.startswith("left alone: the record of the volume pvc-1 cannot be read")
    record.write_bytes(written)
    assert isinstance(await setting.sweep(), NoteGone)
    assert setting.has_data()
