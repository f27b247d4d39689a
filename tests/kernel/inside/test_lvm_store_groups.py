"""Groups of snapshots of thin volumes: all of one moment, all or none, and nothing stays frozen."""

import fcntl
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from localvolume.backends.lvm.store import LvmStore
from localvolume.backends.lvm.together import why_not
from localvolume.backends.model import BackendFailed, Busy, Impossible, NoSpace, Record
from localvolume.host.lvm.commands import Lvm
from localvolume.host.process.commands import Finished
from localvolume.host.process.commandsync import Run
from localvolume.host.syscalls import closed_after
from tests.host.support_copies import Writer, last_of
from tests.host.support_devices import mounted
from tests.host.support_images import run_here
from tests.host.support_mounts import MS_BIND, mount, umount
from tests.suite.units import MIB

from .support_lvm_groups import (
    FREEZE,
    THAW,
    all_mounted,
    can_nest,
    cut,
    members,
    nesting,
    nothing_left,
    roomy,
    still_writable,
    until_thawed,
    volumes,
)
from .support_lvm_store import Pool, read, write
from .test_lvm_store_crashes import Dying
from .test_lvm_store_snapshots import clone, remove

__all__ = ["roomy"]


def is_cut(argv: Sequence[str]) -> bool:
    return "lvcreate" in argv and "--snapshot" in argv


class Meddling:
    """Runs commands; does something else right before the second snapshot is cut."""

    def __init__(self, meddle: Callable[[], object]) -> None:
        self._meddle = meddle
        self._cuts = 0

    def __call__(self, argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        self._cuts += is_cut(argv)
        if is_cut(argv) and self._cuts == 2:
            self._meddle()
        return run_here(argv, timeout, **more)


def agent_on(pool: Pool, run: Run, **more: Any) -> LvmStore:
    """Another agent of the same pool."""
    pool.store.close()
    return LvmStore(pool.store.config, run, locks=pool.store.locks, **more)


def test_an_older_linux_cuts_no_volumes_together_and_says_so(thin: Pool) -> None:
    told = thin.store.look().abilities.no_groups
    assert told == why_not(os.uname().release)
    origins = volumes(thin, "ext4", "ext4")
    if can_nest():
        assert len(cut(thin.store, origins)) == 2
        return
    with all_mounted(thin, origins) as places:
        with pytest.raises(Impossible, match=r"takes Linux 6\.8 or later"):
            cut(thin.store, origins)
        still_writable(places)
    nothing_left(thin, origins)


@nesting
def test_what_is_written_to_several_volumes_in_turn_is_in_the_snapshots_in_that_turn(
    roomy: Pool,
) -> None:
    origins = volumes(roomy, "ext4", "xfs", "ext4")
    with (
        all_mounted(roomy, origins) as places,
        Writer([where / "log" for where in places]) as writer,
    ):
        least = writer.turn - 1
        taken = cut(roomy.store, origins)
        most, found = writer.turn, []
        assert len({one.cut_at for one in taken}) == 1
        assert {(one.group, one.group_size, one.state) for one in taken} == {("g", 3, "offered")}
        for number, one in enumerate(taken):
            clone(roomy, one, f"c{number}")
            with roomy.mounted(f"c{number}") as where:
                found.append(last_of(where / "log"))
        assert found[0] in (found[-1], found[-1] + 1)
        assert found == sorted(found, reverse=True)
        assert least <= found[-1]
        assert found[0] <= most
        still_writable(places)


@nesting
def test_volumes_that_nobody_uses_and_read_only_ones_are_cut_with_the_others(roomy: Pool) -> None:
    origins = volumes(roomy, "raw", "ext4", "ext4", "ext4")
    write(roomy.node("o0"), b"tenant data")
    for one in origins[1:]:
        with roomy.mounted(one.name) as where:
            (where / "file").write_text("tenant data")
    with all_mounted(roomy, origins[1:3]) as places, mounted(roomy.node("o3"), options="ro"):
        taken = cut(roomy.store, origins)
        still_writable(places)
    # As the agent finds them later.
    assert {name: one for name, one in roomy.store.look().records.items() if one.group} == {
        one.name: one for one in taken
    }
    assert not any(roomy.there(one.name).active for one in taken)
    clone(roomy, taken[0], "c0")
    assert read(roomy.node("c0"), 11) == b"tenant data"
    for number, one in enumerate(taken[1:], 1):
        clone(roomy, one, f"c{number}")
        with roomy.mounted(f"c{number}") as where:
            assert (where / "file").read_text() == "tenant data"


@nesting
def test_raw_blocks_in_use_are_cut_in_their_turn_too(roomy: Pool) -> None:
    origins = volumes(roomy, "ext4", "raw", "ext4")
    node = Path(roomy.node("o1"))
    with (
        all_mounted(roomy, [origins[0], origins[2]]) as (first, last),
        closed_after(os.open(node, os.O_RDWR | os.O_EXCL)),
        Writer([first / "log", node, last / "log"]),
    ):
        taken = cut(roomy.store, origins)
    for number, one in enumerate(taken):
        clone(roomy, one, f"c{number}")
    found = [last_of(Path(roomy.node("c1")))]
    for at in (0, 2):
        with roomy.mounted(f"c{at}") as where:
            found.insert(at, last_of(where / "log"))
    assert found[0] in (found[-1], found[-1] + 1)
    assert found == sorted(found, reverse=True)
    assert found[-1]


@nesting
def test_two_volumes_of_raw_blocks_in_use_are_not_cut_together_and_nothing_is_left(
    thin: Pool, tmp_path: Path
) -> None:
    """Programs in pods open a device plainly: nobody else learns of that but by its mount."""
    origins = volumes(thin, "ext4", "raw", "raw")
    with ExitStack() as stack:
        where = stack.enter_context(thin.mounted("o0"))
        for name in ("o1", "o2"):
            target = tmp_path / name
            target.touch()
            mount(os.path.realpath(thin.node(name)), str(target), flags=MS_BIND)
            stack.callback(umount, str(target))
            stack.enter_context(closed_after(os.open(target, os.O_RDWR)))
        with pytest.raises(Busy, match="o2 is a block device that is in use"):
            cut(thin.store, origins)
        still_writable([where])
        nothing_left(thin, origins)
    assert len(cut(thin.store, origins)) == 3


@nesting
def test_what_somebody_else_froze_stays_frozen_and_the_others_do_not(thin: Pool) -> None:
    origins = volumes(thin, "ext4", "ext4")
    with all_mounted(thin, origins) as places:
        fd = os.open(places[1], os.O_RDONLY)
        fcntl.ioctl(fd, FREEZE, 0)
        try:
            with pytest.raises(Busy, match="frozen already, by somebody else"):
                cut(thin.store, origins)
            still_writable(places[:1])
            with pytest.raises(OSError, match="busy"):
                fcntl.ioctl(fd, FREEZE, 0)
        finally:
            fcntl.ioctl(fd, THAW, 0)
            os.close(fd)
        nothing_left(thin, origins)
        assert len(cut(thin.store, origins)) == 2


@nesting
def test_one_that_fails_takes_the_others_along_and_all_are_thawed(thin: Pool, lvm: Lvm) -> None:
    """Somebody else makes a volume of its name: LVM refuses, and theirs is left alone."""
    origins = volumes(thin, "ext4", "ext4", "ext4")
    agent = agent_on(thin, Meddling(lambda: lvm.create(thin.group, "g-o1", 4 * MIB)))
    with all_mounted(thin, origins) as places:
        with pytest.raises(BackendFailed, match="already exists"):
            cut(agent, origins)
        still_writable(places)
        agent.close()
        nothing_left(thin, origins, "g-o1")
        with pytest.raises(BackendFailed, match="g-o1"):
            cut(thin.store, origins)
        lvm.remove(thin.there("g-o1"))
        assert len(cut(thin.store, origins)) == 3


@nesting
def test_a_group_that_would_hold_up_its_users_for_too_long_is_refused_before(thin: Pool) -> None:
    origins = volumes(thin, "ext4", "ext4")
    cuts = []

    def run(argv: Sequence[str], timeout: float, **more: Any) -> Finished:
        cuts.extend(["cut"] * is_cut(argv))
        return run_here(argv, timeout, **more)

    agent = agent_on(thin, run, still_seconds=0.001)
    with all_mounted(thin, origins) as places:
        with pytest.raises(BackendFailed, match="make smaller groups"):
            cut(agent, origins)
        still_writable(places)
    agent.close()
    assert not cuts
    nothing_left(thin, origins)


@nesting
def test_what_takes_too_long_is_thawed_meanwhile_and_counts_for_nothing(thin: Pool) -> None:
    """LVM gets on only once somebody could write: the first snapshot and the second would differ
    by that."""
    origins = volumes(thin, "ext4", "ext4")
    with all_mounted(thin, origins) as places:
        agent = agent_on(thin, Meddling(lambda: still_writable(places)))
        with pytest.raises(BackendFailed, match="others could not wait any more"):
            cut(agent, origins)
        agent.close()
        still_writable(places)
        nothing_left(thin, origins)
        assert len(cut(thin.store, origins)) == 2


@nesting
def test_there_is_room_for_all_or_for_none(thin: Pool) -> None:
    origins = volumes(thin, "raw", "raw", "raw", "raw")
    for one in origins:
        write(thin.node(one.name), b"x" * (8 * MIB))
    # 64 MiB, of which 32 are promised to the volumes, and 16 to another.
    thin.offer("other", 16, volume_mode="Block")
    with pytest.raises(NoSpace):
        cut(thin.store, origins)
    nothing_left(thin, [*origins, thin.store.look().records["other"]])
    taken = cut(thin.store, origins[:2], "two")
    assert [one.holds_bytes for one in taken] == [8 * MIB, 8 * MIB]


@nesting
def test_what_is_gone_or_left_is_never_completed(thin: Pool) -> None:
    origins = volumes(thin, "ext4", "ext4")
    asked = members(origins)
    first = thin.store.cut_together(asked)[0]
    assert {one.state for one in thin.store.look().records.values() if one.group} == {"made"}
    thin.store.take_away(first)
    with pytest.raises(BackendFailed, match="not completed"):
        thin.store.cut_together(asked)
    thin.store.take_away(thin.store.look().records["g-o1"])
    given = thin.store.offered(origins[0], given="another", generation=1)
    with pytest.raises(BackendFailed, match="was given to another claim meanwhile"):
        thin.store.cut_together(asked)
    with pytest.raises(BackendFailed, match="was given to another claim meanwhile"):
        thin.store.copy(asked[0][0], origins[0])
    assert thin.store.look().records[given.name] == given
    asked = [(asked[0][0], given), *asked[1:]]
    grown = thin.store.grow(given, 24 * MIB)
    with pytest.raises(BackendFailed, match="has grown meanwhile"):
        thin.store.cut_together(asked)
    remove(thin, grown)
    with pytest.raises(BackendFailed, match="is not there"):
        thin.store.cut_together(asked)
    nothing_left(thin, origins[1:])


@nesting
@pytest.mark.parametrize(
    "order",
    [
        ("a", "sb", "b", "sa"),
        pytest.param(("sa", "sb", "b", "a"), marks=pytest.mark.soak),
        pytest.param(("b", "a", "sa", "sb"), marks=pytest.mark.soak),
        pytest.param(("sb", "a", "sa", "b"), marks=pytest.mark.soak),
    ],
)
def test_they_go_in_any_order_and_no_other_is_harmed(thin: Pool, order: tuple[str, ...]) -> None:
    origins = [thin.offer(one, 8, volume_mode="Block") for one in "ab"]
    for one in "ab":
        write(thin.node(one), one.encode() * MIB)
    taken = cut(thin.store, origins, "s")
    there = {one.name.replace("s-", "s"): one for one in (*origins, *taken)}
    for at, name in enumerate(order, 1):
        remove(thin, there[name])
        for left in order[at:]:
            called = there[left].name
            thin.lvm.activate(thin.there(called))
            assert read(thin.node(called), MIB) == left[-1].encode() * MIB
            if left.startswith("s"):
                thin.lvm.deactivate(thin.there(called))
    nothing_left(thin, [])


@nesting
def test_an_agent_that_ends_between_any_two_commands_leaves_all_or_nothing(thin: Pool) -> None:
    origins = volumes(thin, "ext4", "ext4")
    wholes = parts = 0
    with all_mounted(thin, origins) as places:
        for left in count():
            run = Dying(left)
            agent = agent_on(thin, run)
            try:
                agent.cut_together(members(origins))
            except BackendFailed:
                assert run.died, "it failed though nobody died"
            agent.close()
            for where in places:
                until_thawed(where)
            wholes, parts = seen(thin, origins, wholes, parts)
            if not run.died:
                break
    assert wholes >= 1
    assert parts >= 4


def seen(pool: Pool, origins: Sequence[Record], wholes: int, parts: int) -> tuple[int, int]:
    """How many groups were whole, and how many not; what is left is taken away, as agents do."""
    left = [one for one in pool.store.look().records.values() if one.group]
    whole = [one.state for one in left] == ["made", "made"]
    for one in left:
        assert (one.group, one.group_size) == ("g", 2)
        pool.store.take_away(one)
    nothing_left(pool, origins)
    return wholes + whole, parts + bool(left and not whole)
