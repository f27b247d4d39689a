"""`localvolume orphans` while a volume is being made, which it must not take for an orphan.

A volume is on record first, then it has its PersistentVolume, and then its claim names it.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localvolume.backends.model import PoolReport
from localvolume.backends.survey import survey
from localvolume.cli import main
from localvolume.config.pools import PoolConfig
from tests.cluster.support_dynamic import DynamicLab
from tests.faults.support_proxy import Order, Proxy, proxy_for

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _orphans(lab: DynamicLab, proxy: Proxy) -> int:
    """Its exit status: 0 none, 1 some."""
    asked = ["--config", str(lab.config_directory), "--node", lab.node]
    return main.main(["orphans", *asked, "--kubeconfig", str(proxy.kubeconfig)])


def test_what_is_made_once_the_pools_were_looked_at(
    dynamic: DynamicLab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with proxy_for(dynamic.plane, tmp_path) as proxy:
        dynamic.kubeconfig = proxy.kubeconfig
        dynamic.pool()
        cls = dynamic.storage_class()
        dynamic.start()
        publishing = Order("hold", ("post",), "persistentvolumes")
        proxy.orders.append(publishing)
        claims = []

        def surveyed(config: PoolConfig) -> PoolReport:
            # Right before, so that the look sees what came about since the lists, if they were
            # read before it.
            claims.append(dynamic.claim(cls))
            dynamic.until(lambda: publishing.met, bool)
            return survey(config)

        monkeypatch.setattr("localvolume.cli.orphans.survey", surveyed)
        assert _orphans(dynamic, proxy) == 0
        publishing.release()
        dynamic.made(claims[0])
        dynamic.stop()


def test_what_is_published_once_the_claims_were_read(dynamic: DynamicLab, tmp_path: Path) -> None:
    with proxy_for(dynamic.plane, tmp_path) as proxy, ThreadPoolExecutor(1) as pool:
        dynamic.kubeconfig = proxy.kubeconfig
        dynamic.pool()
        cls = dynamic.storage_class()
        dynamic.start()
        publishing = Order("hold", ("post",), "persistentvolumes")
        reading = Order("hold", ("list",), "persistentvolumeclaims", times=1)
        proxy.orders += [publishing, reading]
        claim = dynamic.claim(cls)
        dynamic.until(lambda: publishing.met, bool)
        asking = pool.submit(_orphans, dynamic, proxy)
        dynamic.until(lambda: reading.met, bool)
        publishing.release()
        dynamic.made(claim)
        named = dynamic.volume_of(claim)
        dynamic.until(
            lambda: dynamic.read_claim(claim),
            lambda found: found and named and found["spec"].get("volumeName"),
        )
        reading.release()
        assert asking.result(60) == 0
        dynamic.stop()
