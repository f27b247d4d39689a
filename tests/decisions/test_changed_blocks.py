"""Which bytes of two files may differ, from where they lie: never fewer than do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from localvolume.backends.image.blocks import differing
from localvolume.host.filesystem.extents import Extent, Piece, tiled

LAST, ENCODED, DELALLOC, INLINE, UNWRITTEN, MERGED, SHARED = (
    0x1, 0x8, 0x4, 0x200, 0x800, 0x1000, 0x2000
)  # fmt: skip
SIZE = 64


def tiles(*found: Extent, start: int = 0, end: int = SIZE, size: int = SIZE) -> list[Piece]:
    return tiled(found, start, end, size, complete=True)


def test_what_has_no_blocks_and_what_is_reserved_is_zeros() -> None:
    reserved = Extent(8, 1000, 8, UNWRITTEN)
    assert tiles(reserved, Extent(16, 2000, 8, SHARED | MERGED | LAST)) == [
        Piece(0, 8, "zeros"),
        Piece(8, 16, "zeros"),
        Piece(16, 24, 1984),
        Piece(24, SIZE, "zeros"),
    ]


def test_the_file_ends_where_it_ends_and_beyond_nobody_can_tell() -> None:
    # Its last block reaches beyond it, and so does what was reserved there.
    found = (Extent(48, 1048, 16, 0), Extent(64, 3000, 16, UNWRITTEN | LAST))
    assert tiles(*found, size=60, end=80) == [
        Piece(0, 48, "zeros"),
        Piece(48, 60, 1000),
        Piece(60, 80, "unknown"),
    ]


def test_an_extent_that_began_earlier_is_told_from_where_is_asked() -> None:
    found = Extent(0, 1000, 32, LAST)
    assert tiles(found, start=20, end=30) == [Piece(20, 30, 1000)]


def test_after_the_last_extent_that_was_told_nothing_is_known() -> None:
    found = [Extent(4, 104, 4, 0), Extent(16, 516, 4, 0)]
    assert tiled(found, 0, SIZE, SIZE, complete=False)[-1] == Piece(16, 20, 500)


def test_what_no_one_can_tell_differs_even_from_itself() -> None:
    for about in (ENCODED, DELALLOC, INLINE, ENCODED | UNWRITTEN, 0x10000):
        same = tiles(Extent(8, 1000, 8, about | LAST))
        assert list(differing(same, same)) == [(8, 8)]


def test_extents_that_overlap_tell_nothing() -> None:
    same = tiles(Extent(0, 1000, 16, 0), Extent(8, 1008, 16, LAST))
    assert list(differing(same, same)) == [(0, SIZE)]


def test_ranges_side_by_side_are_one() -> None:
    mine = tiles(Extent(0, 1000, 8, 0), Extent(8, 3000, 8, LAST))
    assert list(differing(mine, [Piece(0, SIZE, "zeros")])) == [(0, 16)]
    assert list(differing(mine, mine)) == []


class Byte:
    """A byte of a file: what the kernel says of it, and where it lies."""

    def __init__(self, about: int | None, address: int) -> None:
        self.about, self.address = about, address

    @property
    def surely(self) -> object:
        """What is read there, as far as the kernel's word holds."""
        if self.about is None or self.about == UNWRITTEN:
            return "zeros"
        return self.address if self.about in (0, SHARED) else self


abouts = st.sampled_from([None, 0, 0, 0, SHARED, UNWRITTEN, ENCODED])
shifts = st.sampled_from([1000, 1000, 2000])
runs = st.lists(st.tuples(st.integers(1, 9), abouts, shifts), max_size=12)


def drawn(made: list[tuple[int, int | None, int]]) -> tuple[list[Byte], list[Extent]]:
    """The bytes of a file made of such runs, and its extents."""
    told: list[Byte] = []
    found: list[Extent] = []
    for length, about, shift in made:
        at = len(told)
        told += [Byte(about, shift + at + number) for number in range(length)]
        if about is not None:
            found.append(Extent(at, shift + at, length, about))
    return told, found


@given(runs, runs, st.integers(0, 40), st.integers(1, 6))
def test_every_byte_that_may_differ_is_named_whatever_is_asked(
    one: list[tuple[int, int | None, int]],
    other: list[tuple[int, int | None, int]],
    start: int,
    most: int,
) -> None:
    (mine, found), (base, found_base) = drawn(one), drawn(other)
    size, named, at = len(mine), set[int](), start

    def page(extents: list[Extent], end: int, size: int) -> list[Piece]:
        some = [each for each in extents if each.start + each.length > at] if at < size else []
        return tiled(some[:most], at, end, size, complete=len(some[:most]) < most)

    while at < size:
        left = page(found, size, size)
        right = page(found_base, left[-1].end, len(base))
        for begin, length in differing(left, right):
            assert length > 0
            assert at <= begin
            assert begin + length <= size
            assert not named & set(range(begin, begin + length))
            named |= set(range(begin, begin + length))
        until = min(left[-1].end, right[-1].end)
        assert until > at
        at = until
    for number in range(start, size):
        there = number < len(base)
        if not there or mine[number].surely != base[number].surely:
            assert number in named
        elif mine[number].about != ENCODED:
            assert number not in named
