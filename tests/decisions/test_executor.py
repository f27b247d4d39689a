"""When an act is tried again whose facts had changed meanwhile: ever later, and never for good."""

import asyncio
import logging
import time
from typing import Any

import pytest
from msgspec import structs

from localvolume.kube.errors import LookAgain, NotThere
from localvolume.kube.events import EventRecorder
from localvolume.static.executor import Executor
from localvolume.static.model import Action, Hold, Keep
from localvolume.static.paces import StaticPaces
from localvolume.static.preconditions import Superseded
from tests.decisions.support_leaping import at_once
from tests.decisions.support_plan import filesystem, volume_of


class Overtaken:
    """Acts that do not find their facts as they were planned for, but once where it `ends`."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.tried: list[float] = []
        self.ends = False

    async def do(self, _action: Action, _around: Any) -> None:
        self.tried.append(round(asyncio.get_running_loop().time(), 1))
        if not self.ends:
            raise self.error
        self.ends = False


@pytest.mark.parametrize(
    "error", [Superseded("it changed"), LookAgain("it changed"), NotThere("it is gone")]
)
def test_what_is_overtaken_is_tried_ever_later(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    acts = Overtaken(error)

    async def run() -> None:
        """A role that begins whenever it is woken, for five seconds."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        # By this clock waits are measured; that of this loop passes at once.
        monkeypatch.setattr(time, "monotonic", loop.time)
        # Nothing is said.
        executor = Executor(acts, None, None, wake=woken.set, paces=StaticPaces())  # type: ignore[arg-type]
        loop.call_later(2.5, setattr, acts, "ends", True)
        try:
            async with asyncio.timeout(5.0):
                while True:
                    woken.clear()
                    executor.begin([Action("disk", "it is to be done")], None)  # type: ignore[arg-type]
                    await woken.wait()
        except TimeoutError:
            pass

    at_once(run())
    # After 0.2, 0.4, 0.8 and 1.6 s; and what has succeeded begins anew with short waits.
    assert acts.tried == [0.0, 0.2, 0.6, 1.4, 3.0, 3.0, 3.2, 3.6, 4.4]


def test_what_is_read_once_more_is_not_told_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "localvolume.static.executor")
    # Nothing is done.
    executor = Executor(None, None, None, wake=lambda: None, paces=StaticPaces())  # type: ignore[arg-type]
    reading = Hold("/disk", "its content is still being read", "reading")
    full = Hold("/disk", "it holds data", "not-empty")
    for action in (reading, reading, full, reading, full):
        executor.begin([action], None)  # type: ignore[arg-type]
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    assert told == [
        ("INFO", "/disk is left alone: its content is still being read"),
        ("WARNING", "/disk is left alone: it holds data"),
    ]


class Said(EventRecorder):
    """Keeps what is said instead of sending it."""

    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def event(self, about: Any, type_: str, reason: str, message: str) -> None:
        self.said.append((about.name, f"{type_} {reason}: {message}"))


def test_what_was_told_of_a_volume_is_over_once_it_is_well() -> None:
    events = Said()
    executor = Executor(None, events, None, wake=lambda: None, paces=StaticPaces())  # type: ignore[arg-type]
    entry = filesystem()
    volume, other = volume_of(entry), volume_of(entry)
    other = structs.replace(other, metadata=structs.replace(other.metadata, uid="another"))
    name = volume.metadata.name
    gone = Hold("/disk", "it is not mounted", "vanished", volume, event="VolumeVanished")
    # It may be gone still, as nobody looked: it is being deleted, and its claim is there.
    unseen = Keep("/disk", "its claim is still there", volume)
    well = Keep("/disk", "it is offered", volume, entry)
    told = (name, "Warning VolumeVanished: it is not mounted")
    over = (name, "Normal VolumePutRight: the agent no longer leaves it alone: it is offered")
    for look, said in (
        ([well], []),
        ([gone], [told]),
        ([unseen], []),
        ([well], [over]),
        ([well], []),
        # Of the object that is there now, nothing was told.
        ([gone], [told]),
        ([Keep("/disk", "it is offered", other, entry)], []),
        ([well], []),
        # Two are about that entry, and one of them is left alone: that is not over.
        ([gone, well], [told]),
        ([well], [over]),
        # Its entry is not there any more: nobody knows.
        ([gone], [told]),
        ([], []),
        ([well], []),
    ):
        events.said.clear()
        executor.begin(look, None)  # type: ignore[arg-type]
        assert events.said == said, look


def test_that_it_is_over_is_said_also_an_hour_later() -> None:
    events = Said()
    executor = Executor(None, events, None, wake=lambda: None, paces=StaticPaces())  # type: ignore[arg-type]
    entry = filesystem()
    volume = volume_of(entry)
    gone = Hold("/disk", "it is not mounted", "vanished", volume, event="VolumeVanished")
    executor.begin([gone], None)  # type: ignore[arg-type]
    executor.say_again()
    executor.begin([Keep("/disk", "it is offered", volume, entry)], None)  # type: ignore[arg-type]
    assert [text.partition(":")[0] for _, text in events.said] == [
        "Warning VolumeVanished",
        "Normal VolumePutRight",
    ]
