"""FlexVolume's collector and adoption on a host that fails, or changes while they look: kept, said,
and tried again."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from localvolume.flexvolume.binding import Binding
from localvolume.flexvolume.driver import Owned
from localvolume.flexvolume.drivers.bindmount import BindDriver
from localvolume.flexvolume.plan.collect import Keep, NoteGone, Remove
from localvolume.flexvolume.protocol import Refused
from localvolume.kube.kinds import NODES, PERSISTENT_VOLUMES
from localvolume.volumes import marks
from tests.contract.test_flex_collecting import NODE, Setting, adopting, due, manifest, setting
from tests.host.support_mounts import MS_BIND, MS_RDONLY, MS_REMOUNT, mount, umount

__all__ = ["setting"]

pytestmark = pytest.mark.needs("root")


@contextmanager
def read_only(where: Path) -> Iterator[None]:
    """As a filesystem becomes that has found an error in itself."""
    mount(str(where), str(where), flags=MS_BIND)
    try:
        mount("none", str(where), flags=MS_REMOUNT | MS_BIND | MS_RDONLY)
        yield
    finally:
        umount(str(where))


async def test_what_cannot_be_noted_is_not_taken_for_noted(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    """The grace period begins when it is on disk that it has begun."""
    await setting.delete()
    with read_only(setting.root / "volumes"):
        assert isinstance(await setting.sweep(), NoteGone)
        assert "not done: " in caplog.text
        setting.later(600)
        assert isinstance(await setting.sweep(), NoteGone)
    assert isinstance(await setting.sweep(), NoteGone)
    assert isinstance(await setting.sweep(), Keep)
    assert setting.counted("remove_failed_total") == 0
    assert setting.has_data()


async def test_a_removal_that_fails_is_counted_said_and_tried_again(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    await due(setting)
    with read_only(setting.root / "volumes"):
        assert isinstance(await setting.sweep(), Remove)
    assert "not done: " in caplog.text
    assert (setting.counted("remove_failed_total"), setting.counted("removed_total")) == (1, 0)
    assert setting.has_data()
    assert isinstance(await setting.sweep(), Remove)
    assert (setting.counted("remove_failed_total"), setting.counted("removed_total")) == (1, 1)


async def test_a_mistake_of_ours_about_one_volume_is_said_and_waits(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    class Mistaken(BindDriver):
        def remove(self, volume: Owned) -> None:
            raise ZeroDivisionError("a mistake")

    setting.driver = Mistaken(str(setting.root / "volumes"))
    setting.begin()
    await due(setting)
    for _ in range(2):
        assert isinstance(await setting.sweep(), Remove)
        assert caplog.text.count("not removed: unexpected") == 1
    assert (setting.counted("remove_failed_total"), setting.counted("removed_total")) == (1, 0)
    assert setting.has_data()


async def test_its_end_waits_for_a_removal_that_is_with_the_host(setting: Setting) -> None:
    """Another configuration's driver must not work on that volume meanwhile."""
    begun, goes_on = threading.Event(), threading.Event()

    class Slow(BindDriver):
        def remove(self, volume: Owned) -> None:
            begun.set()
            assert goes_on.wait(60)
            super().remove(volume)

    setting.driver = Slow(str(setting.root / "volumes"))
    setting.begin()
    await due(setting)
    await setting.collector.sweep({})
    assert await asyncio.to_thread(begun.wait, 60)
    stopping = asyncio.create_task(setting.collector.stop())
    done, _ = await asyncio.wait({stopping}, timeout=0.3)
    assert not done
    assert setting.has_data()
    goes_on.set()
    async with asyncio.timeout(60):
        await stopping
    assert not setting.has_data()


# --- adoption ------------------------------------------------------------------------------------


async def test_what_goes_while_it_is_adopted_is_not_said_to_be(setting: Setting) -> None:
    """Its object has our marks by then, and so its end is heard of."""
    directory = setting.root / "volumes/pvc-2"
    directory.mkdir()
    await setting.client.create(PERSISTENT_VOLUMES, manifest("pvc-2"))
    adopt = await adopting(setting)

    def gone(verb: str, *_: object) -> None:
        if verb == "patch":
            shutil.rmtree(directory)

    setting.client.on_request = gone
    adopted = await adopt()
    assert (adopted.names, adopted.complete) == ([], True)
    assert {owned.name for owned in setting.driver.list_volumes()} == {"pvc-1"}
    live = await setting.client.get(PERSISTENT_VOLUMES, "pvc-2")
    assert marks.FINALIZER in live.metadata.finalizers


async def test_to_a_node_without_a_hostname_nothing_is_bound(setting: Setting) -> None:
    """Its affinity would name nobody."""
    await setting.client.create(NODES, {"metadata": {"name": NODE}})
    live = await setting.client.create(PERSISTENT_VOLUMES, manifest("pvc-2"))
    binding = Binding(setting.client, NODE, lambda: setting.client.get(NODES, NODE), lambda _: None)
    with pytest.raises(Refused, match=r"'node-1' has no label kubernetes\.io/hostname"):
        await binding.adopt(live)
    assert (await setting.client.get(PERSISTENT_VOLUMES, "pvc-2")) == live
