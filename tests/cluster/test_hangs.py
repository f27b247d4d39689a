"""What never answers: one entry, one directory, one cleaning waits, and nothing else does."""

import asyncio
import contextlib
import os
from dataclasses import replace
from typing import Any

import pytest

from localvolume.cleaning.paces import CleaningPaces
from localvolume.static.facts.survey import Survey
from tests.cluster.support_agent import Lab
from tests.host.support_devices import command
from tests.host.support_failing import dead_filesystem

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

HUNG = "localvolume_host_calls_hung"


@pytest.fixture(autouse=True)
def short_deadlines(lab: Lab, impatient: None) -> None:
    cleaning = CleaningPaces(step=0.5, first_slice=0.5)
    lab.hurry(entry=0.5, directory=0.5, cleaning=cleaning)


def test_a_dead_entry_stops_no_other(lab: Lab) -> None:
    """A dead disk or server, and a FIFO, which blocks who opens it: upstream's loop ends here."""
    fs = lab.add_class("fs")
    os.mkfifo(fs.path("fifo"))
    lab.mount(lab.disk(), fs.path("good"))
    with dead_filesystem(fs.path("dead")):
        lab.start()
        lab.published(fs, "good")
        lab.until(lambda: lab.logged("no answer from the host"), bool)
        lab.until(lambda: lab.metric(HUNG), lambda value: value == 1)
        for name in ("later", "latest"):
            lab.mount(lab.disk(), fs.path(name))
            lab.published(fs, name)
        lab.settle()
        # However often it is looked at, one thread waits for it, not one for each look.
        # (With deadlines this short, what is well may take longer now and then, and is then said to
        # be unknown for a moment.)
        lab.until(lambda: lab.metric(HUNG), lambda value: value == 1)
        lab.until(lambda: lab.held(fs).get("unknown"), lambda held: held == 1)
        lab.until(lambda: lab.http("/healthz")[0], lambda status: status == 200)
        lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)
        assert len(lab.volumes()) == 3
    lab.until(lambda: lab.metric(HUNG), lambda value: value == 0)
    lab.mount(lab.disk(), fs.path("dead"))
    lab.published(fs, "dead")


def test_a_volume_whose_disk_died_is_neither_cleaned_nor_withdrawn(lab: Lab) -> None:
    fs = lab.add_class("fs")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in ("released", "offered")}
    lab.start(vanished_grace=0)
    volumes = {name: lab.published(fs, name) for name in places}
    lab.stop()
    volumes["released"] = lab.released(volumes["released"])
    (places["released"] / "secret").write_text("tenant")
    with contextlib.ExitStack() as stack:
        for path in places.values():
            stack.enter_context(dead_filesystem(path))
        lab.start(vanished_grace=0)
        lab.event(volumes["released"]["metadata"]["name"], "VolumeFailedDelete", "no answer")
        for volume in volumes.values():
            lab.stays(volume)
    lab.published(fs, "released", unlike=volumes["released"]["metadata"]["uid"])
    assert not (places["released"] / "secret").exists()
    lab.stays(volumes["offered"])


def test_a_dead_discovery_directory(lab: Lab) -> None:
    fs, dead = lab.add_class("fs"), lab.add_class("dead")
    lab.mount(lab.disk(), fs.path("one"))
    with dead_filesystem(dead.directory):
        lab.start()
        lab.published(fs, "one")
        lab.until(
            lambda: lab.http("/ready"),
            lambda got: (got[0], dead.name in got[1], fs.name in got[1]) == (500, True, False),
        )
        lab.mount(lab.disk(), fs.path("two"))
        lab.published(fs, "two")
    lab.mount(lab.disk(), dead.path("one"))
    lab.published(dead, "one")
    lab.until(lambda: lab.http("/ready"), lambda got: got[0] == 200)


def test_a_cleaning_that_hangs_in_the_kernel(lab: Lab) -> None:
    """A frozen filesystem lets nothing be deleted, and nothing that tries be killed."""
    fs = lab.add_class("fs")
    places = {name: lab.mount(lab.disk(), fs.path(name)) for name in ("frozen", "good")}
    lab.start()
    volumes = {name: lab.published(fs, name) for name in places}
    claims = {name: lab.bound(volume) for name, volume in volumes.items()}
    for path in places.values():
        (path / "secret").write_text("tenant")
    command("fsfreeze", "--freeze", places["frozen"])
    try:
        lab.delete_claim(claims["frozen"])
        name = volumes["frozen"]["metadata"]["name"]
        lab.event(name, "VolumeFailedDelete", "no answer from the host")
        lab.event(name, "VolumeFailedDelete", "still stuck")
        lab.delete_claim(claims["good"])
        lab.published(fs, "good", unlike=volumes["good"]["metadata"]["uid"])
        assert not (places["good"] / "secret").exists()
        assert (
            lab.volumes_at(fs, "frozen")[0]["metadata"]["uid"]
            == (volumes["frozen"]["metadata"]["uid"])
        )
        lab.until(lambda: lab.http("/healthz")[0], lambda status: status == 200)
    finally:
        command("fsfreeze", "--unfreeze", places["frozen"])
    lab.published(fs, "frozen", unlike=volumes["frozen"]["metadata"]["uid"])
    assert not (places["frozen"] / "secret").exists()


def test_a_look_that_never_ends_is_told_to_the_kubelet(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fs = lab.add_class("fs")
    lab.paces = replace(lab.paces, stuck=2.0)
    lab.start()
    # A machine that is busy may take that long for a look that does end.
    lab.until(lambda: lab.http("/healthz")[0], lambda status: status == 200)
    forever = asyncio.Event

    async def look(*_: Any) -> None:
        await forever().wait()

    monkeypatch.setattr(Survey, "look", look)
    fs.path("stray").touch()
    lab.until(lambda: lab.http("/healthz"), lambda got: got[0] == 500 and "stuck" in got[1])
