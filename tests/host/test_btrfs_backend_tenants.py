"""What tenants do inside a btrfs volume to have more than their share, or to keep it for ever."""

import contextlib
import dataclasses
import errno
import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import msgspec
import pytest

from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.host.btrfs import quota, subvolumes
from tests.host.support_btrfs import (
    AS_NOBODY,
    MAKE_CHARGED_TO,
    PATIENT,
    SIZE,
    Pool,
    as_nobody,
    fill,
    identity_of,
    pool,
)
from tests.host.support_devices import command, flush
from tests.host.support_pools import store_in
from tests.suite.units import MIB
from tests.suite.until import until

pytestmark = pytest.mark.needs("root", "loop", "btrfs")

BOTH = pytest.mark.parametrize("simple", [False, True], ids=["full", "simple"])


@pytest.fixture
def here() -> Iterator[Pool]:
    with pool() as one:
        yield one


@contextlib.contextmanager
def ioctls(wanted: int) -> Iterator[list[bytes]]:
    """What the kernel has answered to ioctls of that number meanwhile."""
    real, answers = fcntl.ioctl, []

    def noted(fd: int, number: int, request: Any = 0) -> Any:
        answer = real(fd, number, request)
        if number == wanted:
            answers.append(bytes(request))
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fcntl, "ioctl", noted)
        yield answers


def items_in(answers: list[bytes]) -> int:
    """How many items searches have found."""
    return sum(int.from_bytes(one[64:68], "little") for one in answers)


def subvolume(path: object) -> None:
    command("btrfs", "subvolume", "create", str(path))


class TestSubvolumesInside:
    @BOTH
    def test_without_a_look_they_are_not_counted(self, simple: bool) -> None:
        """What the docstrings say of btrfs; should the kernel learn it, this tells us."""
        with pool(simple=simple) as here:
            here.make("a")
            subvolume(here.root / "a/inner")
            assert fill(here.root / "a/inner/file", 2 * SIZE) == (2 * SIZE, 0)

    def test_anybody_may_make_them(self, here: Pool) -> None:
        record = here.make("a")
        as_nobody(MAKE_CHARGED_TO, here.root / "a", "inner")
        assert "1 subvolumes or snapshots were made inside it" in here.usage(record).problem

    @BOTH
    def test_found_they_share_the_limit(self, simple: bool) -> None:
        with pool(simple=simple) as here:
            record = here.make("a")
            subvolume(here.root / "a/inner")
            fill(here.root / "a/file", 20 * MIB)
            fill(here.root / "a/inner/file", 20 * MIB)
            usage = here.usage(record)
            assert usage.used_bytes == pytest.approx(40 * MIB, rel=0.01)
            assert usage.available_bytes == pytest.approx(10 * MIB, rel=0.05)
            assert usage.problem
            written, error = fill(here.root / "a/inner/more", SIZE)
            assert error == errno.EDQUOT
            assert written == pytest.approx(10 * MIB, rel=0.05)
            assert here.usage(record).available_bytes == pytest.approx(0, abs=0.5 * MIB)
            assert fill(here.root / "a/more", MIB)[1] == errno.EDQUOT
            assert fill(here.root / "a/inner/more", MIB)[1] == errno.EDQUOT

    def test_at_any_depth(self, here: Pool) -> None:
        record = here.make("a")
        subvolume(here.root / "a/one")
        (here.root / "a/one/directory").mkdir()
        subvolume(here.root / "a/one/directory/two")
        fill(here.root / "a/one/directory/two/file", 20 * MIB)
        assert here.usage(record).used_bytes == pytest.approx(20 * MIB, rel=0.01)
        assert fill(here.root / "a/one/directory/two/more", SIZE)[1] == errno.EDQUOT

    @BOTH
    def test_beyond_the_limit_before_they_were_found(self, simple: bool) -> None:
        with pool(simple=simple) as here:
            record, other = here.make("a"), here.make("b")
            subvolume(here.root / "a/inner")
            fill(here.root / "a/inner/file", 2 * SIZE)
            usage = here.usage(record)
            assert usage.used_bytes == pytest.approx(2 * SIZE, rel=0.01)
            assert usage.available_bytes == 0
            for _ in range(3):
                assert fill(here.root / "a/inner/more", MIB)[1] == errno.EDQUOT
                assert fill(here.root / "a/more", MIB)[1] == errno.EDQUOT
                used = here.usage(record).used_bytes
                assert used == pytest.approx(2 * SIZE, rel=0.01)
            assert here.usage(other).available_bytes == SIZE - 16384
            # The way out: files can go, and room comes back.
            (here.root / "a/inner/file").unlink()

            def room() -> int | None:
                flush(here.root)
                return here.usage(record).available_bytes

            # Who writes the file out at that moment holds it, and its end comes after a flush.
            until(room, lambda count: count == pytest.approx(SIZE, rel=0.02))
            assert fill(here.root / "a/more", MIB) == (MIB, 0)

    def test_more_than_a_look_takes_in_hold_nobody_up(self, here: Pool) -> None:
        """A tenant makes thousands in a second; a look that takes too long would stop the pool."""
        here.backend = BtrfsBackend(most_subvolumes=10, counting=PATIENT)
        record, other = here.make("a"), here.make("b")
        for number in range(11):
            subvolume(here.root / f"a/{number}")
        found = here.backend.usage(here.fd, here.path, [record, other])
        assert found["a"].used_bytes is None
        assert found["a"].unbounded
        assert "so many subvolumes or snapshots were made inside it" in found["a"].problem
        assert (found["b"].used_bytes, found["b"].problem) == (16384, "")
        here.purge(here.retire(record))
        assert here.usage(other).problem == ""

    def test_a_neighbour_of_one_with_too_many_keeps_its_limit(self, here: Pool) -> None:
        here.backend = BtrfsBackend(most_subvolumes=10, counting=PATIENT)
        record, other = here.make("a"), here.make("b")
        for number in range(20):
            subvolume(here.root / f"a/{number}")
        for number in range(5):
            subvolume(here.root / f"b/{number}")
        fill(here.root / "b/0/file", 2 * SIZE)
        # Its share is half, whichever comes first.
        for records in ([record, other], [other, record]):
            found = here.backend.usage(here.fd, here.path, records)
            assert found["a"].unbounded
            assert found["b"].used_bytes == pytest.approx(2 * SIZE, rel=0.01)
            for where in ("b/0/file", "b/4/file", "b/file"):
                assert fill(here.root / where, MIB)[1] == errno.EDQUOT

    def test_while_one_has_too_many_its_pool_enforces_no_sizes(self, here: Pool) -> None:
        """So that no volume is made there whose room that one may take."""
        backend = BtrfsBackend(most_subvolumes=10, counting=PATIENT)
        asked = here.record("a", directory="a", enforced=True)
        with store_in(here.root, backend=backend, enforce=True) as store:
            store.offered(store.make(asked))
            for number in range(10):
                subvolume(here.root / f"a/{number}")
            assert store.look().abilities.enforce
            subvolume(here.root / "a/10")
            able = store.look().abilities
            assert not able.enforce
            assert able.why_not.startswith("a: so many subvolumes")
            command("btrfs", "subvolume", "delete", here.root / "a/10")
            assert store.look().abilities.enforce

    def test_what_one_leaves_of_its_share_is_the_others(self, here: Pool) -> None:
        here.backend = BtrfsBackend(most_subvolumes=10, counting=PATIENT)
        record, other = here.make("a"), here.make("b")
        for number in range(9):
            subvolume(here.root / f"a/{number}")
        subvolume(here.root / "b/0")
        found = here.backend.usage(here.fd, here.path, [record, other])
        assert "9 subvolumes" in found["a"].problem
        assert not found["a"].unbounded
        assert "1 subvolumes" in found["b"].problem

    def test_deleted_ones_are_not_read(self, here: Pool) -> None:
        """The kernel lists them until it has freed them, which may take it minutes."""
        record = here.make("a")
        subvolume(here.root / "a/inner")
        with ioctls(subvolumes._IOC_TREE_SEARCH_V2) as before:
            assert "1 subvolumes" in here.usage(record).problem
        with contextlib.ExitStack() as opened:
            for number in range(20):
                gone = here.root / f"a/{number}"
                subvolume(gone)
                # The kernel frees none that somebody has a file open in.
                opened.enter_context((gone / "file").open("w"))
                command("btrfs", "subvolume", "delete", gone)
            subvolumes.commit(here.fd)
            assert len(subvolumes.read_ids(here.fd)) >= 20
            with ioctls(subvolumes._IOC_TREE_SEARCH_V2) as after:
                assert "1 subvolumes" in here.usage(record).problem
        assert items_in(after) == items_in(before)

    def test_the_other_way_out_is_deleting_them(self, here: Pool) -> None:
        record = here.make("a")
        subvolume(here.root / "a/inner")
        fill(here.root / "a/inner/file", 2 * SIZE)
        here.usage(record)
        command("btrfs", "subvolume", "delete", here.root / "a/inner")
        usage = here.usage(record)
        assert usage.problem == ""
        assert usage.available_bytes == SIZE - 16384
        assert quota.read_limit(here.fd, record.inode) == SIZE

    def test_what_is_left_for_deleting_never_exceeds_the_size(self, here: Pool) -> None:
        record = here.make("a")
        subvolume(here.root / "a/inner")
        here.usage(record)
        for number in range(5):
            assert fill(here.root / f"a/file{number}", 2 * SIZE)[1] == errno.EDQUOT
            usage = here.usage(record)
            assert usage.used_bytes is not None
            assert usage.used_bytes <= SIZE + 32768
        assert quota.read_limit(here.fd, record.inode) == SIZE

    def test_measured_as_they_are_by_now(self, here: Pool) -> None:
        record = here.make("a")
        subvolume(here.root / "a/inner")
        fill(here.root / "a/inner/file", 20 * MIB)
        # The first after a subvolume was made commits everything by itself, these do not.
        fill(here.root / "a/inner/file", 10 * MIB)
        usage = here.backend.usage(here.fd, here.path, [record])[record.name]
        assert usage.used_bytes == pytest.approx(30 * MIB, rel=0.01)

    def test_growing_lets_all_of_them_grow(self, here: Pool) -> None:
        record = here.make("a")
        subvolume(here.root / "a/inner")
        here.usage(record)
        grown = here.backend.grow(here.fd, here.path, record, 2 * SIZE)
        assert here.usage(grown).available_bytes == pytest.approx(2 * SIZE, rel=0.01)
        written, error = fill(here.root / "a/inner/file", 3 * SIZE)
        assert error == errno.EDQUOT
        assert written == pytest.approx(2 * SIZE, rel=0.02)

    def test_where_no_size_is_enforced_they_are_measured(self, here: Pool) -> None:
        record = here.make("a", enforced=False)
        subvolume(here.root / "a/inner")
        fill(here.root / "a/inner/file", 2 * SIZE)
        assert here.usage(record).used_bytes == pytest.approx(2 * SIZE, rel=0.01)
        assert fill(here.root / "a/inner/more", MIB) == (MIB, 0)

    def test_their_emptiness_is_not_the_volumes(self, here: Pool) -> None:
        record = here.make("a")
        subvolume(here.root / "a/inner")
        assert not here.backend.is_untouched(here.fd, here.path, record)


class TestSnapshotsInside:
    def test_count_like_copies(self, here: Pool) -> None:
        record = here.make("a")
        fill(here.root / "a/file", 20 * MIB)
        for number in range(2):
            command(
                *("btrfs", "subvolume", "snapshot", "-r"),
                *(here.root / "a", here.root / f"a/kept{number}"),
            )
            usage = here.usage(record)
            assert usage.used_bytes == pytest.approx((number + 2) * 20 * MIB, rel=0.01)
            assert "snapshots were made inside it" in usage.problem
        assert fill(here.root / "a/more", MIB)[1] == errno.EDQUOT

    def test_put_no_counts_out_of_step(self, here: Pool) -> None:
        """Else no other volume's limit would hold until all has been counted anew."""
        record = here.make("a")
        fill(here.root / "a/file", MIB)
        subvolume(here.root / "a/inner")
        here.usage(record)
        for what in ("a", "a/inner"):
            command("btrfs", "subvolume", "snapshot", here.root / what, here.root / "a/kept")
            assert here.usage(record).problem
            assert quota.read_quotas(here.fd).consistent
            command("btrfs", "subvolume", "delete", here.root / "a/kept")
        assert here.usage(record).problem
        assert quota.read_quotas(here.fd).consistent


@BOTH
def test_no_other_volume_can_be_charged(simple: bool) -> None:
    with pool(simple=simple) as here:
        victim = here.make("victim")
        here.make("attacker")
        subvolume(here.root / "victim/inner")
        here.usage(victim)
        assert here.groups() >= {victim.inode}
        for number, target in enumerate(here.groups()):
            with pytest.raises(AssertionError, match="Errno 22"):
                as_nobody(MAKE_CHARGED_TO, here.root / "attacker", f"x{number}", target)
        assert os.listdir(here.root / "attacker") == []


class TestRemoving:
    @BOTH
    def test_with_all_that_is_inside(self, simple: bool) -> None:
        with pool(simple=simple) as here:
            record, kept = here.make("a"), here.make("b")
            subvolume(here.root / "a/one")
            (here.root / "a/one/directory").mkdir()
            subvolume(here.root / "a/one/directory/two")
            fill(here.root / "a/one/directory/two/file", MIB)
            for number in range(3):
                command(
                    *("btrfs", "subvolume", "snapshot", "-r"),
                    *(here.root / "a/one", here.root / f"a/snapshot{number}"),
                )
            here.usage(record)
            here.purge(here.retire(record))
            assert os.listdir(here.root / ".localvolume/trash") == []
            here.has_groups({kept.inode})

    def test_a_full_volume_with_subvolumes_inside(self, here: Pool) -> None:
        """Deleting needs room for a moment, which a full group refuses."""
        record = here.make("a")
        subvolume(here.root / "a/inner")
        subvolume(here.root / "a/inner/innermost")
        fill(here.root / "a/inner/file", 2 * SIZE)
        here.usage(record)
        with pytest.raises(AssertionError, match="quota exceeded"):
            command("btrfs", "subvolume", "delete", here.root / "a/inner/innermost")
        here.purge(here.retire(record))
        here.has_groups(set())

    def test_inside_read_only_ones(self, here: Pool) -> None:
        record = here.make("a")
        subvolume(here.root / "a/one")
        subvolume(here.root / "a/one/two")
        (here.root / "a/one/file").write_text("tenant's")
        command("btrfs", "property", "set", here.root / "a/one", "ro", "true")
        here.purge(here.retire(record))
        here.has_groups(set())

    def test_one_who_keeps_making_them(self, here: Pool) -> None:
        """Whoever still has the volume open."""
        record = here.make("a")
        tenant = subprocess.Popen(
            [sys.executable, "-c", f"{AS_NOBODY}{KEEPS_MAKING}", here.root / "a"],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=subprocess.PIPE,
        )
        try:
            assert tenant.stdout is not None
            assert tenant.stdout.readline() == b"begun\n"
            removed = here.retire(record)
            here.purge(removed)
            assert tenant.wait(120) == 0
        finally:
            tenant.kill()
            tenant.communicate()
        assert os.listdir(here.root / ".localvolume/trash") == []

    def test_nothing_outside_is_deleted(self, here: Pool) -> None:
        record, other = here.make("a"), here.make("b")
        (here.root / "b/file").write_text("another tenant's")
        subvolume(here.root / "a/inner")
        (here.root / "a/inner/link").symlink_to(here.root / "b")
        (here.root / "a/link").symlink_to("../b")
        here.purge(here.retire(record))
        assert (here.root / "b/file").read_text() == "another tenant's"
        assert identity_of(here.root / "b") == other.inode


#: Makes subvolumes in argv[1] until that is refused.
KEEPS_MAKING = """
directory = os.open(sys.argv[1], os.O_RDONLY)
for number in range(1_000_000):
    try:
        subvolumes.create_subvolume(directory, str(number))
    except OSError:
        break
    if number == 20:
        print("begun", flush=True)
"""

#: Does argv[2] in the pool argv[1] to the record argv[3], and dies before its ioctl argv[4].
DIES = """
import fcntl, os, sys, threading
import msgspec
from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.backends.model import Record

real, left = fcntl.ioctl, int(sys.argv[4])

def counted(*args):
    global left
    left -= 1
    if left < 0:
        os._exit(17)
    return real(*args)

fcntl.ioctl = counted
backend, record = BtrfsBackend(), msgspec.json.decode(sys.argv[3], type=Record)
pool = os.open(sys.argv[1], os.O_RDONLY)
more = {"stop": threading.Event()} if sys.argv[2] == "purge" else {}
getattr(backend, sys.argv[2])(pool, sys.argv[1], record, **more)
"""


def dies(here: Pool, act: str, record: object, at: int) -> bool:
    """Whether it died before it had ended."""

    done = subprocess.run(
        [sys.executable, "-c", DIES, here.path, act, msgspec.json.encode(record), str(at)],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode in (0, 17), done.stderr
    return done.returncode == 17


class TestKilled:
    def test_while_making(self, here: Pool) -> None:
        at = 0
        while dies(here, "make", here.record(f"a{at}"), at):
            record = here.record(f"a{at}")
            if at % 2:
                here.backend.unmake(here.fd, here.path, record)
                assert os.listdir(here.root / ".localvolume/making") == []
            else:
                made = here.make(record.name)
                assert here.usage(made).available_bytes == SIZE - 16384
                here.purge(here.retire(made))
            at += 1
        assert at > 5
        here.backend.unmake(here.fd, here.path, here.record(f"a{at}"))
        here.has_groups(set())

    def test_while_purging(self, here: Pool) -> None:
        at = 0
        while True:
            record = here.make("a")
            subvolume(here.root / "a/inner")
            here.usage(record)
            removed = here.retire(record)
            died = dies(here, "purge", removed, at)
            here.purge(removed)
            assert os.listdir(here.root / ".localvolume/trash") == []
            # Those that the dead one deleted are the kernel's to end: it is waited for here.
            until(
                here.groups,
                lambda groups: not groups,
                seconds=120,
                check=partial(subvolumes.sync_and_clean, here.fd),
            )
            if not died:
                break
            at += 1
        assert at > 5

    def test_while_retiring(self, here: Pool) -> None:
        at = 0
        while True:
            record = here.make("a")
            (here.root / "a/file").touch()
            removed = dataclasses.replace(record, state="removed", trash="a.12345678")
            died = dies(here, "retire", removed, at)
            here.backend.retire(here.fd, here.path, removed)
            assert os.listdir(here.root / ".localvolume/trash") == [removed.trash]
            assert os.listdir(here.root / ".localvolume/trash" / removed.trash) == ["file"]
            assert not (here.root / "a").exists()
            here.purge(removed)
            if not died:
                break
            at += 1
        assert at > 1
