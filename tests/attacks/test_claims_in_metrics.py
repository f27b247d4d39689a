"""Whoever reaches the pod's port reads /metrics: no tenant's names stand there, unless asked for.

The metrics of volumes named each claim with its namespace, to every pod of the cluster: what runs
where, for whom, and how full it is.
"""

from __future__ import annotations

import re

import pytest

from tests.cluster.support_agent import Lab, Volume
from tests.cluster.support_dynamic import DynamicLab
from tests.cluster.support_endpoints import samples
from tests.cluster.support_health import QUICK, looked
from tests.cluster.test_health_dynamic import pool_on
from tests.host.support_failing import count_an_error

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")

#: One of each of the two that name claims: tests/cluster/test_dynamic_metrics.py has the others.
OF_VOLUMES = ("size_bytes", "unhealthy")


def claims(lab: Lab, volume: Volume) -> set[str]:
    """As whose the metrics show a volume, each of them."""
    found = set()
    for name in OF_VOLUMES:
        shown = [
            labels["claim"]
            for labels, _ in samples(lab.port, f"localvolume_volume_{name}")
            if labels["persistentvolume"] == volume["metadata"]["name"]
        ]
        found.update(shown or ["nobody's"])
    return found


@pytest.mark.parametrize("asked_for", [False, True])
def test_claims_are_named_only_where_that_is_asked_for(
    dynamic: DynamicLab, asked_for: bool
) -> None:
    disk = dynamic.disk()
    with pool_on(dynamic, disk):
        cls = dynamic.storage_class()
        dynamic.start(patience=QUICK, **({"claims_in_metrics": True} if asked_for else {}))
        claim = dynamic.claim(cls)
        volume, name = dynamic.made(claim), claim["metadata"]["name"]
        count_an_error(disk)
        wanted = {f"default/{name}"} if asked_for else {""}
        dynamic.until(lambda: claims(dynamic, volume), lambda found: found == wanted)
        # The agent may have heard only now that the volume is bound.
        looked(dynamic)
        assert claims(dynamic, volume) == wanted
        status, text = dynamic.http("/metrics")
        assert status == 200
        assert (name in text) is asked_for
        assert bool(re.search(r'claim="[^"]', text)) is asked_for


@pytest.mark.parametrize("arguments", [(), ("--claims-in-metrics",)])
def test_it_is_asked_for_by_a_flag(dynamic: DynamicLab, arguments: tuple[str, ...]) -> None:
    dynamic.pool()
    cls = dynamic.storage_class()
    dynamic.start_process(*arguments)
    claim = dynamic.claim(cls)
    volume = dynamic.made(claim)["metadata"]["name"]
    named = f"default/{claim['metadata']['name']}" if arguments else ""
    labels = {"pool": "fast", "persistentvolume": volume, "claim": named}
    dynamic.until(lambda: dynamic.metric("localvolume_volume_size_bytes", **labels), bool)
