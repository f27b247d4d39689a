"""A FlexVolume volume whose removal takes its time: no other volume waits for that to grow."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from localvolume.host.lvm.commands import Lvm
from tests.suite.units import MIB

from .support_flex_kills import Ground
from .support_looks import GROUP
from .support_lvm import DISKS, begin, clear


@dataclass
class SlowLvm:
    """An lvm for the agent that holds each lvremove up for as long as it is told to."""

    where: Path

    def __post_init__(self) -> None:
        self.where.mkdir()
        self._hold = self.where / "hold"
        self._held = self.where / "held"
        self._held.touch()
        self._beside = self.where / "beside"
        lvm = self.where / "lvm"
        lvm.write_text(
            "#!/bin/sh\n"
            f'if [ "$1" = lvremove ] && [ -e {self._hold} ]; then\n'
            f"  echo $$ >>{self._held}\n"
            f"  while [ -e {self._hold} ]; do sleep 0.2; done\n"
            "fi\n"
            f'if [ "$1" = lvextend ] && kill -0 "$(tail -n 1 {self._held})" 2>/dev/null; then\n'
            f"  touch {self._beside}\n"
            "fi\n"
            f'exec {shutil.which("lvm")} "$@"\n'
        )
        lvm.chmod(0o755)

    @property
    def path(self) -> str:
        return f"{self.where}:{os.environ['PATH']}"

    def hold(self) -> None:
        self._hold.touch()

    def go_on(self) -> None:
        self._hold.unlink(missing_ok=True)

    def holds(self) -> bool:
        """Whether one was ever held up."""
        return self._held.stat().st_size > 0

    def extended_beside(self) -> bool:
        """Whether an lvextend began while an lvremove was held up."""
        return self._beside.exists()


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[SlowLvm]:
    slow = SlowLvm(tmp_path / "slow")
    yield slow
    slow.go_on()


@pytest.fixture
def ground(tmp_path: Path, lvm: Lvm, slow: SlowLvm) -> Iterator[Ground]:
    begin(GROUP, *DISKS)
    ground = None
    try:
        ground = Ground(tmp_path, lvm, path=slow.path)
        ground.prepare()
        yield ground
    finally:
        slow.go_on()
        if ground is not None:
            ground.end()
        clear(GROUP, *DISKS)


def test_a_slow_removal_keeps_no_other_volume_from_growing(ground: Ground, slow: SlowLvm) -> None:
    ground.start("thick")
    removed, other = ground.claim(), ground.claim()
    for tenant in (removed, other):
        ground.mount(tenant)
    slow.hold()
    ground.release(removed)
    ground.until(slow.holds)
    ground.grow(other, 32 * MIB)
    # And not only once its deadline had ended the removal.
    assert slow.extended_beside()
    assert ground.lvm.volume(GROUP, removed.name) is not None
    slow.go_on()
    ground.until(lambda: ground.lvm.volume(GROUP, removed.name) is None)
