"""`localvolume orphans` while a volume is being made, which it must not take for an orphan.

A volume is on record first, then it has its PersistentVolume, and then its claim names it.
"""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from localvolume.cli import main
from tests.cluster.support_dynamic import DynamicLab
from tests.faults.support_proxy import Order, Proxy, proxy_for

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def _orphans(lab: DynamicLab, proxy: Proxy) -> int:
    """Its exit status: 0 none, 1 some."""
    asked = ["--config", str(lab.config_directory), "--node", lab.node]
    return main.main(["orphans", *asked, "--kubeconfig", str(proxy.kubeconfig)])


def test_what_is_made_once_the_pools_were_looked_at(dynamic: DynamicLab, tmp_path: Path) -> None:
    with proxy_for(dynamic.plane, tmp_path) as proxy, ThreadPoolExecutor(1) as pool:
        dynamic.kubeconfig = proxy.kubeconfig
        dynamic.pool()
        cls = dynamic.storage_class()
        dynamic.start()
        publishing = Order("hold", ("post",), "persistentvolumes")
        # As it was when the pools had been looked at, or, were that too early, before.
        reading = Order("keep", ("list",), "persistentvolumeclaims", times=1)
        proxy.orders += [publishing, reading]
        asking = pool.submit(_orphans, dynamic, proxy)
        dynamic.until(lambda: reading.answered, bool)
        claim = dynamic.claim(cls)
        dynamic.until(lambda: publishing.met, bool)
        reading.release()
        assert asking.result(300) == 0
        publishing.release()
        dynamic.made(claim)
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
        assert asking.result(300) == 0
        dynamic.stop()
