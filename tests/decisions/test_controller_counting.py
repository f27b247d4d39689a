"""What a leader remembers of the time for which nodes are lost, and when that begins anew."""

from __future__ import annotations

from localvolume.controller.model import Policy
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.volumes.counting import Counting
from localvolume.kube.http.serverclock import ServerClock
from localvolume.volumes.periods import NOBODY, Clock, Moment
from tests.decisions.support_controller import AN_HOUR_AGO, JUST_NOW, NOW, volume

DATE = "Fri, 15 Jan 2027 08:00:00 GMT"


class Clocks:
    def __init__(self) -> None:
        self.day, self.steady = NOW, 100.0
        self.server = ServerClock(lambda: self.steady)
        clock = Clock(lambda: self.day, lambda: self.steady)
        self.counting = Counting(Policy(), clock, self.server)

    def seen(self, lost: str | None = AN_HOUR_AGO) -> float:
        return self.counting.facts(Nodes(()), volume(lost=lost)).witnessed.seconds


def test_it_counts_for_itself_while_the_mark_is_the_same() -> None:
    clocks = Clocks()
    assert clocks.seen() == 0.0
    clocks.steady += 50.0
    assert clocks.seen() == 50.0
    assert clocks.seen(JUST_NOW) == 0.0


def test_it_begins_anew_once_the_nodes_were_there_or_the_volume_was_gone() -> None:
    clocks = Clocks()
    for end in (
        lambda: clocks.seen(None),
        lambda: clocks.counting.forget(volume().metadata.name),
    ):
        clocks.seen()
        clocks.steady += 50.0
        assert clocks.seen() > 0.0
        end()
        assert clocks.seen() == 0.0


def test_what_is_not_marked_has_nobody_to_count() -> None:
    assert Clocks().counting.facts(Nodes(()), volume()).witnessed == NOBODY


def test_it_is_judged_by_both_clocks_and_marked_by_the_one_ahead() -> None:
    clocks = Clocks()
    assert clocks.counting.facts(Nodes(()), volume()).now == Moment(NOW, None)
    assert clocks.counting.latest() == NOW
    clocks.server.told(DATE, 100.0, 100.0)
    clocks.day = NOW - 500.0
    assert clocks.counting.facts(Nodes(()), volume()).now == Moment(NOW - 500.0, NOW)
    assert clocks.counting.latest() == NOW + 1.0
    clocks.day = NOW + 500.0
    assert clocks.counting.latest() == NOW + 500.0
