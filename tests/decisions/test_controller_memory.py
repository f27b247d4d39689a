"""What the controller keeps of objects is shared where it is alike; much of it is forgotten."""

from localvolume.controller.caches.trimmed import few
from localvolume.volumes import marks

WANTED = frozenset({marks.LOST_ANNOTATION})


def test_equal_maps_are_one_object_until_there_are_very_many() -> None:
    """Twenty thousand volumes, each with a claim of its own: what none shares must not pile up."""
    first = few({marks.LOST_ANNOTATION: "x", "other": "y"}, WANTED)
    assert first == {marks.LOST_ANNOTATION: "x"}
    assert few({marks.LOST_ANNOTATION: "x"}, WANTED) is first
    for number in range(10_000):
        assert few({marks.LOST_ANNOTATION: str(number)}, WANTED)[marks.LOST_ANNOTATION]
    again = few({marks.LOST_ANNOTATION: "x"}, WANTED)
    assert again == first
    assert again is not first, "it was forgotten meanwhile"
