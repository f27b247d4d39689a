"""How far a cleaning is, told while it runs, and not after it."""

import pytest

from tests.cluster.support_agent import Lab
from tests.cluster.support_frozen import (
    OVERWRITE,
    OVERWRITTEN_BYTES,
    OVERWRITTEN_PASSES,
    half_cleaned,
)

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def test_bytes_done_and_to_be_done(lab: Lab) -> None:
    """Of a disk that stalls in the midst of it."""
    cls = lab.add_class("block", volumeMode="Block", blockCleanerCommand=OVERWRITE)
    lab.start()
    with half_cleaned(lab, cls) as volume:
        about = {"persistentvolume": volume["metadata"]["name"]}
        total = lab.metric("localvolume_cleaning_total_bytes", **about)
        # The last pass is of zeros.
        assert total == (OVERWRITTEN_PASSES + 1) * OVERWRITTEN_BYTES
        done = lab.metric("localvolume_cleaning_done_bytes", **about)
        assert done is not None
        assert 0 < done < total
    lab.published(cls, "stalls", unlike=volume["metadata"]["uid"])
    for name in ("done", "total"):
        assert lab.metric(f"localvolume_cleaning_{name}_bytes", **about) is None
