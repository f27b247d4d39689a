"""A volume group in whose place another one of its name is found: nothing is done in that."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localvolume.backends.model import BackendFailed
from localvolume.flexvolume.driver import DriverFailed
from localvolume.host.lvm.commands import Lvm
from localvolume.volumes.lvtags import encode
from tests.host.support_devices import command
from tests.suite.units import MIB

from .support_flex import FlexLvm, gone, volume
from .support_lvm import DISKS, EXTENT, group_on
from .support_lvm_store import Pool


@contextlib.contextmanager
def exchanged(group: str) -> Iterator[None]:
    """Another group of the same name, on another disk; the first one's is not there meanwhile."""
    command("vgchange", "--quiet", "--activate", "n", group)
    command("vgrename", "--quiet", group, "put-away")
    try:
        with group_on(DISKS[1], group):
            yield
    finally:
        command("vgrename", "--quiet", "put-away", group)


def test_another_group_of_the_pools_name_is_not_the_pool(thick: Pool) -> None:
    """It was seen once; no PersistentVolume names it yet."""
    made = thick.store.make(thick.record(volume_mode="Block"))
    with exchanged(thick.group):
        assert "or it was made anew" in thick.store.look().problem
        acts: list[Callable[[], object]] = [
            lambda: thick.store.make(thick.record("pvc-2", volume_mode="Block")),
            lambda: thick.store.make(thick.record(volume_mode="Block")),
            lambda: thick.store.grow(made, 20 * MIB),
            lambda: thick.store.retire(made),
        ]
        for act in acts:
            with pytest.raises(BackendFailed, match="or it was made anew"):
                act()
        assert thick.lvm_names() == []
    assert thick.store.look().records == {"pvc-1": made}


def test_another_group_of_its_name_is_not_flexvolumes(
    lvm: Lvm, volume_group: str, tmp_path: Path
) -> None:
    flex = FlexLvm(lvm, volume_group, tmp_path)
    flex.driver.mount(volume(), flex.target())
    flex.driver.unmount("pvc-1", flex.target())
    with exchanged(volume_group):
        with pytest.raises(DriverFailed, match="were exchanged, or it was made anew"):
            flex.driver.mount(volume("pvc-2"), flex.target("b"))
        assert flex.names() == set()
        # Nor one in which there is a volume by the name of one that is to go.
        lvm.create(volume_group, "pvc-1", EXTENT, tags=encode({"owner": "flexvolume", **gone()}))
        acts: list[Callable[[], object]] = [
            flex.driver.list_volumes,
            flex.driver.unmarked,
            lambda: flex.driver.grow("pvc-1", 40 * MIB),
            lambda: flex.driver.note("pvc-1", gone()),
        ]
        for act in acts:
            with pytest.raises(DriverFailed, match="were exchanged, or it was made anew"):
                act()
        lvm.deactivate(flex.lv("pvc-1"))
    assert flex.names() == {"pvc-1"}
    flex.driver.mount(volume(), flex.target())
    flex.driver.unmount("pvc-1", flex.target())
