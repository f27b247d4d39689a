"""A volume group or volume in whose place another of its name is found: nothing is done there."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.lvm.engine import Engine, gated
from localvolume.backends.model import BackendFailed, NotThisVolume
from localvolume.flexvolume.driver import DriverFailed
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commands import Finished
from localvolume.volumes.lvtags import encode
from tests.host.support_devices import command
from tests.host.support_images import run_here
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


def test_a_volume_is_known_by_what_the_kernel_says_of_it(thick: Pool) -> None:
    asked: list[str] = []

    def run(argv: Sequence[str], timeout: float, **how: Any) -> Finished:
        asked.append(" ".join(argv))
        return run_here(argv, timeout, **how)

    of = thick.store.tools.of
    engine = Engine(of, gated(of, run))
    thick.store.make(thick.record(volume_mode="Block"))
    volume = thick.there("pvc-1")
    assert engine.still(volume) == volume
    thick.lvm.extend(volume, volume.size_bytes + EXTENT)
    grown = engine.still(volume)
    assert grown == thick.there("pvc-1")
    assert grown.size_bytes == volume.size_bytes + EXTENT
    assert asked == []
    # The kernel does not know it any more, and LVM does.
    thick.lvm.deactivate(volume)
    assert engine.still(volume) == thick.there("pvc-1")
    assert asked
    thick.lvm.remove(volume)
    with pytest.raises(NotThisVolume, match="not the volume any more that it was"):
        engine.still(volume)
    # Of the same name, size, tags and device number.
    thick.lvm.create(thick.group, "pvc-1", volume.size_bytes, tags=volume.tags)
    assert thick.there("pvc-1").device == volume.device
    with pytest.raises(NotThisVolume, match="not the volume any more that it was"):
        engine.still(volume)
