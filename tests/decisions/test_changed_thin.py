"""What thin_delta says is taken as it is, or not at all; and what of it is told of a volume."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.backends.lvm.changed import page
from localvolume.host.lvm.report import BadReport, LogicalVolume
from localvolume.host.lvm.thindelta import read_delta
from localvolume.host.lvm.thinmetadata import NUMBER_FIELDS, numbers_of

BLOCK = 128 * 512


def told(*ranges: str, left: int = 1, right: int = 2, size: str = "128") -> str:
    inner = "\n    ".join(ranges)
    return f"""<superblock uuid="" time="2" transaction="4" data_block_size="{size}"\
 nr_data_blocks="1024">
  <diff left="{left}" right="{right}">
    {inner}
  </diff>
</superblock>
"""


def of(kind: str, begin: int | str, length: int | str) -> str:
    return f'<{kind} begin="{begin}" length="{length}"/>'


def test_what_either_has_alone_differs_as_other_blocks_do() -> None:
    found = read_delta(
        told(
            of("same", 0, 3),
            of("different", 3, 1),
            of("left_only", 4, 2),
            of("same", 6, 1),
            of("right_only", 10, 1),
        ),
        1,
        2,
    )
    assert found.shared == [(0, 3 * BLOCK), (6 * BLOCK, BLOCK)]
    assert found.differing == [(3 * BLOCK, 3 * BLOCK), (10 * BLOCK, BLOCK)]


def test_volumes_that_have_nothing_share_nothing() -> None:
    found = read_delta(told(), 1, 2)
    assert (found.shared, found.differing) == ([], [])


def test_of_a_volume_and_itself_all_is_shared() -> None:
    assert read_delta(told(of("same", 2, 1), right=1), 1, 1).shared == [(2 * BLOCK, BLOCK)]
    with pytest.raises(BadReport, match="differs from itself"):
        read_delta(told(of("different", 2, 1), right=1), 1, 1)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("", "cannot be read"),
        (told(of("same", 0, 1)).removesuffix("</superblock>\n"), "cannot be read"),
        (told(of("same", 0, 1))[:150], "cannot be read"),
        ('<superblock data_block_size="128"/>', "compares nothing"),
        (told(right=3), "compares"),
        (told(left=2, right=1), "compares"),
        (told() + told(), "cannot be read"),
        (told("</diff><diff left='1' right='2'>"), "is not known here"),
        (told(of("moved", 0, 1)), "'moved', which is not known"),
        (told(f"<same begin='0' length='1'>{of('same', 1, 1)}</same>"), "not known here"),
        (told("Transaction in progress"), "says 'Transaction"),
        (told(of("same", 4, 2), of("different", 5, 1)), "out of order"),
        (told(of("same", 4, 2), of("different", 1, 1)), "out of order"),
        (told(of("different", 1, 0)), "out of order"),
        (told(of("different", -1, 1)), "'-1' for begin"),
        (told(of("different", 1, "many")), "'many' for length"),
        (told("<different begin='1'/>"), "'' for length"),
        (told(size="0"), "no bytes"),
        (told(size=""), "'' for data_block_size"),
        ('<!DOCTYPE a [<!ENTITY b "c">]>' + told(), "declares"),
    ],
)
def test_any_other_answer_is_none(said: str, why: str) -> None:
    with pytest.raises(BadReport, match=why):
        read_delta(said, 1, 2)


RANGES = st.lists(st.tuples(st.integers(0, 8), st.integers(1, 8)), max_size=8)


@given(RANGES, st.integers(1, 60), st.integers(1, 60), st.integers(0, 60), st.integers(1, 3))
def test_page_by_page_all_is_told_that_was_named(
    gaps: list[tuple[int, int]], size: int, base: int, start: int, most: int
) -> None:
    ranges, at = [], 0
    for gap, length in gaps:
        ranges.append((at + gap, length))
        at += gap + length
    named = {one for begin, length in ranges for one in range(begin, begin + length)}
    named |= set(range(base, size))
    found: list[int] = []
    until = start
    while until < size:
        one = page(ranges, size, base, until, most)
        assert len(one.ranges) <= most
        assert one.total_bytes == size
        assert until < one.until <= size
        new = [byte for begin, length in one.ranges for byte in range(begin, begin + length)]
        assert all(until <= byte < one.until for byte in new)
        found += new
        until = one.until
    assert found == sorted(byte for byte in named if start <= byte < size)


def row(name: str, **more: str) -> dict[str, str]:
    return {"lv_name": name, "lv_uuid": f"u-{name}", "lv_role": "public", "pool_lv": "p", **more}


def report(*rows: dict[str, str]) -> str:
    inner = ",".join(
        "{" + ",".join(f'"{key}":"{value}"' for key, value in one.items()) + "}" for one in rows
    )
    return f'{{"report":[{{"lv":[{inner}]}}]}}'


def volume(name: str) -> LogicalVolume:
    return LogicalVolume(name=name, uuid=f"u-{name}", group="g", size_bytes=1, kind="thin")


def test_volumes_are_found_by_uuid_in_their_own_pool() -> None:
    rows = (row("a", thin_id="1"), row("b", thin_id="2"), row("p", pool_lv="", thin_id=""))
    assert set(NUMBER_FIELDS.split(",")) == set(rows[0])
    assert numbers_of(report(*rows), "p", [volume("b"), volume("a")]) == [2, 1]
    for wrong in (row("b", thin_id="2", pool_lv="q"), row("b", thin_id=""), row("b")):
        with pytest.raises(BadReport, match="what number g/b has in p"):
            numbers_of(report(rows[0], wrong), "p", [volume("a"), volume("b")])


def test_where_a_thin_volume_may_show_another_nothing_is_told() -> None:
    rows = row("a", thin_id="1"), row("x", pool_lv="", lv_role="public,origin,extthinorigin")
    with pytest.raises(BadReport, match="may show blocks of x"):
        numbers_of(report(*rows), "p", [volume("a")])


def test_beyond_the_end_of_the_base_nothing_is_left_out_between_ranges() -> None:
    assert page([(1, 1), (7, 1), (10, 5)], 12, 6, 0).ranges == [(1, 1), (6, 6)]
    # A base may be the larger one, or end within a block.
    assert page([(1, 1), (7, 9)], 12, 20, 0).ranges == [(1, 1), (7, 5)]
    assert page([(4, 4)], 12, 6, 5).ranges == [(5, 7)]
