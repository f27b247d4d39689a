"""Clocks of the day that jump ahead by a year: what has a period to be undone is not lost by it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from localvolume.volumes.moments import written
from localvolume.volumes.periods import Clock
from tests.cluster.support_controller import LOST, Ground
from tests.cluster.support_dynamic import DynamicLab, Volume
from tests.suite.api import VOLUMES

YEAR = 365 * 86400.0
HOUR = 3600.0

RELEASED = "localvolume.dev/released-since"
KEPT = "localvolume.dev/kept-until"


@dataclass
class Jumping:
    """The clocks of one machine. `jump`: so far the clock of the day was set ahead (seconds),
    `passed`: so much time has gone by beyond what really did."""

    jump: float = 0.0
    passed: float = 0.0

    @property
    def clock(self) -> Clock:
        return Clock(
            lambda: time.time() + self.jump + self.passed, lambda: time.monotonic() + self.passed
        )


def lost(lab: DynamicLab, clocks: Jumping, period: str) -> tuple[Volume, Path]:
    """A volume whose claim was deleted by mistake, with the file that is in it."""
    lab.pool()
    cls = lab.storage_class(parameters={"undoPeriod": period})
    lab.clock = clocks.clock
    lab.start()
    claim = lab.claim(cls)
    volume = lab.made(claim)
    rows = lab.path_of(volume) / "rows"
    rows.write_text("precious")
    lab.delete(claim)
    found = lab.until(
        lambda: lab.volume(volume["metadata"]["name"]),
        lambda v: v and RELEASED in v["metadata"]["annotations"],
    )
    assert found is not None
    return found, rows


def stays(lab: DynamicLab, volume: Volume, rows: Path) -> None:
    lab.stays(volume)
    assert rows.read_text() == "precious"


@pytest.mark.needs("root", "loop", "ext4", "controlplane")
def test_a_jump_of_the_nodes_clock_ends_no_time_to_undo(dynamic: DynamicLab) -> None:
    clocks = Jumping()
    volume, rows = lost(dynamic, clocks, "1h")
    clocks.jump = YEAR
    stays(dynamic, volume, rows)
    text = "this machine's clock is far ahead of the API server's"
    dynamic.event(volume["metadata"]["name"], "VolumeFailedDelete", text)
    assert dynamic.logged("the clocks of this node and of the API server are far apart")
    # An agent that has seen none of it believes that clock no more.
    dynamic.stop()
    dynamic.start()
    stays(dynamic, volume, rows)
    clocks.passed = HOUR - 600.0
    stays(dynamic, volume, rows)
    clocks.passed += 600.0
    dynamic.settle()
    dynamic.gone(volume)


@pytest.mark.needs("root", "loop", "ext4", "controlplane")
def test_what_began_by_a_clock_that_was_behind_is_not_over_once_it_is_right(
    dynamic: DynamicLab,
) -> None:
    """A node that boots with a clock of long ago marks the volume before NTP has set it."""
    clocks = Jumping(jump=-YEAR)
    volume, rows = lost(dynamic, clocks, "1h")
    clocks.jump = 0.0
    stays(dynamic, volume, rows)
    dynamic.stop()
    dynamic.start()
    stays(dynamic, volume, rows)


@pytest.mark.needs("root", "loop", "ext4", "controlplane")
def test_clocks_that_agree_end_it_for_an_agent_that_saw_nothing(dynamic: DynamicLab) -> None:
    clocks = Jumping()
    volume, rows = lost(dynamic, clocks, "1h")
    dynamic.stop()
    # As if it had been marked two hours ago.
    uid = volume["spec"]["claimRef"]["uid"]
    marks = {RELEASED: time.time() - 2 * HOUR, KEPT: time.time() - HOUR}
    annotations = {key: f"{written(then)} {uid}" for key, then in marks.items()}
    name = volume["metadata"]["name"]
    dynamic.patch(name, {"metadata": {"annotations": annotations}})
    clocks.jump = -YEAR
    dynamic.start()
    stays(dynamic, volume, rows)
    text = "the API server's is far ahead of this machine's"
    dynamic.event(name, "VolumeFailedDelete", text)
    dynamic.stop()
    clocks.jump = 0.0
    dynamic.start()
    dynamic.gone(volume)


# --- nodes that are lost -------------------------------------------------------------------------


@pytest.mark.needs("controlplane")
def test_a_jump_of_the_leaders_clock_ends_no_time_for_a_node_to_return(ground: Ground) -> None:
    clocks = Jumping()
    node = ground.node()
    used, held = ground.released(ground.volume(node)), ground.volume(node)
    claim = ground.bound(held)
    ground.start(ground.cls, claim_delay=HOUR, clock=clocks.clock)
    ground.remove_node(node)
    ground.marked(used)
    ground.marked(held)
    clocks.jump = YEAR
    text = "this machine's clock is far ahead of the API server's"
    for volume in (used, held):
        ground.event(volume, "ReferencedNodeDeleted", text)
    ground.stays(used, held, claim)
    # A leader that has seen none of it believes that clock no more.
    ground.stop()
    ground.start(ground.cls, claim_delay=HOUR, clock=clocks.clock)
    ground.stays(used, held, claim)
    clocks.passed = HOUR - 600.0
    ground.stays(used, held, claim)
    clocks.passed += 600.0
    for thing in (used, claim):
        ground.gone(thing)


@pytest.mark.needs("controlplane")
def test_a_loss_that_was_noted_by_a_clock_that_was_behind_is_not_long_ago(ground: Ground) -> None:
    clocks = Jumping(jump=-YEAR)
    node = ground.node()
    used = ground.released(ground.volume(node))
    ground.start(ground.cls, clock=clocks.clock)
    ground.remove_node(node)
    assert ground.marked(used) > written(time.time() - HOUR)
    clocks.jump = 0.0
    ground.stop()
    ground.start(ground.cls, clock=clocks.clock)
    ground.stays(used)


@pytest.mark.needs("controlplane")
def test_clocks_that_agree_end_it_for_a_leader_that_saw_nothing(ground: Ground) -> None:
    clocks = Jumping(jump=-YEAR)
    used = ground.released(ground.volume(f"{ground.unique}-lost"))
    mark = {"metadata": {"annotations": {LOST: written(time.time() - 2 * HOUR)}}}
    ground.patch(f"{VOLUMES}/{used['metadata']['name']}", mark)
    ground.start(ground.cls, clock=clocks.clock)
    ground.stays(used)
    ground.stop()
    clocks.jump = 0.0
    ground.start(ground.cls, clock=clocks.clock)
    ground.gone(used)
