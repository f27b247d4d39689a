"""S13: a disk that is not offered yet and never answers kept all others from being offered."""

import contextlib
from collections.abc import Iterator

import pytest

from localvolume.static.paces import StaticPaces
from tests.cluster.support_agent import Class, Lab
from tests.faults.test_stop import _stopped as stopped
from tests.host.support_dead import DeadDisk, dead_disk
from tests.host.support_failing import dead_filesystem

pytestmark = [
    pytest.mark.needs("root", "loop", "ext4", "fuse", "controlplane"),
    pytest.mark.usefixtures("impatient"),
]

MANY = 12
"""More than the threads that all of the agent shares."""


@pytest.fixture
def dead(lab: Lab) -> Iterator[DeadDisk]:
    """A disk that never answers, however long it is waited for."""
    lab.hurry(entry=3600.0, patience=StaticPaces().patience)
    with dead_disk() as disk:
        yield disk
        # Before the disk goes: it may still be read.
        disk.answer()
        lab.stop()


def offer_dead(lab: Lab, dead: DeadDisk) -> Class:
    raw = lab.add_class("raw", volumeMode="Block")
    lab.link(dead.device, raw.path("dead"))
    return raw


def goes_round(lab: Lab, fs: Class) -> None:
    """A new disk is offered, used, cleaned and offered again."""
    where = lab.mount(lab.disk(), fs.path("good"))
    first = lab.published(fs, "good")
    claim = lab.bound(first)
    (where / "secret").write_text("tenant")
    lab.delete_claim(claim)
    lab.published(fs, "good", unlike=first["metadata"]["uid"])
    assert not (where / "secret").exists()


def is_well(lab: Lab) -> None:
    lab.until(lambda: lab.http("/healthz")[0], lambda status: status == 200)
    lab.until(lambda: lab.http("/ready")[0], lambda status: status == 200)


def test_while_a_raw_disk_does_not_answer_others_are_offered(lab: Lab, dead: DeadDisk) -> None:
    raw, fs = offer_dead(lab, dead), lab.add_class("fs")
    lab.start()
    lab.link(lab.raw_disk(), raw.path("good"))
    lab.published(raw, "good")
    goes_round(lab, fs)
    lab.holds(raw, {"reading": 1})
    lab.until(lambda: lab.logged("its content is still being read"), bool)
    is_well(lab)
    lab.settle()
    assert dead.asked(), "it answered"
    assert not lab.volumes_at(raw, "dead")
    dead.answer()
    lab.published(raw, "dead")
    lab.holds(raw, {})


def test_however_many_do_not_answer(lab: Lab, dead: DeadDisk) -> None:
    raw, fs = offer_dead(lab, dead), lab.add_class("fs")
    with contextlib.ExitStack() as stack:
        for number in range(MANY):
            stack.enter_context(dead_filesystem(fs.path(f"dead-{number}")))
        lab.start()
        goes_round(lab, fs)
        lab.holds(fs, {"reading": MANY})
        is_well(lab)
        assert len(lab.volumes()) == 1
    lab.holds(fs, {"gone": MANY})
    lab.holds(raw, {"reading": 1})


def test_one_that_dies_is_read_once_at_a_time(lab: Lab, dead: DeadDisk) -> None:
    raw = offer_dead(lab, dead)
    lab.start()
    lab.until(dead.asked, bool)
    # udev, too, may have asked what has come: by now it has.
    lab.holds(raw, {"reading": 1})
    lab.settle()
    asked = dead.asked()
    for _ in range(3):
        lab.settle()
    lab.holds(raw, {"reading": 1})
    assert dead.asked() == asked


def test_it_is_stopped_as_fast_as_ever(lab: Lab, dead: DeadDisk) -> None:
    raw = offer_dead(lab, dead)
    agent = lab.start_process()
    lab.until(dead.asked, bool)
    lab.holds(raw, {"reading": 1})
    assert stopped(agent) < 20
    assert "Traceback" not in agent.log.read_text()
    lab.agent = None
