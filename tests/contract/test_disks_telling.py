"""What an agent writes of its raw disks: when, how often, and what becomes of failures."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from localvolume.disks.plan.told import Telling, manifest, note_of, object_name
from localvolume.disks.telling import DisksTelling
from localvolume.kube.access.auth import find_access
from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client, MergePatch
from localvolume.kube.errors import ApiError
from localvolume.kube.informer import Informer
from localvolume.kube.kinds import STORAGE_CAPACITIES
from localvolume.kube.objects import CSIStorageCapacity, Node, OwnerReference
from localvolume.kube.ownpod import OwnPod
from localvolume.volumes.manifest import NodeFacts
from localvolume_lab.sandbox import Sandbox
from tests.decisions.support_disks import disk, planned
from tests.suite.until import until_async

ANNOTATION = "localvolume.dev/disks"
LABELS = {"localvolume.dev/node": "n1", "csi.storage.k8s.io/managed-by": "localvolume-disks"}
WATCHED = ",".join(f"{key}={value}" for key, value in LABELS.items())
IN_VAIN = ("delete", "NotFound")
META = {"name": "n1", "uid": "uid-1", "labels": {"kubernetes.io/hostname": "n1"}}


@dataclass
class Scene:
    """A node's role, an API server in memory, and the writes that were made so far."""

    sandbox: Sandbox
    client: Client
    telling: DisksTelling
    writes: list[tuple[str, str]] = field(default_factory=list)
    """The verb, and the error's reason or ""."""

    async def there(self) -> list[CSIStorageCapacity]:
        return list((await self.client.list_page(STORAGE_CAPACITIES)).items)

    async def notes(self) -> list[str]:
        return [one.metadata.annotations.get(ANNOTATION, "") for one in await self.there()]

    async def until_told(self, *names: str) -> None:
        def fits(notes: list[str]) -> bool:
            return len(notes) == 1 and all(f'"/dev/{name}"' in notes[0] for name in names)

        await until_async(self.notes, fits)

    async def until_written(self, *writes: str) -> None:
        """The verb of each, and why it was refused; what is seen to be done is answered later.

        The watch may show what is deleted a moment longer; then it is deleted in vain.
        """
        await until_async(
            lambda: [" ".join(one).strip() for one in self.writes if one != IN_VAIN],
            lambda found: found == [*writes],
        )


@contextlib.asynccontextmanager
async def scene(
    tmp_path: Path, between: float = 0.0, watched: str = WATCHED, *, refused: bool = False
) -> AsyncIterator[Scene]:
    made: list[Scene] = []

    def seen(verb: str, kind: Any, _: float, error: ApiError | None, *__: object) -> None:
        if verb in ("create", "patch", "delete") and kind is STORAGE_CAPACITIES and made:
            made[0].writes.append((verb, "" if error is None else error.reason))

    async with Sandbox(controllers=False) as sandbox:
        if refused:
            sandbox.faults.answer(403, verb="list", times=None)
        access = find_access(str(sandbox.kubeconfig(tmp_path / "config")))
        async with Client(access, user_agent="test", on_request=seen) as client:
            informer = Informer(
                client,
                STORAGE_CAPACITIES,
                namespace="default",
                label_selector=watched,
                on_change=lambda *_: telling.changed(),
            )
            telling = DisksTelling(
                client=client,
                informer=informer,
                namespace="default",
                nodes={"n1": msgspec.convert({"metadata": META}, Node)},
                own_pod=OwnPod(client, "default", ""),
                node_name="n1",
                between=between,
            )
            made.append(Scene(sandbox, client, telling))
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(informer.run()), group.create_task(telling.run())]
                yield made[0]
                for task in tasks:
                    task.cancel()


async def test_it_is_written_when_it_changes_and_only_then(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        for _ in range(5):
            here.telling.tell(planned(disk("sda")))
            here.telling.changed()
            await asyncio.sleep(0.05)
        here.telling.tell(planned(disk("sda"), disk("sdb")))
        await here.until_told("sda", "sdb")
        await here.until_written("create", "patch")
        (there,) = await here.there()
        assert there.capacity is None
        assert [one.kind for one in there.metadata.owner_references] == ["Node"]


async def test_changes_wait_for_their_time_and_the_last_one_counts(tmp_path: Path) -> None:
    async with scene(tmp_path, between=1.5) as here:
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        began = time.monotonic()
        for number in range(30):
            here.telling.tell(planned(disk(f"sd{number}")))
            await asyncio.sleep(0.1)
        await here.until_told("sd29")
        assert len(here.writes) <= 2 + (time.monotonic() - began) / 1.5


async def test_it_is_taken_back_once_no_disks_are_configured(tmp_path: Path) -> None:
    """Soon, whatever else waits for its time."""
    async with scene(tmp_path, between=3600.0) as here:
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        here.telling.tell(None)
        await until_async(here.there, lambda found: found == [])
        await here.until_written("create", "delete")


async def test_a_watch_that_does_not_tell_of_a_deletion_makes_no_storm(tmp_path: Path) -> None:
    async with scene(tmp_path, between=3600.0, watched="no=object") as here:
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        began = time.monotonic()
        here.telling.tell(None)
        await until_async(lambda: len(here.writes), lambda count: count > 2)
        await asyncio.sleep(0.5)
        # The first of them deletes it, and each further one, a second later, is in vain.
        assert len(here.writes) <= 2 + (time.monotonic() - began) / 1.0


async def test_while_the_node_cannot_be_seen_what_was_told_stays(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        await here.until_written("create")
        here.telling.nodes = {}
        here.telling.changed()
        await asyncio.sleep(0.5)
        assert here.writes == [("create", "")]


async def test_nothing_is_taken_back_before_the_first_look_at_the_disks(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        body = {
            "metadata": {"name": "of-before", "namespace": "default", "labels": LABELS},
            "storageClassName": "localvolume-disks",
        }
        await here.client.create(STORAGE_CAPACITIES, body)
        here.writes.clear()
        await until_async(lambda: len(here.telling.informer.items), lambda count: count == 1)
        here.telling.changed()
        await asyncio.sleep(0.3)
        assert here.writes == []
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        await here.until_written("delete", "create")


async def test_what_others_write_into_it_is_put_right(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        (there,) = await here.there()
        lie = MergePatch({"metadata": {"annotations": {ANNOTATION: "{}"}}})
        await here.client.patch(STORAGE_CAPACITIES, there.metadata.name, lie, "default")
        await here.until_told("sda")


async def test_another_nodes_agent_cannot_take_its_name(tmp_path: Path) -> None:
    """The admission policies hold an agent to its own label, and to no name."""
    async with scene(tmp_path) as here:
        theirs = {**LABELS, "localvolume.dev/node": "n2"}
        body = {
            "metadata": {"name": object_name("n1"), "namespace": "default", "labels": theirs},
            "storageClassName": "localvolume-disks",
        }
        await here.client.create(STORAGE_CAPACITIES, body)
        here.telling.tell(planned(disk("sda")))
        found = await until_async(here.there, lambda found: len(found) == 2)
        (told,) = (one for one in found if one.metadata.labels == LABELS)
        assert '"/dev/sda"' in told.metadata.annotations[ANNOTATION]
        here.telling.tell(planned(disk("sdb")))
        await until_async(here.notes, lambda notes: any('"/dev/sdb"' in one for one in notes))
        await here.until_written("create", "create AlreadyExists", "create", "patch")


async def test_what_somebody_keeps_from_going_keeps_no_name_either(tmp_path: Path) -> None:
    async with scene(tmp_path) as here:
        meta = {"name": object_name("n1"), "namespace": "default", "labels": LABELS}
        body = {
            "metadata": {**meta, "finalizers": ["example.com/kept"]},
            "storageClassName": "localvolume-disks",
        }
        uid = (await here.client.create(STORAGE_CAPACITIES, body)).metadata.uid
        await here.client.delete(STORAGE_CAPACITIES, object_name("n1"), "default", uid=uid)
        here.telling.tell(planned(disk("sda")))
        await until_async(here.notes, lambda notes: any('"/dev/sda"' in one for one in notes))
        assert len(await here.there()) == 2


async def test_its_own_of_which_the_watch_did_not_tell_yet_is_known_by_its_name(
    tmp_path: Path,
) -> None:
    """An agent before this one made it: one object stays one."""
    async with scene(tmp_path, watched="no=object") as here:
        await here.telling.informer.synced.wait()
        body = {
            "metadata": {"name": object_name("n1"), "namespace": "default", "labels": LABELS},
            "storageClassName": "localvolume-disks",
        }
        await here.client.create(STORAGE_CAPACITIES, body)
        here.telling.tell(planned(disk("sda")))
        await here.until_told("sda")
        # It did not belong to the Node, so it is made anew.
        await here.until_written("create", "create AlreadyExists", "delete", "create")


async def test_once_nothing_is_to_be_written_a_failure_delays_nothing_any_more(
    tmp_path: Path,
) -> None:
    async with scene(tmp_path, watched="no=object") as here:
        here.telling._runner.backoff = lambda: Backoff(3600.0, 3600.0, spread=0.0)
        await here.telling.informer.synced.wait()
        # An agent before this one made it, which the watch did not tell of yet.
        facts = NodeFacts("n1", "uid-1", "n1")
        owner = OwnerReference(api_version="v1", kind="Node", name="n1", uid="uid-1")
        plan = planned(disk("sda"))
        body = manifest(Telling(note_of(plan), facts, owner), "default")
        await here.client.create(STORAGE_CAPACITIES, body)
        here.telling.tell(plan)
        await until_async(lambda: len(here.telling.informer.items) == 1)
        looks = here.telling.loop.looks
        here.telling.changed()
        await until_async(lambda: here.telling.loop.looks > looks)
        here.telling.tell(planned(disk("sdb")))
        await here.until_told("sdb")
        await here.until_written("create", "create AlreadyExists", "patch")


async def test_that_it_may_not_be_read_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with scene(tmp_path, refused=True):
        await until_async(lambda: "this node's raw disks are not published: " in caplog.text)


@pytest.mark.parametrize("status", [403, 500])
async def test_a_failure_is_said_once_and_tried_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    with caplog.at_level(logging.WARNING, "localvolume.disks"):
        async with scene(tmp_path) as here:
            fault = here.sandbox.faults.answer(status, verb="create", times=2)
            here.telling.tell(planned(disk("sda")))
            await here.until_told("sda")
            assert fault.hits == 2
    assert len(caplog.records) == 1
    assert "publishes this node's raw disks again" in caplog.text
