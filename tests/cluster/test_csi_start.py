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


@pytest.mark.needs("root", "loop", "ext4", "controlplane")
def test_the_first_start_on_a_node_warns_of_no_directory(csi: CsiLab) -> None:
    """That of the driver's socket is its own to make, before it watches it.

    Several times: which of the two comes first was a matter of luck.
    """
    csi.csi_pool(backend="directory")
    for _ in range(3):
        assert not csi.socket.parent.exists()
        csi.serve().stop()
        assert not csi.logged("not watching"), csi.log()
        csi.socket.parent.rmdir()
