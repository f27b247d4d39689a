"""kill -9 of a pool's agent, and SIGKILL of the commands it runs, while logical volumes are made,
grown, snapshotted and removed: each is what it was promised to be, or was never told of, or gone.

The group's extents hold a pattern before, and raw volumes are all zeros when they are handed out.

One volume's life for each point, with a death in each call; in the soak, many lives at random.
"""

import contextlib
import dataclasses
import os
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.lvm import making
from localvolume.backends.lvm.record import ZEROED
from localvolume.backends.model import Record
from localvolume.host.lvm.commands import Lvm
from localvolume.volumes.lvtags import decode
from tests.host.support_devices import command
from tests.suite import chance
from tests.suite.chance import SEED
from tests.suite.units import MIB

from .support_kills import Chooser, Order, deaths_at, seconds_of
from .support_looks import GROUP
from .support_lvm_deaths import Deaths, Tenant, group_of_pattern
from .support_lvm_store import write

_MOST = 4
_TWICE = ("lvcreate", "lvchange-tag")
#: In which order a volume is called for, and at which points of each call the agent dies.
_POINTS = {
    "make": deaths_at("lvcreate", "mkfs.ext4", "debugfs", "lvchange-tag"),
    "offer": deaths_at("lvchange-tag"),
    "grow": deaths_at("lvextend", "grow_ext4", "lvchange-tag"),
    "remove": deaths_at("lvchange-tag", "lvchange-down", "zero", "lvremove"),
}
#: A copy begins with a volume that is removed, so that the pool has none of its number.
_CUT = (
    *deaths_at("lvcreate", "lvremove", "lvchange-tag"),
    Order("process", "lvcreate", 2, "before"),
    Order("process", "lvcreate", 2, "after"),
)
_POINTS_COPIES = {
    "make": deaths_at("lvcreate"),
    "snapshot": _CUT,
    "clone": (*_CUT, *deaths_at("lvextend", "e2fsck", "tune2fs", "grow_ext4")),
    "grow": deaths_at("lvextend"),
    "unsnapshot": deaths_at("lvchange-tag", "lvremove"),
    "remove": deaths_at("lvremove"),
}
#: Of a thick volume: the copy, its cut, what is recorded of it, and both become what they stay.
_FULL = (
    *deaths_at("lvcreate", "lvchange-tag", "lvremove", "lvchange-down", "lvchange-refresh"),
    *(Order("process", what, 2, when) for what in _TWICE for when in ("before", "after")),
    *(Order("command", what) for what in ("lvcreate", "lvremove", "lvchange-down")),
    Order("command", "lvcreate", 2),
)
_POINTS_FULL = {
    "make": deaths_at("lvcreate"),
    "snapshot": _FULL,
    "clone": deaths_at("lvcreate", "lvchange-up", "lvchange-tag", "lvchange-down", "e2fsck"),
    "unsnapshot": deaths_at("lvchange-tag", "lvremove"),
    "remove": deaths_at("lvremove"),
}
_POINTS_RESERVE = {
    "make": deaths_at("lvcreate"),
    "snapshot": (
        *deaths_at("lvcreate", "lvchange-tag"),
        *(Order("command", what) for what in _TWICE),
    ),
    "clone": (*deaths_at("lvcreate", "lvchange-tag", "e2fsck"), Order("command", "lvchange-tag")),
    "unsnapshot": (*deaths_at("lvchange-tag", "lvremove"), Order("command", "lvremove")),
    "remove": (*deaths_at("lvchange-down", "lvremove"), Order("command", "lvremove")),
}
_BETWEEN = {
    "make": deaths_at("mkfs.ext4"),
    "offer": deaths_at("lvchange-tag"),
    "grow": deaths_at("grow_ext4"),
    "remove": deaths_at("zero"),
}
_POINTS_RAW = {
    "make": deaths_at("lvcreate", "zero", "lvchange-tag"),
    "grow": deaths_at("lvcreate", "zero", "lvremove", "lvextend", "lvchange-tag"),
    "remove": deaths_at("lvremove"),
}
#: The pool itself zeroes what it hands out: nothing is set aside to grow by, and zeroed.
_POINTS_RAW_THIN = {
    "make": deaths_at("lvcreate", "lvchange-tag"),
    "grow": deaths_at("lvextend", "lvchange-tag"),
    "remove": deaths_at("lvremove"),
}
_BETWEEN_RAW = {
    "make": deaths_at("zero"),
    "grow": deaths_at("zero"),
    "remove": deaths_at("lvremove"),
}
_MOSTLY = {
    "make": (("lvcreate", "lvchange-tag", "mkfs.ext4", "debugfs", "lvs"), ()),
    "make raw": (("lvcreate", "lvchange-tag"), ("zero",)),
    "offer": (("lvchange-tag", "lvs"), ()),
    "grow": (("lvextend", "lvchange-tag", "lvs"), ("grow_ext4",)),
    "grow raw": (("lvcreate", "lvremove", "lvextend", "lvchange-tag"), ("zero",)),
    "remove": (("lvchange-down", "lvchange-tag", "lvchange-up", "lvremove"), ("zero",)),
    "snapshot": (("lvcreate", "lvremove", "lvchange-tag", "lvs"), ()),
    "clone": (("lvcreate", "lvextend", "e2fsck", "tune2fs", "lvchange-tag"), ("grow_ext4",)),
    "unsnapshot": (("lvremove", "lvchange-down"), ()),
}


@pytest.fixture
def group() -> Iterator[str]:
    with group_of_pattern():
        yield GROUP


class Rounds:
    """One call after the other, with a death in each."""

    def __init__(self, deaths: Deaths) -> None:
        self.deaths = deaths
        self.done: Counter[str] = Counter()
        self.last = ""

    def one(
        self,
        what: str,
        tenant: Tenant | None,
        order: Order,
        *,
        raw: bool,
        overwrite: bool | None = None,
        second: Order | None = None,
    ) -> tuple[Tenant, bool]:
        """What the call is about, of which all is as promised, and whether an agent has died as
        ordered. With None a volume is made."""
        deaths = self.deaths
        whose = (tenant.name, tenant.record.size_bytes >> 20) if tenant else ""
        self.last = f"{what}{' raw' if raw else ''} {whose}: {order}, {second}"
        print(self.last, flush=True)
        number = deaths.orders.give(order)
        if tenant is None:
            tenant = deaths.make(raw=raw, mib=12, overwrite=overwrite, second=second)
        elif what == "grow":
            deaths.grow(tenant, tenant.record.size_bytes + 8 * MIB, second)
        else:
            getattr(deaths, what)(tenant, second)
        deaths.check(tenant)
        self.done[what] += 1
        return tenant, deaths.orders.was_met(number)


class Draws:
    """What happens next, at random."""

    def __init__(self, rounds: Rounds, dice: random.Random) -> None:
        self._rounds = rounds
        self._dice = dice
        deaths = rounds.deaths
        self._chooser = Chooser(dice, seconds_of(lambda: deaths.lvm.volumes(GROUP)))

    def one(self) -> None:
        tenants = list(self._rounds.deaths.tenants.values())
        plain = [one for one in tenants if not one.snapshots]
        snapshotted = [one for one in tenants if one.snapshots]
        # All take room: of four volumes of up to 24 MiB and one snapshot there is as much as is
        # needed.
        small = [one for one in plain if one.record.size_bytes < 20 * MIB]
        choices: list[tuple[str, list[Any]]] = [
            ("grow", small),
            ("grow", small),
            ("offer", [one for one in tenants if one.record.state == "made"]),
            ("remove", plain),
            ("snapshot", plain if self._rounds.deaths.thin_pool and not snapshotted else []),
            ("clone", snapshotted if len(tenants) < _MOST else []),
            ("unsnapshot", snapshotted),
        ]
        if len(tenants) < _MOST:
            choices += [("make", [None])] * 3
        what, whom = self._dice.choice([one for one in choices if one[1]])
        tenant = self._dice.choice(whom)
        raw = self._dice.random() < 0.5 if tenant is None else tenant.raw
        mostly, steps = _MOSTLY[f"{what} raw" if raw and what in ("make", "grow") else what]
        order = self._chooser.order(mostly, steps)
        second = None
        if self._dice.random() < 0.4:
            second = self._chooser.order(("lvs", "dmsetup", *mostly))
        self._rounds.one(what, tenant, order, raw=raw, second=second)


either = pytest.mark.parametrize("thin", [False, True], ids=["thick", "thin"])


@contextlib.contextmanager
def play(group: str, lvm: Lvm, directory: Path, thin: bool, reserve: int = 0) -> Iterator[Rounds]:
    """Volumes beside one that is somebody else's; in the end all go."""
    print(f"seed {SEED}")
    began = time.monotonic()
    if thin:
        lvm.create_pool(group, "pool", 128 * MIB)
    lvm.create(group, "theirs", 8 * MIB)
    deaths = Deaths(directory, lvm, "pool" if thin else "", reserve)
    rounds = Rounds(deaths)
    try:
        yield rounds
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


@pytest.mark.parametrize("raw", [False, True], ids=["ext4", "raw"])
def test_killed_between_commands_every_volume_is_as_promised_or_gone(
    group: str, lvm: Lvm, tmp_path: Path, raw: bool
) -> None:
    """What test_lvm_store_crashes.py does not come to: it stops before each command."""
    with play(group, lvm, tmp_path, False) as rounds:
        live(rounds, _BETWEEN_RAW if raw else _BETWEEN, raw=raw)


@pytest.mark.soak
@either
@pytest.mark.parametrize("raw", [False, True], ids=["ext4", "raw"])
def test_killed_at_each_point_every_volume_is_as_promised_or_gone(
    group: str, lvm: Lvm, tmp_path: Path, thin: bool, raw: bool
) -> None:
    with play(group, lvm, tmp_path, thin) as rounds:
        points = (_POINTS_RAW_THIN if thin else _POINTS_RAW) if raw else _POINTS
        live(rounds, points, raw=raw)


def live(
    rounds: Rounds,
    points: Mapping[str, Sequence[Order]],
    *,
    raw: bool,
    overwrite: bool = True,
) -> None:
    """A volume's life for each point of the call that has most of them."""
    for life in range(max(map(len, points.values()))):
        tenant = None
        for what, orders in points.items():
            order = orders[life % len(orders)]
            tenant, met = rounds.one(what, tenant, order, raw=raw, overwrite=overwrite)
            # Nothing is overwritten in a thin volume.
            thin = rounds.deaths.thin_pool and order.what == "zero"
            assert met or thin, f"{order} was never met in {what}"


@pytest.mark.soak
def test_killed_at_each_point_every_copy_is_as_promised_or_gone(
    group: str, lvm: Lvm, tmp_path: Path
) -> None:
    with play(group, lvm, tmp_path, True) as rounds:
        live(rounds, _POINTS_COPIES, raw=False)


@pytest.mark.soak
def test_killed_at_each_point_every_full_copy_is_as_promised_or_gone(
    group: str, lvm: Lvm, tmp_path: Path
) -> None:
    with play(group, lvm, tmp_path, False) as rounds:
        # What is to be overwritten at its end is not copied in full.
        live(rounds, _POINTS_FULL, raw=False, overwrite=False)


@pytest.mark.soak
def test_killed_at_each_point_every_reserve_is_as_promised_or_gone(
    group: str, lvm: Lvm, tmp_path: Path
) -> None:
    with play(group, lvm, tmp_path, False, reserve=8 * MIB) as rounds:
        live(rounds, _POINTS_RESERVE, raw=False, overwrite=False)


@pytest.mark.soak
@either
def test_killed_at_any_moment_every_volume_is_as_promised_or_gone(
    group: str, lvm: Lvm, tmp_path: Path, thin: bool
) -> None:
    with play(group, lvm, tmp_path, thin) as rounds:
        draws = Draws(rounds, random.Random(SEED))
        for _ in chance.rounds():
            draws.one()
    # Of a few, none may have met its point.
    assert 4 * rounds.deaths.orders.hits().total() >= rounds.done.total() - 8


def test_whichever_look_is_killed_a_removal_goes_on(group: str, lvm: Lvm, tmp_path: Path) -> None:
    """A report that failed has no volumes in it, and that proves nothing of them."""
    with play(group, lvm, tmp_path, False) as rounds:
        for number in range(1, 5):
            tenant = rounds.deaths.make(raw=True, mib=8, overwrite=True)
            rounds.deaths.offer(tenant)
            order = Order("command", "fullreport", number)
            _, met = rounds.one("remove", tenant, order, raw=True)
            assert met, order


# --- an agent that does wrong is noticed, else the tests above could not fail --------------------


@pytest.fixture
def deaths(group: str, lvm: Lvm, tmp_path: Path) -> Deaths:
    return Deaths(tmp_path, lvm, "")


@pytest.mark.soak
def test_zeroing_that_is_only_said_is_noticed(
    deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "zero_for", lambda node, *_: (os.stat(node).st_size, True))
    with pytest.raises(AssertionError, match=r"handed out with b'.*somebody"):
        deaths.make(raw=True, mib=8)


@pytest.mark.soak
def test_zeros_that_are_written_down_too_early_are_noticed(
    deaths: Deaths, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that writes `zeroed` before it is so, and dies."""
    deaths.orders.give(Order("process", "zero", 1, "before"))
    create = making._create

    def early(tools: Any, seen: Any, begun: Record) -> None:
        create(tools, seen, begun)
        volume = tools.made(begun.name)
        fields = {**decode(volume.tags), ZEROED: str(volume.size_bytes)}
        tools.retag(volume, fields)

    monkeypatch.setattr(making, "_create", early)
    with pytest.raises(AssertionError, match=r"handed out with b'.*somebody"):
        deaths.make(raw=True, mib=8)


@pytest.mark.soak
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
