"""What is written of Events that repeat or come in floods: counted, folded, stopped."""

from __future__ import annotations

from localvolume.kube.correlate import FOLDED, Correlator, Occurrence
from localvolume.kube.events import ObjectRef

VOLUME = ObjectRef("PersistentVolume", "pv-a", "uid-a", resource_version="5")


def observe(
    correlator: Correlator, message: str, at: float, about: ObjectRef = VOLUME
) -> tuple[str, int] | None:
    record = correlator.observe(Occurrence(about, "Warning", "R", message, at))
    return (record.message, record.count) if record else None


def test_many_different_messages_are_folded() -> None:
    correlator = Correlator()
    for number in range(10):
        assert observe(correlator, f"m{number}", 0) == (f"m{number}", 1)
    assert observe(correlator, "m10", 1) == (f"{FOLDED}m10", 1)
    assert observe(correlator, "m11", 2) == (f"{FOLDED}m11", 2)
    # One that was there before the flood keeps its own count.
    assert observe(correlator, "m3", 3) == ("m3", 2)
    # After ten quiet minutes each speaks for itself again.
    assert observe(correlator, "m12", 604) == ("m12", 1)


def test_an_object_that_says_too_much_is_stopped() -> None:
    correlator = Correlator()
    said = [observe(correlator, "m", 0) for _ in range(30)]
    assert said[:25] == [("m", number) for number in range(1, 26)]
    assert said[25:] == [None] * 5
    # Another object is not affected, nor a later state of the same one excused.
    other = ObjectRef("PersistentVolume", "pv-b", "uid-b")
    assert observe(correlator, "m", 0, other) == ("m", 1)
    later = ObjectRef("PersistentVolume", "pv-a", "uid-a", resource_version="99")
    assert observe(correlator, "m", 299, later) is None
    # One more every 300 s, and what was not written was counted all the same.
    assert observe(correlator, "m", 301) == ("m", 32)
    assert observe(correlator, "m", 302) is None


def test_what_is_remembered_is_bounded() -> None:
    correlator = Correlator(remembered=2)
    one, two, three = (ObjectRef("Node", name, name) for name in "abc")
    assert observe(correlator, "m", 0, one) == ("m", 1)
    assert observe(correlator, "m", 0, two) == ("m", 1)
    assert observe(correlator, "m", 0, one) == ("m", 2)
    assert observe(correlator, "m", 0, three) == ("m", 1)
    # `two` was used least lately.
    assert observe(correlator, "m", 0, one) == ("m", 3)
    assert observe(correlator, "m", 0, two) == ("m", 1)
