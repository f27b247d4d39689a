"""How long judging is overdue: it says that a leader no longer does its work."""

from __future__ import annotations

from localvolume.controller.caches.cluster import Cluster
from localvolume.controller.caches.demand import Demand
from localvolume.controller.flexvolume import FlexVolumes
from localvolume.controller.leading import Means, Pace
from localvolume.controller.metrics import ControllerMetrics
from localvolume.controller.model import Policy
from localvolume.kube.access.auth import Access
from localvolume.kube.client import Client
from localvolume.kube.events import EventRecorder
from localvolume.volumes.periods import Clock


async def test_what_comes_after_a_quiet_time_has_not_waited_all_that_time() -> None:
    """A probe that comes in the same moment is told that all is well."""
    client = Client(Access("http://127.0.0.1:1", source="a test"), user_agent="test")
    cluster = Cluster(client)
    role = FlexVolumes(
        Means(
            client=client,
            cluster=cluster,
            demand=Demand(client, cluster),
            events=EventRecorder(client, "test", "one"),
            metrics=ControllerMetrics(),
            policy=Policy(),
            pace=Pace(),
            clock=Clock(),
        )
    )
    # Nothing has been judged for an hour, as nothing was to be.
    role._turned -= 3600
    assert role.behind == 0
    role.claims_changed(["default/data"])
    assert role.behind < 1800
    # That one waits, and what comes later makes it wait no shorter.
    role._queue.since -= 3600
    role.claims_changed(["default/other"])
    assert role.behind >= 3600
