"""Which part of a device consists of whole granules, the only thing that a disk forgets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.cleaning.device import whole_granules
from tests.suite.units import MIB


@pytest.mark.parametrize(
    ("begin", "size", "granularity", "first", "part"),
    [
        (4096, 64 * MIB, 4 * MIB, 0, (4 * MIB, 64 * MIB)),
        (4096, 62 * MIB, 4 * MIB, 0, (4 * MIB, 60 * MIB)),
        (4096, 64 * MIB, 4096, 0, (4096, 64 * MIB)),
        (4096, 64 * MIB, 4 * MIB, MIB, (MIB, 61 * MIB)),  # a partition
        (4096, 64 * MIB, 3 * MIB, 0, (3 * MIB, 63 * MIB)),
        (4096, 5 * MIB, 4 * MIB, 0, (5 * MIB, 5 * MIB)),
        (4096, 4 * MIB, 64 * MIB, 0, (4 * MIB, 4 * MIB)),
        (0, 8 * MIB, 4 * MIB, 0, (0, 8 * MIB)),
    ],
)
def test_examples(
    begin: int, size: int, granularity: int, first: int, part: tuple[int, int]
) -> None:
    assert whole_granules(begin, size, granularity, first) == part


@given(
    begin=st.sampled_from([0, 4096]),
    size=st.integers(1, 1 << 20).map(lambda sectors: sectors * 4096),
    granularity=st.integers(1, 1 << 12).map(lambda sectors: sectors * 4096),
    part=st.floats(0, 0.999),
)
def test_it_is_all_that_is_whole(begin: int, size: int, granularity: int, part: float) -> None:
    first = int(part * granularity) // 4096 * 4096
    start, end = whole_granules(begin, size, granularity, first)
    assert (end - start) % granularity == 0
    if start < end:
        assert begin <= start < end <= size
        assert (start - first) % granularity == 0
        # Neither side has room for one more.
        assert start - granularity < begin
        assert end + granularity > size
