"""A disk that hangs holds up what is deleted on it: no other pool of the node waits for that."""

from __future__ import annotations

from pathlib import Path

import pytest

from localvolume.dynamic.pools import PURGERS
from tests.cluster.support_dynamic import DynamicLab
from tests.host.support_devices import frozen

pytestmark = pytest.mark.needs("root", "loop", "ext4", "controlplane")


def test_purges_that_hang_keep_no_other_pool_from_purging(dynamic: DynamicLab) -> None:
    # So slow that they are under way when the disk begins to hang.
    hanging = dynamic.pool("hanging", purgeFilesPerSecond=1)
    well = dynamic.pool("well")
    on_hanging = dynamic.storage_class("hanging", parameters={"pool": "hanging"})
    on_well = dynamic.storage_class("well", parameters={"pool": "well"})
    dynamic.start()
    claims = [dynamic.claim(on_hanging, size="1Mi") for _ in range(PURGERS)]
    for claim in claims:
        place = dynamic.path_of(dynamic.made(claim))
        for number in range(300):
            (place / f"file-{number}").touch()
    other = dynamic.claim(on_well, size="1Mi")
    volume = dynamic.made(other)
    (dynamic.path_of(volume) / "file").touch()
    for claim in claims:
        dynamic.delete(claim)
    trash = hanging.directory / ".localvolume" / "trash"

    def begun() -> list[Path]:
        return [one for one in trash.iterdir() if len(list(one.iterdir())) < 300]

    dynamic.until(begun, lambda found: len(found) == PURGERS)
    with frozen(hanging.directory):
        dynamic.delete(other)
        dynamic.gone(volume)
        dynamic.until(
            lambda: (well.inside(), well.trash(), well.records()), lambda left: not any(left)
        )
        assert len(hanging.trash()) == PURGERS
