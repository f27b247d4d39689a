"""kill -9 of the agent, and SIGKILL of the commands it runs, while it makes, mounts, unmounts,
grows and removes FlexVolume volumes: each is usable afterwards or removed, never half.

One volume's life for each point, with a death in each call; in the soak, many lives at random. The
seed makes the same choices again, though what they meet depends on the machine's timing.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from localvolume.host.lvm.commands import Lvm
from localvolume.volumes.lvtags import FLEX_OWNER, OWNER, encode
from tests.host.support_devices import command
from tests.suite import chance
from tests.suite.chance import SEED
from tests.suite.units import MIB

from .support_flex_kills import Ground, Tenant
from .support_kills import Chooser, Order, deaths_at
from .support_looks import GROUP, halves
from .support_lvm import DISKS, begin, clear

_MOST = 5


#: In which order a volume is called for, and at which points of each call the agent dies.
_POINTS = {
    "make": deaths_at("patch", "lvcreate", "mkfs.ext4", "lvchange-tag", "mount"),
    "unmount": deaths_at("umount"),
    "mount": deaths_at("lvs", "lvchange-up", "e2fsck", "mount"),
    "grow": deaths_at("lvextend", "grow_ext4", "lvchange-tag", "patch"),
    "remove": deaths_at("zero", "lvchange-tag", "lvchange-down", "lvremove", "patch"),
}
#: Which commands each call runs that change something, and at which other steps it may die.
_MOSTLY = {
    "make": (("lvcreate", "lvchange-tag", "mkfs.ext4", "mount"), ("patch",)),
    "abandon": (("lvcreate", "lvcreate", "lvchange-tag", "mkfs.ext4", "mount"), ("patch",)),
    "mount": (("lvs", "lvchange-up", "e2fsck", "mount"), ("patch",)),
    "unmount": (("umount",), ()),
    "grow": (("lvextend", "lvextend", "lvchange-tag", "lvs"), ("grow", "patch")),
    "remove": (("lvchange-tag", "lvchange-down", "lvremove", "lvremove"), ("patch", "zero")),
}


@pytest.fixture
def ground(tmp_path: Path, lvm: Lvm) -> Iterator[Ground]:
    begin(GROUP, *DISKS)
    ground = None
    try:
        ground = Ground(tmp_path, lvm)
        ground.prepare()
        yield ground
    finally:
        if ground is not None:
            ground.end()
        clear(GROUP, *DISKS)


@dataclass(frozen=True)
class Round:
    """A call and the death in it: by an order, or of the agent so many seconds after the call. The
    `second` order is for the agent that comes next, and puts right what the last one left."""

    what: str
    order: Order | None
    seconds: float = 0.0
    second: Order | None = None
    pause: float = 0.0


class Rounds:
    """One call after the other, with a death in each."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.done: Counter[str] = Counter()
        self.died: Counter[str] = Counter()
        self.last = ""
        self._began = time.monotonic()

    def one(self, now: Round, tenant: Tenant) -> bool:
        """Whether it died as ordered; all is whole after it."""
        ground, order = self.ground, now.order
        self.last = f"{now.what} of {tenant}, {order}"
        print(f"{time.monotonic() - self._began:.0f} s: {self.last}", flush=True)
        number = ground.orders.give(order)
        timer = Timer(now.seconds, self._kill)
        if order is None:
            timer.start()
        try:
            self.call(now.what, tenant)
        finally:
            timer.cancel()
            if order is None:
                timer.join()
        met = ground.orders.was_met(number)
        if order is not None and met:
            self.died[f"{order.victim} in {now.what}"] += 1
        if ground.revive(now.second):
            # Nobody asks for anything: what the next one begins with may be cut short, too.
            time.sleep(now.pause)
        ground.until_whole()
        self.done[now.what] += 1
        return met

    def _kill(self) -> None:
        # It may have died of its last order, and nobody has noticed yet.
        with contextlib.suppress(ProcessLookupError):
            if pid := self.ground.agents.pid:
                os.kill(pid, signal.SIGKILL)
                self.died["process at any time"] += 1

    def call(self, what: str, tenant: Tenant) -> None:
        ground = self.ground
        if what in ("make", "mount"):
            ground.mount(tenant)
        elif what in ("abandon", "unmount", "remove"):
            getattr(ground, what)(tenant)
        else:
            more = 40 * MIB if tenant.fs == "xfs" else tenant.size // 2
            ground.grow(tenant, -(-(tenant.size + more) // (4 * MIB)) * 4 * MIB)


class Draws:
    """What happens next, at random."""

    def __init__(self, ground: Ground, chance: random.Random) -> None:
        self._ground = ground
        self._chance = chance
        self._chooser = Chooser(chance, ground.look_seconds)

    def one(self) -> tuple[Round, Tenant]:
        what, tenant = self._choose()
        dice = self._chance
        self._ground.kind = dice.choice(("thick", "thin"))
        look = self._chooser.command_seconds = self._ground.look_seconds
        if what == "mount" and dice.random() < 0.5:
            deactivate(tenant)
        order = None
        if dice.random() >= 0.15:
            mostly, steps = _MOSTLY[what]
            steps = tuple(f"grow_{tenant.fs}" if step == "grow" else step for step in steps)
            order = self._chooser.order(mostly, steps)
        second = None
        if dice.random() >= 0.4:
            second = self._chooser.order(("lvs", "dmsetup", "lvchange-tag", "lvremove"))
        seconds, pause = dice.uniform(0, 10 * look), dice.uniform(0, 3 * look)
        return Round(what, order, seconds, second, pause), tenant

    def _choose(self) -> tuple[str, Tenant]:
        tenants = list(self._ground.tenants.values())
        mounted = [one for one in tenants if one.mounted]
        idle = [one for one in tenants if not one.mounted]
        small = [one for one in tenants if one.size < (48 if one.fs == "ext4" else 380) * MIB]
        choices = [("unmount", mounted), ("mount", idle), ("grow", small), ("grow", small)]
        choices += [("remove", tenants), ("remove", idle if len(tenants) > 2 else [])]
        if len(tenants) < _MOST:
            new: list[Any] = [None]
            choices += [("make", new), ("make", new), ("make", new), ("abandon", new)]
        what, whom = self._chance.choice([one for one in choices if one[1]])
        if what in ("make", "abandon"):
            has_xfs = any(one.fs == "xfs" for one in tenants)
            fs = "xfs" if not has_xfs and self._chance.random() < 0.1 else "ext4"
            mib = 300 if fs == "xfs" else 4 * self._chance.randint(3, 6)
            way = self._chance.choice(("", "", "overwrite", "discard"))
            return what, self._ground.claim(fs=fs, mib=mib, way=way)
        return what, self._chance.choice(whom)


def deactivate(tenant: Tenant) -> None:
    command("lvchange", "--activate", "n", f"{GROUP}/{tenant.name}")


@contextlib.contextmanager
def play(ground: Ground) -> Iterator[Rounds]:
    """A life of volumes beside what is somebody else's; in the end all is whole, and all goes."""
    print(f"seed {SEED}")
    began = time.monotonic()
    ground.keep()
    rounds = Rounds(ground)
    try:
        ground.until_whole()
        print(
            f"ready after {time.monotonic() - began:.0f} s, a look takes {ground.look_seconds:.2f}"
        )
        yield rounds
        ground.orders.give(None)
        ground.revive()
        for tenant in list(ground.tenants.values()):
            ground.mount(tenant)
        ground.until_whole()
        for tenant in list(ground.tenants.values()):
            ground.remove(tenant)
        ground.until_whole()
    except BaseException:
        print(f"seed {SEED}: {rounds.last}")
        raise
    finally:
        print(f"{dict(rounds.done)}, killed: {dict(rounds.died)}, {ground.lives} lives")
        print(f"deaths: {dict(ground.orders.hits())}")
        print(f"{time.monotonic() - began:.0f} s")
    names = {one.name for one in ground.lvm.volumes(GROUP)}
    assert names == {"tp", "theirs", "theirs-thin", "pv-kept"}
    log = ground.agents.log.read_text()
    assert "unexpected" not in log, log[-8000:]
    assert "Traceback" not in log, log[-8000:]


def test_killed_at_each_point_every_volume_is_usable_or_removed(ground: Ground) -> None:
    with play(ground) as rounds:
        for life in range(max(map(len, _POINTS.values()))):
            # The first must be thick: nothing is overwritten in a thin one.
            ground.kind = ("thick", "thin")[life % 2]
            tenant = ground.claim(mib=12, way="overwrite")
            for what, points in _POINTS.items():
                if what == "mount" and life < len(points):
                    deactivate(tenant)
                if life < len(points):
                    met = rounds.one(Round(what, points[life]), tenant)
                    assert met, f"{points[life]} was never met in {what}"
                elif what != "mount":
                    rounds.call(what, tenant)


@pytest.mark.soak
def test_killed_at_any_moment_every_volume_is_usable_or_removed(ground: Ground) -> None:
    with play(ground) as rounds:
        draws = Draws(ground, random.Random(SEED))
        ground.mount(ground.claim(fs="xfs", mib=300))
        for _ in chance.rounds():
            rounds.one(*draws.one())
    deaths = ground.orders.hits().total() + rounds.died["process at any time"]
    # Of a few, none may have met its point.
    assert 3 * deaths >= rounds.done.total() - 8


@pytest.mark.soak
def test_what_a_dead_agent_left_suspended_holds_the_observer_up_until_the_next(
    ground: Ground,
) -> None:
    """Else it would wait for ever for a device that nobody comes to resume."""
    ground.start("thin")
    ground.mount(ground.claim())
    os.kill(ground.agents.pid, signal.SIGKILL)
    command("dmsetup", "suspend", f"{GROUP}-tp-tpool")
    assert halves()
    ground.until_whole()
    assert not halves()
    assert ground.lives == 2


# --- an agent that does wrong is noticed, else the tests above could not fail --------------------


@pytest.mark.soak
def test_a_mark_that_runs_ahead_of_the_filesystem_is_noticed(ground: Ground) -> None:
    tenant = ground.claim()
    ground.orders.give(Order("process", "mkfs.ext4", 1, "before"))
    ground.start("thick", "early-mark")
    ground.refused(tenant, "no volume is formatted twice")


@pytest.mark.soak
def test_a_volume_that_goes_before_its_persistentvolume_is_noticed(ground: Ground) -> None:
    ground.start("thick")
    tenant = ground.claim()
    ground.mount(tenant)
    ground.unmount(tenant)
    ground.until_whole()
    ground.agents.kill()
    ground.start("thick", "blind-collector")
    text = "removed, and its PersistentVolume exists"
    ground.until(lambda: any(text in fault for fault in ground.faults()))


@pytest.mark.soak
def test_a_volume_that_is_only_said_to_be_removed_is_noticed(ground: Ground, lvm: Lvm) -> None:
    ground.start("thin", "never-remove")
    tenant = ground.claim()
    ground.mount(tenant)
    ground.release(tenant)
    # What a right one would have removed by then.
    ground.seconds = 15
    with pytest.raises(AssertionError, match="is left, and has no PersistentVolume"):
        ground.until(lambda: lvm.volume(GROUP, tenant.name) is None)


@pytest.mark.soak
def test_a_volume_with_data_of_another_is_noticed(ground: Ground) -> None:
    tenant = ground.claim()
    uid = ground.plane.request("GET", f"/api/v1/persistentvolumes/{tenant.name}")["metadata"]["uid"]
    tags = encode({OWNER: FLEX_OWNER, "pv-uid": uid, "state": "made", "fs": "ext4"})
    ground.lvm.create(GROUP, tenant.name, tenant.size, tags=tags)
    node = f"/dev/{GROUP}/{tenant.name}"
    command("mkfs.ext4", "-q", "-F", node)
    command("debugfs", "-w", "-R", "write /etc/passwd passwd", node)
    ground.start("thick")
    with pytest.raises(AssertionError, match=r"offered with \['passwd'\] in it"):
        ground.mount(tenant)


@pytest.mark.soak
def test_what_is_suspended_shrunk_or_lost_is_noticed(ground: Ground) -> None:
    ground.keep()
    tenant = ground.claim()
    ground.mount(tenant)
    ground.until_whole()
    ground.agents.kill()
    command("dmsetup", "suspend", f"{GROUP}-theirs")
    assert halves() == ["vg0-theirs"]
    command("dmsetup", "resume", f"{GROUP}-theirs")
    tenant.size += 16 * MIB
    assert any("its filesystem has" in text for text in ground.faults())
    tenant.size -= 16 * MIB
    (ground.target(tenant.name) / "canary").write_bytes(b"")
    assert any("its data is gone" in text for text in ground.faults())
    Path(f"/dev/{GROUP}/theirs").write_bytes(b"other")
    assert "theirs has changed" in ground.faults()
