"""What a record is in bytes, and what it says of an object and of an entry without one."""

import subprocess
import sys

import pytest

from localvolume.host.filesystem.rootstate import RootState
from localvolume.volumes.record import (
    LONGEST_RECEIPT,
    BadRecord,
    Record,
    Recorded,
    Unreadable,
    decoded,
    encoded,
    held_by,
    next_offer,
    of_object,
    over,
    strange,
    taken,
)

ROOT = RootState(0o755, 0, 0, flags=0x10, xflags=0x200, project=7)
OFFERED = Record("g1")
HELD = Record("g1", claim="a")
UNTOLD = Unreadable("it may be another's", (Record("g1", claim="a"), Record("g2", claim="b")))


def test_it_is_read_as_it_was_written() -> None:
    record = Record("g1", claim="a", ended=True, root=ROOT, identity={"kind": "block"})
    assert decoded(encoded(record)) == record
    assert b'"format":1' in encoded(OFFERED)


READERS = """
import sys, threading
from localvolume.volumes.record import decoded
sys.setswitchinterval(1e-6)
together = threading.Barrier(16)
def read():
    together.wait()
    for _ in range(50):
        decoded(b'{"format":1,"generation":"g1","root":{"mode":493,"uid":0,"gid":0}}')
threads = [threading.Thread(target=read) for _ in range(16)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def test_many_threads_may_read_the_first_one_together() -> None:
    """As at the start, when each entry's record is read in a thread of its own."""
    for _ in range(8):
        subprocess.run([sys.executable, "-c", READERS], check=True, timeout=300)


def test_a_newer_release_may_add_to_it() -> None:
    record = decoded(b'{"format":2,"generation":"g1","claim":"a","more":{"x":1}}')
    assert (record.generation, record.claim) == ("g1", "a")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b'{"format":3,"generation":"g1"}', "in format 3"),
        (b'{"format":0,"generation":"g1"}', "in format 0"),
        (b'{"format":1,"generation":""}', "names no generation"),
        (b'{"format":1}', "is no record"),
        (b'{"format":1,"generation":"g1","claim":7}', "is no record"),
        (b"", "is no record"),
        (b"[]", "is no record"),
    ],
)
def test_anything_else_is_none(content: bytes, why: str) -> None:
    with pytest.raises(BadRecord, match=why):
        decoded(content)


@pytest.mark.parametrize(
    ("generation", "claims", "recorded"),
    [
        ("", set(), None),
        ("", {"a"}, None),
        ("", {"a"}, "nowhere"),
        ("", set(), OFFERED),
        ("", {"a"}, HELD),
        ("g1", set(), OFFERED),
        ("g1", {"a"}, OFFERED),
        ("g1", {"a"}, HELD),
        ("g1", {"a", "b"}, HELD),
        ("g1", {"a"}, over(HELD, "zero: proved", 0)),
        ("g1", {"a"}, UNTOLD),
        ("", {"c"}, Unreadable("it may be", (OFFERED,))),
    ],
)
def test_it_speaks_for_its_own_object(
    generation: str, claims: set[str], recorded: Recorded
) -> None:
    assert strange(generation, claims, recorded) is None


@pytest.mark.parametrize(
    ("generation", "claims", "recorded", "why"),
    [
        ("g1", set(), None, "is not there"),
        ("g1", {"a"}, None, "is not there"),
        ("g1", {"a"}, "nowhere", "no place for records"),
        ("g1", set(), HELD, "the claim a holds it"),
        ("g1", {"b"}, HELD, "the claim a holds it"),
        ("", {"b"}, HELD, "the claim a holds it"),
        ("g0", {"a"}, OFFERED, "offered anew since"),
        ("g0", {"a"}, HELD, "offered anew since"),
        ("g0", {"a"}, over(HELD, "zero: proved", 0), "offered anew since"),
        ("", {"a"}, OFFERED, "older than the record"),
        ("g1", {"a"}, Unreadable("an error"), "an error"),
        ("g1", {"b"}, UNTOLD, "the claim a holds it"),
        ("g3", {"c"}, UNTOLD, "may be another's"),
        ("g3", {"c"}, Unreadable("it may be", (OFFERED,)), "is not there"),
    ],
)
def test_it_speaks_against_others(
    generation: str, claims: set[str], recorded: Recorded, why: str
) -> None:
    assert why in (strange(generation, claims, recorded) or "")


def test_what_a_claim_holds_is_somebodys_without_an_object() -> None:
    cleaned, either = over(HELD, "proved", 0), Unreadable("it may be", (OFFERED,))
    for nobodys in (None, "nowhere", OFFERED, cleaned, either):
        assert held_by(nobodys) is None
    for somebodys in (HELD, UNTOLD, Unreadable("an error")):
        assert held_by(somebodys)


def test_an_offer_that_nobody_has_heard_of_keeps_its_generation() -> None:
    """The object may have been made though no answer came."""
    assert next_offer(None, "new", ROOT) == Record("new", root=ROOT)
    assert next_offer(OFFERED, "new", ROOT) == Record("g1", root=ROOT)
    assert next_offer(HELD, "new", None) == Record("new")
    assert next_offer(over(OFFERED, "zero: proved", 0), "new", None).generation == "new"


def test_the_receipt_of_a_cleaning_goes_with_the_next_offer() -> None:
    """Also with one that is made again, and beyond a claim: it is the volume's last cleaning."""
    cleaned = over(HELD, "zero: 4.0 MiB in 0.1 s, proved", 1795824000)
    assert cleaned.cleaned == "2026-11-28T00:00:00Z zero: 4.0 MiB in 0.1 s, proved"
    offered = next_offer(cleaned, "g2", ROOT)
    assert offered.cleaned == next_offer(offered, "g3", None).cleaned == cleaned.cleaned
    assert over(offered, "done", 0).cleaned == "1970-01-01T00:00:00Z done"


def test_a_receipt_is_not_shown_for_what_a_claim_has_left_since() -> None:
    """Somebody has emptied the volume by hand, so that it is offered again: no proof of that."""
    offered = next_offer(over(HELD, "proved", 0), "g2", ROOT)
    held = taken(offered, "b")
    assert held.cleaned == offered.cleaned != ""
    assert next_offer(held, "g3", None).cleaned == ""


def test_a_long_receipt_is_cut() -> None:
    kept = over(HELD, "é" * 1000, 0).cleaned.removeprefix("1970-01-01T00:00:00Z ")
    assert kept == "é" * (LONGEST_RECEIPT - 1) + "…"
    exact = "x" * LONGEST_RECEIPT
    assert over(HELD, exact, 0).cleaned.endswith(f" {exact}")


def test_the_roots_first_state_stays() -> None:
    first = next_offer(None, "g1", ROOT)
    later = RootState(0o777, 1, 1)
    assert next_offer(over(taken(first, "a"), "zero: proved", 0), "g2", later).root == ROOT


def test_the_generation_tells_which_record_is_an_objects() -> None:
    assert of_object("g2", UNTOLD) == Record("g2", claim="b")
    assert of_object("", UNTOLD) is UNTOLD
    assert of_object("g1", HELD) is HELD
