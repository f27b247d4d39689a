"""Measures how long nodes have been lost: by the leader's steady clock, and two clocks of the day.

Kept in memory, for one leadership only: the clocks of the day cover what an earlier leader saw.
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
    """Gathers the facts by which a volume is judged."""

    def __init__(self, policy: Policy, clock: Clock, server: ServerClock) -> None:
        self._policy = policy
        self._clock = clock
        self._server = server
        self._witness = Witness()

    def latest(self) -> float:
        """The latest that it can be now, so that no clock ends a period begun then too early."""
        here, server = self._clock.day(), self._server.latest()
        return here if server is None else max(here, server)

    def facts(self, nodes: Nodes, volume: PersistentVolume) -> Facts:
        """What is known now about a volume and these nodes."""
        now = Moment(self._clock.day(), self._server.earliest())
        meta, witnessed = volume.metadata, NOBODY
        if lost_since(volume) is None:
            self.forget(meta.name)
        else:
            mark = f"{meta.uid} {meta.annotations[marks.LOST_ANNOTATION]}"
            witnessed = self._witness.of(meta.name, mark, now, self._clock.steady())
        return Facts(nodes, self._policy, now, witnessed)

    def forget(self, name: str) -> None:
        """Forget a volume that no longer exists, or whose nodes are not lost."""
        self._witness.forget(name)
