"""kill -9 of a pool's agent, and SIGKILL of the commands it runs, while logical volumes are made,
grown, snapshotted and removed: each is what it was promised to be, or was never told of, or gone.

The group's extents hold a pattern before, and raw volumes are all zeros when they are handed out.

LOCALVOLUME_KILLS (100) is three times the number of kills, LOCALVOLUME_SEED the seed to begin with.
"""

import dataclasses
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends import lvmmake
from localvolume.backends.lvmrecord import ZEROED
from localvolume.backends.model import Record
from localvolume.host.lvm import Lvm
from localvolume.volumes.lvtags import decode
from tests.host.support_devices import command

from .support_kills import Chooser, Order, seconds_of
from .support_looks import GROUP
from .support_lvm import MIB
from .support_lvm_deaths import Deaths, group_of_pattern
from .support_lvm_store import write

KILLS = int(os.environ.get("LOCALVOLUME_KILLS", "100")) // 3
SEED = int(os.environ.get("LOCALVOLUME_SEED", str(random.randrange(10**6))))
_MOST = 4
_MOSTLY = {
    "make": (("lvcreate", "lvchange-tag", "mkfs.ext4", "debugfs", "lvs"), ()),
    "make raw": (("lvcreate", "lvchange-tag"), ("zero",)),
    "offer": (("lvchange-tag", "lvs"), ()),
    "grow": (("lvextend", "lvchange-tag", "lvs"), ("grow_ext4",)),
    "grow raw": (("lvcreate", "lvremove", "lvextend", "lvchange-tag"), ("zero",)),
    "remove": (("lvchange-down", "lvchange-tag", "lvchange-up", "lvremove"), ("zero",)),
    "snapshot": (("lvcreate", "lvs"), ()),
    "unsnapshot": (("lvremove", "lvchange-down"), ()),
}


@pytest.fixture
def group() -> Iterator[str]:
    with group_of_pattern():
        yield GROUP


class Rounds:
    """One call after the other, with a death in each."""

    def __init__(self, deaths: Deaths, seed: int) -> None:
        self.deaths = deaths
        self.chance = random.Random(seed)
        self.done: Counter[str] = Counter()
        self.last = ""
        lvs = seconds_of(lambda: deaths.lvm.volumes(GROUP))
        self._chooser = Chooser(self.chance, lvs)

    def one(self) -> None:
        deaths, chance = self.deaths, self.chance
        tenants = list(deaths.tenants.values())
        plain = [one for one in tenants if not one.snapshots]
        snapshotted = [one for one in tenants if one.snapshots]
        # Classic snapshots keep a volume from growing. All take room: of four volumes of up to 24
        # MiB and one snapshot there is as much as is needed.
        small = [one for one in plain if one.record.size_bytes < 20 * MIB]
        choices: list[tuple[str, list[Any]]] = [
            ("grow", small),
            ("grow", small),
            ("offer", [one for one in tenants if one.record.state == "made"]),
            ("remove", plain),
            ("snapshot", [] if snapshotted else [one for one in plain if not one.raw]),
            ("unsnapshot", snapshotted),
        ]
        if len(tenants) < _MOST:
            choices += [("make", [None])] * 3
        what, whom = chance.choice([one for one in choices if one[1]])
        tenant = chance.choice(whom)
        raw = chance.random() < 0.5 if what == "make" else tenant.raw
        both = f"{what} raw" if raw and what in ("make", "grow") else what
        order = self._chooser.order(*_MOSTLY[both])
        second = None
        if chance.random() < 0.4:
            second = self._chooser.order(("lvs", "dmsetup", *_MOSTLY[both][0]))
        whose = (tenant.name, tenant.record.size_bytes >> 20) if tenant else ""
        self.last = f"{both} {whose}: {order}, {second}"
        print(self.last, flush=True)
        deaths.orders.give(order)
        if what == "make":
            tenant = deaths.make(raw=raw, mib=4 * chance.randint(2, 3), second=second)
        elif what == "grow":
            deaths.grow(tenant, tenant.record.size_bytes + 8 * MIB, second)
        else:
            getattr(deaths, what)(tenant, second)
        deaths.check(tenant)
        self.done[both] += 1


@pytest.mark.parametrize("thin", [False, True], ids=["thick", "thin"])
def test_every_volume_is_as_promised_or_gone(
    group: str, lvm: Lvm, tmp_path: Path, thin: bool
) -> None:
    print(f"seed {SEED}")
    began = time.monotonic()
    if thin:
        lvm.create_pool(group, "pool", 128 * MIB)
    lvm.create(group, "theirs", 8 * MIB)
    deaths = Deaths(tmp_path, lvm, "pool" if thin else "")
    rounds = Rounds(deaths, SEED + thin)
    kills = KILLS // 2
    try:
        for _ in range(4 * kills):
            if deaths.orders.hits().total() >= kills:
                break
            rounds.one()
        deaths.orders.give(None)
        for tenant in list(deaths.tenants.values()):
            if tenant.snapshots:
                deaths.unsnapshot(tenant)
        deaths.check()
        for tenant in list(deaths.tenants.values()):
            deaths.remove(tenant)
        deaths.check()
    except BaseException:
        print(f"seed {SEED}: {rounds.last}")
        raise
    finally:
        print(f"{dict(rounds.done)}, {deaths.lives} lives, {dict(deaths.orders.hits())}")
        print(f"{time.monotonic() - began:.0f} s")
    assert deaths.orders.hits().total() >= kills


# --- an agent that does wrong is noticed, else the test above could not fail ---------------------


@pytest.fixture
def deaths(group: str, lvm: Lvm, tmp_path: Path) -> Deaths:
    return Deaths(tmp_path, lvm, "")


def test_zeroing_that_is_only_said_is_noticed(
    deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lvmmake, "zero_for", lambda node, *_: (os.stat(node).st_size, True))
    with pytest.raises(AssertionError, match=r"handed out with b'.*somebody"):
        deaths.make(raw=True, mib=8)


def test_zeros_that_are_written_down_too_early_are_noticed(
    deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that writes `zeroed` before it is so, and dies."""
    deaths.orders.give(Order("process", "zero", 1, "before"))
    create = lvmmake._create

    def early(tools: Any, seen: Any, begun: Record) -> None:
        create(tools, seen, begun)
        volume = tools.made(seen, begun.name)
        fields = {**decode(volume.tags), ZEROED: str(volume.size_bytes)}
        tools.retag(volume, fields)

    monkeypatch.setattr(lvmmake, "_create", early)
    with pytest.raises(AssertionError, match=r"handed out with b'.*somebody"):
        deaths.make(raw=True, mib=8)


def test_what_is_lost_left_or_suspended_is_noticed(deaths: Deaths) -> None:
    tenant = deaths.make(raw=True, mib=8)
    deaths.check()
    command("dmsetup", "suspend", f"{GROUP}-pvc--1")
    with pytest.raises(AssertionError):
        deaths.check()
    command("dmsetup", "resume", f"{GROUP}-pvc--1")
    write(deaths.node(tenant.name), bytes(65536))
    with pytest.raises(AssertionError, match="its data is gone"):
        deaths.check()
    tenant.record = dataclasses.replace(tenant.record, size_bytes=12 * MIB)
    with pytest.raises(AssertionError):
        deaths.check()
    deaths.tenants.clear()
    with pytest.raises(AssertionError):
        deaths.check()
