"""Which driver a configuration gets, and which claims a pod has by what its spec says."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from localvolume.config.flexvolume import FlexVolumeConfig
from localvolume.config.pools import LvmConfig
from localvolume.flexvolume.plan.binding import claims_of
from localvolume.flexvolume.role import make_driver
from localvolume.kube.workloads import Pod


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (FlexVolumeConfig(driver="lvm", lvm=LvmConfig(group="disks")), "LvmDriver"),
        (FlexVolumeConfig(driver="bindmount"), "BindDriver"),
        (FlexVolumeConfig(driver="empty"), "EmptyDriver"),
    ],
)
def test_the_driver_that_is_configured(config: FlexVolumeConfig, kind: str) -> None:
    loop = asyncio.new_event_loop()
    try:
        assert type(make_driver(config, loop)).__name__ == kind
    finally:
        loop.close()


def test_a_pods_claims_are_those_it_names_and_those_made_for_it() -> None:
    """A generic ephemeral volume's claim has the names of the pod and of the volume."""
    volumes: list[dict[str, Any]] = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "letters"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "settings", "configMap": {"name": "letters-of-others"}},
        {"name": "disk", "flexVolume": {"driver": "localvolume.dev/flexvolume"}},
    ]
    pod = msgspec.convert({"metadata": {"name": "web"}, "spec": {"volumes": volumes}}, type=Pod)
    assert claims_of(pod) == {"letters", "web-scratch"}
