"""Capacity: never more is promised than there is, and rounded as upstream rounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localvolume.volumes.capacity import GIB, KIB, MIB, bytes_of, published_bytes, quantity
from tests.suite.units import TIB

#: Up to what a resource.Quantity can hold.
SIZES = st.integers(0, 2**63 - 1)


@pytest.mark.parametrize(
    ("size", "published"),
    [
        (100 * KIB, 100 * KIB),
        (10 * MIB, 10 * MIB),
        (100 * MIB, 100 * MIB),
        (10 * GIB, 10 * GIB),
        (10 * TIB, 10 * TIB),
        (9 * GIB + 999 * MIB, 9 * GIB + 999 * MIB),
        (10 * GIB + 5, 10 * GIB),
        (10 * MIB + 5, 10 * MIB),
        (10000 * MIB - 1, 9999 * MIB),
        (13 * GIB - 1, 12 * GIB),
        (63 * MIB - 10, 62 * MIB),
        (12345, 12345),
        (10000 * GIB - 1, 9999 * GIB),
        (3 * TIB + 2 * GIB + MIB, 3 * TIB + 2 * GIB),
        # The two thresholds themselves, from below.
        (10 * MIB - 1, 10 * MIB - 1),
        (10 * GIB - 1, 10 * GIB - MIB),
        (0, 0),
    ],
)
def test_what_is_published_of_a_size(size: int, published: int) -> None:
    assert published_bytes(size) == published


@given(SIZES)
def test_never_more_is_promised_than_there_is(size: int) -> None:
    assert published_bytes(size) <= size


@given(SIZES)
def test_less_than_a_tenth_is_lost_to_rounding(size: int) -> None:
    assert published_bytes(size) * 10 >= size * 9


@given(SIZES)
def test_what_was_rounded_once_stays_as_it_is(size: int) -> None:
    assert published_bytes(published_bytes(size)) == published_bytes(size)


@given(SIZES, SIZES)
def test_a_larger_volume_never_promises_less(one: int, other: int) -> None:
    low, high = sorted((one, other))
    assert published_bytes(low) <= published_bytes(high)


# --- quantities ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1, "1"),
        (1023, "1023"),
        (1024, "1Ki"),
        (12345, "12345"),
        (1536 * MIB, "1536Mi"),
        (10 * GIB, "10Gi"),
        (9 * GIB + 999 * MIB, "10215Mi"),
        (1024 * GIB, "1Ti"),
        (1 << 60, "1Ei"),
        (7 << 60, "7Ei"),
    ],
)
def test_a_size_is_written_in_the_largest_unit_without_a_rest(size: int, text: str) -> None:
    assert quantity(size) == text


@given(SIZES)
def test_what_is_written_reads_back_as_the_same_bytes(size: int) -> None:
    assert bytes_of(quantity(size)) == size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("12345", 12345),
        ("10Gi", 10 * GIB),
        ("10G", 10 * 10**9),
        ("1k", 1000),
        ("1.5Gi", 1536 * MIB),
        ("0.5Ki", 512),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 10**18),
        ("1Ei", 1 << 60),
        ("+5Mi", 5 * MIB),
        (".5Gi", 512 * MIB),
        ("1.9", 1),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_the_forms_of_a_quantity(text: str, size: int) -> None:
    assert bytes_of(text) == size


@pytest.mark.parametrize(
    "text", ["", "Gi", "ten", "10GB", "10 Gi", "1.2.3", ".", "10gi", "0x10", "1e", "1_000", "NaN"]
)
def test_what_is_no_quantity_has_no_bytes(text: str) -> None:
    assert bytes_of(text) is None


@given(st.text())
def test_whatever_an_object_says_reading_it_raises_nothing(text: str) -> None:
    assert bytes_of(text) is None or isinstance(bytes_of(text), int)


@pytest.mark.parametrize("text", ["1e9999999", "1e-9999999", "1E99999999999", "1e5000"])
def test_an_absurd_exponent_is_no_number_of_bytes_and_costs_nothing(text: str) -> None:
    """Longer numbers would take minutes, or could not be printed in a reason."""
    size = bytes_of(text)
    assert size is None or size <= 2**63 - 1
