"""The record of the image's packages: read strictly, compared by name, version and digest."""

from __future__ import annotations

import pytest

from image import pins
from image.base import HERE, names
from image.pins import Package
from image.running import BuildFailed

ZEROS, ONES = "0" * 64, "1" * 64
DASH, LIBC = Package("dash", "0.5.12-2", ZEROS), Package("libc6", "2.36-9+deb12u10", ZEROS)


def test_what_is_written_is_read() -> None:
    text = pins.written([LIBC, DASH])
    assert text.splitlines()[0] == f"dash=0.5.12-2 sha256:{ZEROS}"
    assert pins.read(text) == [DASH, LIBC]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "dash=0.5.12-2\n",
        f"dash=0.5.12-2 sha256:{ZEROS[1:]}\n",
        f"dash sha256:{ZEROS}\n",
        f"dash=0.5.12-2,perl sha256:{ZEROS}\n",
        f"{DASH}\n\n",
        f"{DASH}\ndash=0.6 sha256:{ONES}\n",
    ],
)
def test_what_is_no_record_is_refused(text: str) -> None:
    """A name alone would be whatever the mirror has."""
    with pytest.raises(BuildFailed):
        pins.read(text)


def test_what_is_gone_is_told_with_what_is_offered() -> None:
    offered = {"dash": ["0.5.13", "0.5.12-2"], "libc6": ["2.36-9+deb12u13", "2.36-9+deb12u12"]}
    assert pins.gone([DASH, LIBC, Package("gone", "1", ZEROS)], offered) == [
        "libc6: 2.36-9+deb12u10 is recorded, and the mirror has 2.36-9+deb12u13, 2.36-9+deb12u12",
        "gone: 1 is recorded, and the mirror has none",
    ]


def test_differences_name_each_package() -> None:
    newer = Package("libc6", "2.37", ONES)
    assert pins.differences([DASH, LIBC], [LIBC, DASH]) == []
    assert pins.differences([DASH, LIBC], [newer, Package("perl", "5", ONES)]) == [
        "dash: 0.5.12-2 is recorded, and not there",
        "libc6: 2.36-9+deb12u10 is recorded, and 2.37 is there",
        "perl: 5 is there, and not recorded",
    ]


def test_other_bytes_of_the_same_version_are_a_change() -> None:
    other = Package("dash", "0.5.12-2", ONES)
    assert pins.changed([DASH, LIBC], [other, LIBC, Package("perl", "5", ONES)]) == [
        f"dash=0.5.12-2: sha256:{ZEROS} is recorded, and sha256:{ONES} came"
    ]
    assert pins.changed([DASH], [Package("dash", "0.6", ONES)]) == []


def test_our_own_records_are_some() -> None:
    """What is asked for by name is in each of them."""
    records = list(HERE.glob("packages.*"))
    assert records
    for record in records:
        assert set(names()) <= {one.name for one in pins.read(record.read_text())}
