"""Which quota groups of btrfs belong to no subvolume any more."""

from localvolume.host.btrfs import limits


def test_which_groups_are_stale() -> None:
    """Linux 6.11 deletes them itself and lets nobody make one, so that none can be had here.

    One above all subvolumes may belong to one that is just being made.
    """
    known = {5, 256, 259}
    numbers = (5, 255, 256, 257, 258, 259, 260, 7 << 48)
    assert [one for one in numbers if limits._is_stale(one, known)] == [257, 258]
