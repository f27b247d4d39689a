"""The thin pool that the driver makes: half of one, as a killed lvcreate leaves, is made anew."""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from localvolume.flexvolume.driver import DriverFailed
from localvolume.flexvolume.drivers.lvm.marks import POOL_TAGS
from localvolume.host.lvm.commands import Lvm, LvmUnfinished
from localvolume.host.lvm.gate import GatedLvm, gate_of
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import Run
from localvolume.volumes.lvtags import encode
from tests.host.support_devices import command
from tests.suite.chance import SEED, rounds

from .support_flex import FlexLvm, volume
from .support_lvm import EXTENT


def test_half_a_thin_pool_is_made_anew(volume_group: str, lvm: Lvm, tmp_path: Path) -> None:
    """A killed lvcreate leaves a plain volume by its name. What is not surely that stays."""
    flex = FlexLvm(lvm, volume_group, tmp_path, thin_pool="tp")
    for tags in ((), encode({"owner": "flexvolume"})):
        lvm.create(volume_group, "tp", EXTENT, tags=tags)
        with pytest.raises(DriverFailed, match="is no thin pool: left as it is"):
            flex.driver.mount(volume(), flex.target())
        lvm.remove(flex.lv("tp"))
    lvm.create(volume_group, "tp", EXTENT, tags=POOL_TAGS)
    with (
        open(f"/dev/{volume_group}/tp"),
        pytest.raises(DriverFailed, match="is no thin pool: left as it is"),
    ):
        flex.driver.mount(volume(), flex.target())
    command("mkfs.ext4", "-q", f"/dev/{volume_group}/tp")
    with pytest.raises(DriverFailed, match="holds ext4: left as it is"):
        flex.driver.mount(volume(), flex.target())
    command("wipefs", "--quiet", "--all", f"/dev/{volume_group}/tp")
    lvm.deactivate(flex.lv("tp"))
    assert flex.driver.list_volumes() == []
    assert flex.driver.unmarked() == []
    flex.driver.mount(volume(), flex.target())
    assert (flex.lv("tp").kind, flex.lv("pvc-1").pool) == ("pool", "tp")
    flex.driver.unmount("pvc-1", flex.target())


def test_half_a_thin_pool_that_is_somebodys_meanwhile_stays(
    volume_group: str, lvm: Lvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flex = FlexLvm(lvm, volume_group, tmp_path, thin_pool="tp")
    lvm.create(volume_group, "tp", EXTENT, tags=POOL_TAGS)
    put_right = GatedLvm.put_right

    def and_taken(self: GatedLvm) -> None:
        put_right(self)
        command(
            "lvchange", "--quiet", *(f"--deltag={tag}" for tag in POOL_TAGS), f"{volume_group}/tp"
        )

    monkeypatch.setattr(GatedLvm, "put_right", and_taken)
    with pytest.raises(DriverFailed, match="has changed meanwhile: ask again"):
        flex.driver.mount(volume(), flex.target())
    assert flex.lv("tp").kind == "thick"


def killed_at(sight: Path | None, after: float) -> Run:
    """Runs a command that is killed so long after that path is there, or after its start."""

    def run(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        begun = time.monotonic()
        process = subprocess.Popen(
            argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        while sight is not None and not sight.exists() and process.poll() is None:
            time.sleep(0.001)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(after)
        # With what it has started: thin_check would go on in the pool.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
        return Finished(tuple(argv), status, "", "", False, time.monotonic() - begun)

    return run


def test_a_thin_pool_killed_while_it_is_made(volume_group: str, lvm: Lvm, tmp_path: Path) -> None:
    """Early, and as soon as the half of it is there: the next mount has its volume."""
    _kill_makings(volume_group, lvm, tmp_path, (0.1, None))


@pytest.mark.soak
def test_a_thin_pool_killed_at_any_moment(volume_group: str, lvm: Lvm, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    drawn = (chance.uniform(0.0, 0.5) if turn % 2 else None for turn in rounds())
    _kill_makings(volume_group, lvm, tmp_path, drawn)


def _kill_makings(
    volume_group: str, lvm: Lvm, tmp_path: Path, deaths: Iterable[float | None]
) -> None:
    """Each after so many seconds; None: as soon as the half of the pool is there."""
    half = Path(f"/dev/mapper/{volume_group}-tp")
    for seconds in deaths:
        run = killed_at(half, 0.0) if seconds is None else killed_at(None, seconds)
        with contextlib.suppress(LvmUnfinished):
            Lvm(run).create_pool(volume_group, "tp", None, tags=POOL_TAGS)
        gate_of(volume_group).doubt()  # as for an agent that begins
        flex = FlexLvm(lvm, volume_group, tmp_path, thin_pool="tp")
        flex.driver.mount(volume(), flex.target())
        flex.write("tenant data")
        assert flex.lv("pvc-1").pool == "tp"
        flex.driver.unmount("pvc-1", flex.target())
        for name in ("pvc-1", "tp"):
            lvm.remove(flex.lv(name))
        # What LVM may leave of its own, beside the pool: it is no volume of anybody's.
        for left in lvm.volumes(volume_group):
            lvm.remove(left)
