"""What the kernel refuses the btrfs backend, and what that says of it."""

from collections.abc import Iterator

import pytest

from localvolume.backends.btrfs.backend import BtrfsBackend
from localvolume.backends.model import BackendFailed
from tests.host.support_btrfs import Pool, fill, pool
from tests.host.support_devices import command, immutable
from tests.suite.units import MIB

pytestmark = pytest.mark.needs("root", "loop", "btrfs")


@pytest.fixture
def here() -> Iterator[Pool]:
    with pool() as one:
        yield one


def test_while_everything_is_counted_no_size_is_promised(here: Pool) -> None:
    """Limits are not kept until then. Where nobody waits, what was begun just now goes on."""
    hasty = BtrfsBackend(counting=(0.0, 0.0))
    with pytest.raises(BackendFailed, match="btrfs is counting everything anew"):
        hasty.make(here.fd, here.path, here.record("a"))
    assert list((here.root / ".localvolume/making").iterdir()) == []
    command("btrfs", "quota", "disable", here.root)
    found = hasty.abilities(here.fd, here.path)
    assert not found.enforce
    assert "btrfs is counting everything anew" in found.why_not
    assert here.backend.abilities(here.fd, here.path).enforce


def test_one_without_a_limit_grows_without_one(here: Pool) -> None:
    record = here.make("a", enforced=False, size_bytes=2 * MIB)
    grown = here.backend.grow(here.fd, here.path, record, 4 * MIB)
    assert grown.size_bytes == 4 * MIB
    assert fill(here.root / "a/file", 8 * MIB) == (8 * MIB, 0)


def test_a_subvolume_that_the_kernel_keeps_stays_in_the_trash(here: Pool) -> None:
    """Somebody has made it the one that is mounted by default."""
    record = here.make("a")
    (here.root / "a/file").write_text("tenant data")
    command("btrfs", "subvolume", "set-default", str(record.inode), here.root)
    removed = here.retire(record)
    try:
        with pytest.raises(BackendFailed, match="cannot be deleted: Operation not permitted"):
            here.purge(removed)
    finally:
        command("btrfs", "subvolume", "set-default", "5", here.root)
    kept = here.root / ".localvolume/trash" / removed.trash / "file"
    assert kept.read_text() == "tenant data"
    here.purge(removed)
    assert not kept.parent.exists()


def test_one_that_cannot_be_taken_away_is_told_of(here: Pool) -> None:
    record = here.backend.make(here.fd, here.path, here.record("a"))
    place = here.root / ".localvolume/making/a"
    with immutable(place), pytest.raises(PermissionError):
        here.backend.unmake(here.fd, here.path, record)
    assert place.exists()
    here.backend.unmake(here.fd, here.path, record)
    assert not place.exists()
