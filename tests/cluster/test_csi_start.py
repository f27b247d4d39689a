"""When an agent that starts offers the driver to the kubelet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from localvolume.csi.paces import CsiPaces
from tests.cluster.support_csi import CsiLab


@pytest.mark.needs("root", "loop", "ext4", "controlplane")
def test_the_driver_is_offered_as_soon_as_calls_can_be_served(csi: CsiLab) -> None:
    """The kubelet starts no pod with such a volume before: it is not left to the next attempt."""
    csi.csi_pool(backend="directory")
    csi.paces = replace(csi.paces, csi=CsiPaces(again=86400.0, resync=86400.0))
    csi.serve_here()
