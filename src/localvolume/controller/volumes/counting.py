"""By what a leader counts how long nodes have been lost: its own steady clock, and two of the day.

In memory and for one leadership alone: what an earlier leader has seen is left to the clocks.
"""

from __future__ import annotations

from localvolume.controller.model import Policy
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.volumes import Facts, lost_since
from localvolume.kube.http.serverclock import ServerClock
from localvolume.kube.objects import PersistentVolume
from localvolume.volumes import marks
from localvolume.volumes.periods import NOBODY, Clock, Moment, Witness


class Counting:
    """Makes the facts by which a volume is judged."""

    def __init__(self, policy: Policy, clock: Clock, server: ServerClock) -> None:
        self._policy = policy
        self._clock = clock
        self._server = server
        self._witness = Witness()

    def latest(self) -> float:
        """The latest that it can be now: what begins then is not over too early by any clock."""
        here, server = self._clock.day(), self._server.latest()
        return here if server is None else max(here, server)

    def facts(self, nodes: Nodes, volume: PersistentVolume) -> Facts:
        """What is known now of a volume and of those nodes."""
        now = Moment(self._clock.day(), self._server.earliest())
        meta, witnessed = volume.metadata, NOBODY
        if lost_since(volume) is None:
            self.forget(meta.name)
        else:
            mark = f"{meta.uid} {meta.annotations[marks.LOST_ANNOTATION]}"
            witnessed = self._witness.of(meta.name, mark, now, self._clock.steady())
        return Facts(nodes, self._policy, now, witnessed)

    def forget(self, name: str) -> None:
        """There is no such volume any more, or its nodes are not lost."""
        self._witness.forget(name)
