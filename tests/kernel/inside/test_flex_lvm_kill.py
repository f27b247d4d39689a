"""kill -9 of the agent, and SIGKILL of the commands it runs, while it makes, mounts, unmounts,
grows and removes FlexVolume volumes: each is usable afterwards or removed, never half.

LOCALVOLUME_KILLS (100) is how many kills, LOCALVOLUME_SEED the seed to begin with: it makes the
same choices again, though what they meet depends on the machine's timing.
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from localvolume.host.lvm import Lvm
from localvolume.volumes.lvtags import FLEX_OWNER, OWNER, encode
from tests.host.support_devices import command

from .support_flex_kills import Ground, Tenant
from .support_kills import Chooser, Order
from .support_looks import GROUP, halves
from .support_lvm import DISKS, MIB, clear

KILLS = int(os.environ.get("LOCALVOLUME_KILLS", "100"))
SEED = int(os.environ.get("LOCALVOLUME_SEED", str(random.randrange(10**6))))

_MOST = 5
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
    command("vgcreate", "--quiet", "--yes", "--physicalextentsize", "4m", GROUP, *DISKS)
    ground = None
    try:
        ground = Ground(tmp_path, lvm)
        ground.prepare()
        yield ground
    finally:
        if ground is not None:
            ground.end()
        clear(GROUP, *DISKS)


class Rounds:
    """One call after the other, with a death in each."""

    def __init__(self, ground: Ground) -> None:
        self.ground = ground
        self.chance = random.Random(SEED)
        self.done: Counter[str] = Counter()
        self.died: Counter[str] = Counter()
        self._began = time.monotonic()
        self.chooser = Chooser(self.chance, ground.look_seconds)

    def one(self) -> None:
        """A call and a death, after which all is whole."""
        what, tenant = self._choose()
        ground, chance = self.ground, self.chance
        look = self.chooser.command_seconds = ground.look_seconds
        if what == "mount" and chance.random() < 0.5:
            command("lvchange", "--activate", "n", f"{GROUP}/{tenant.name}")
        at_a_time = chance.random() < 0.15
        mostly, steps = _MOSTLY[what]
        steps = tuple(f"grow_{tenant.fs}" if step == "grow" else step for step in steps)
        order = None if at_a_time else self.chooser.order(mostly, steps)
        self.last = f"{what} of {tenant}, {order}"
        print(f"{time.monotonic() - self._began:.0f} s: {self.last}", flush=True)
        ground.orders.give(order)
        timer = Timer(chance.uniform(0, 10 * look), self._kill)
        if at_a_time:
            timer.start()
        try:
            self._call(what, tenant)
        finally:
            timer.cancel()
            if at_a_time:
                timer.join()
        if order is not None and ground.orders.was_met():
            self.died[f"{order.victim} in {what}"] += 1
        if ground.revive(self._second()):
            # Nobody asks for anything: what the next one begins with may be cut short, too.
            time.sleep(chance.uniform(0, 3 * look))
        ground.until_whole()
        self.done[what] += 1

    def _second(self) -> Order | None:
        """For an agent that has just begun, and puts right what the last one left."""
        if self.chance.random() < 0.4:
            return None
        return self.chooser.order(("lvs", "dmsetup", "lvchange-tag", "lvremove"))

    def _kill(self) -> None:
        # It may have died of its last order, and nobody has noticed yet.
        with contextlib.suppress(ProcessLookupError):
            if pid := self.ground.agents.pid:
                os.kill(pid, signal.SIGKILL)
                self.died["process at any time"] += 1

    def _choose(self) -> tuple[str, Tenant]:
        tenants = list(self.ground.tenants.values())
        mounted = [one for one in tenants if one.mounted]
        idle = [one for one in tenants if not one.mounted]
        small = [one for one in tenants if one.size < (48 if one.fs == "ext4" else 380) * MIB]
        choices = [("unmount", mounted), ("mount", idle), ("grow", small), ("grow", small)]
        choices += [("remove", tenants), ("remove", idle if len(tenants) > 2 else [])]
        if len(tenants) < _MOST:
            new: list[Any] = [None]
            choices += [("make", new), ("make", new), ("make", new), ("abandon", new)]
        what, whom = self.chance.choice([one for one in choices if one[1]])
        if what in ("make", "abandon"):
            has_xfs = any(one.fs == "xfs" for one in tenants)
            fs = "xfs" if not has_xfs and self.chance.random() < 0.1 else "ext4"
            mib = 300 if fs == "xfs" else 4 * self.chance.randint(3, 6)
            way = self.chance.choice(("", "", "overwrite", "discard"))
            return what, self.ground.claim(fs=fs, mib=mib, way=way)
        return what, self.chance.choice(whom)

    def _call(self, what: str, tenant: Tenant) -> None:
        ground = self.ground
        if what in ("make", "mount"):
            ground.mount(tenant)
        elif what in ("abandon", "unmount", "remove"):
            getattr(ground, what)(tenant)
        else:
            more = 40 * MIB if tenant.fs == "xfs" else tenant.size // 2
            ground.grow(tenant, -(-(tenant.size + more) // (4 * MIB)) * 4 * MIB)


def test_every_volume_is_usable_or_removed(ground: Ground) -> None:
    print(f"seed {SEED}")
    began = time.monotonic()
    ground.keep()
    rounds = Rounds(ground)
    try:
        ground.mount(ground.claim(fs="xfs", mib=300))
        ground.until_whole()
        print(
            f"ready after {time.monotonic() - began:.0f} s, a look takes {ground.look_seconds:.2f}"
        )
        for _ in range(3 * KILLS):
            if ground.orders.hits().total() + rounds.died["process at any time"] >= KILLS:
                break
            rounds.one()
        ground.orders.give(None)
        ground.revive()
        for tenant in list(ground.tenants.values()):
            ground.mount(tenant)
        ground.until_whole()
        for tenant in list(ground.tenants.values()):
            ground.remove(tenant)
        ground.until_whole()
    except BaseException:
        print(f"seed {SEED}: {getattr(rounds, 'last', '')}")
        raise
    finally:
        print(f"{dict(rounds.done)}, killed: {dict(rounds.died)}, {ground.lives} lives")
        print(f"deaths: {dict(ground.orders.hits())}")
        print(f"{time.monotonic() - began:.0f} s")
    hits = ground.orders.hits()
    assert hits.total() + rounds.died["process at any time"] >= KILLS
    assert any("command" in hit for hit in hits)
    assert any("process" in hit for hit in hits)
    names = {one.name for one in ground.lvm.volumes(GROUP)}
    assert names == {"tp", "theirs", "theirs-thin", "pv-kept"}
    log = ground.agents.log.read_text()
    assert "unexpected" not in log, log[-8000:]
    assert "Traceback" not in log, log[-8000:]


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


# --- an agent that does wrong is noticed, else the test above could not fail ---------------------


def test_a_mark_that_runs_ahead_of_the_filesystem_is_noticed(ground: Ground) -> None:
    tenant = ground.claim()
    ground.orders.give(Order("process", "mkfs.ext4", 1, "before"))
    ground.start("thick", "early-mark")
    ground.refused(tenant, "no volume is formatted twice")


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


def test_a_volume_that_is_only_said_to_be_removed_is_noticed(ground: Ground, lvm: Lvm) -> None:
    ground.start("thin", "never-remove")
    tenant = ground.claim()
    ground.mount(tenant)
    ground.release(tenant)
    # What a right one would have removed by then.
    ground.seconds = 15
    with pytest.raises(AssertionError, match="is left, and has no PersistentVolume"):
        ground.until(lambda: lvm.volume(GROUP, tenant.name) is None)


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
