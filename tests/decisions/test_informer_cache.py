"""What an informer's cache makes of lists, events and own writes, without any server."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from localvolume.kube.cache import Cache, key_of
from localvolume.kube.objects import Meta, PersistentVolume, PersistentVolumeClaim

Change = tuple[str | None, str | None]


def pv(name: str, version: int, uid: str = "", **meta: Any) -> PersistentVolume:
    meta_data = Meta(name=name, uid=uid or name, resource_version=str(version), **meta)
    return PersistentVolume(metadata=meta_data)


class Watched:
    """A cache with a record of what it told."""

    def __init__(self) -> None:
        self.told: list[Change] = []
        self.cache: Cache[PersistentVolume] = Cache(self._on_change)

    def _on_change(self, old: PersistentVolume | None, new: PersistentVolume | None) -> None:
        def short(one: PersistentVolume | None) -> str | None:
            return f"{one.metadata.uid}@{one.metadata.resource_version}" if one else None

        self.told.append((short(old), short(new)))

    def take(self) -> list[Change]:
        told, self.told = self.told, []
        return told


def listed(*items: PersistentVolume, version: int = 10) -> Watched:
    watched = Watched()
    watched.cache.replace(items, str(version))
    watched.take()
    return watched


def test_keys() -> None:
    assert key_of(pv("a", 1)) == "a"
    assert key_of(PersistentVolumeClaim(metadata=Meta(name="c", namespace="n"))) == "n/c"


def test_a_list_tells_what_changed_since() -> None:
    watched = listed(pv("a", 1), pv("b", 2), pv("c", 3))
    watched.cache.replace([pv("d", 9), pv("c", 8), pv("a", 1)], "20")
    assert watched.take() == [("b@2", None), (None, "d@9"), ("c@3", "c@8")]
    assert set(watched.cache.items) == {"a", "c", "d"}
    assert watched.cache.version == "20"


def test_another_object_of_the_same_name_is_an_end_and_a_beginning() -> None:
    watched = listed(pv("a", 1, uid="one"))
    watched.cache.replace([pv("a", 15, uid="two")], "20")
    assert watched.take() == [("one@1", None), (None, "two@15")]


def test_events_change_the_copy() -> None:
    watched = listed()
    watched.cache.change("ADDED", pv("a", 11))
    watched.cache.change("ADDED", pv("a", 11))
    watched.cache.change("MODIFIED", pv("a", 12))
    watched.cache.change("DELETED", pv("a", 13))
    watched.cache.change("DELETED", pv("a", 13))
    assert watched.take() == [(None, "a@11"), ("a@11", "a@12"), ("a@13", None)]
    assert watched.cache.version == "13"


def test_an_own_write_is_seen_at_once_and_told_once() -> None:
    watched = listed()
    assert watched.cache.write(pv("a", 11))
    assert not watched.cache.write(pv("a", 11))
    watched.cache.change("ADDED", pv("a", 11))
    assert watched.take() == [(None, "a@11")]


def test_an_event_from_before_an_own_write_changes_nothing() -> None:
    watched = listed(pv("a", 5))
    assert watched.cache.write(pv("a", 14))
    watched.cache.change("MODIFIED", pv("a", 12))
    assert watched.cache.items["a"].metadata.resource_version == "14"
    watched.cache.change("MODIFIED", pv("a", 14))
    watched.cache.change("MODIFIED", pv("a", 15))
    assert watched.take() == [("a@5", "a@14"), ("a@14", "a@15")]


def test_an_own_write_never_brings_back_the_deleted() -> None:
    watched = listed(pv("a", 5))
    watched.cache.change("DELETED", pv("a", 15))
    assert not watched.cache.write(pv("a", 12))
    assert watched.cache.items == {}
    # Nor before the first list, when nothing is known.
    assert not Watched().cache.write(pv("a", 12))


def test_an_old_deletion_does_not_take_a_new_object() -> None:
    watched = listed(pv("a", 5, uid="one"))
    assert watched.cache.write(pv("a", 20, uid="two"))
    watched.cache.change("DELETED", pv("a", 15, uid="one"))
    watched.cache.change("ADDED", pv("a", 20, uid="two"))
    assert watched.take() == [("one@5", None), (None, "two@20")]


def test_taking_the_last_finalizer_is_the_end() -> None:
    leaving = {"deletion_timestamp": "2026-01-01T00:00:00Z"}
    watched = listed(pv("a", 5))
    assert watched.cache.write(pv("a", 12, **leaving))
    assert watched.cache.items == {}
    # The echo of the deletion's first half, then of its second.
    watched.cache.change("MODIFIED", pv("a", 12, finalizers=("f",), **leaving))
    watched.cache.change("DELETED", pv("a", 13, **leaving))
    assert watched.take() == [("a@12", None)]


def test_a_list_from_before_an_own_write_leaves_it() -> None:
    watched = listed(pv("a", 5), pv("b", 5))
    watched.cache.write(pv("a", 14))
    watched.cache.write(pv("new", 15))
    watched.cache.write(pv("b", 16, deletion_timestamp="2026-01-01T00:00:00Z"))
    watched.take()
    watched.cache.replace([pv("a", 5), pv("b", 5)], "13")
    assert watched.take() == []
    assert set(watched.cache.items) == {"a", "new"}
    # A list from after it is the truth.
    watched.cache.replace([pv("a", 14)], "20")
    assert watched.take() == [("new@15", None)]


def test_an_own_write_outside_the_selector_goes_again() -> None:
    watched = listed()
    watched.cache.write(pv("stranger", 12))
    watched.cache.reached("11")
    assert "stranger" in watched.cache.items
    watched.cache.reached("12")
    assert watched.take() == [(None, "stranger@12"), ("stranger@12", None)]


def test_a_failing_listener_harms_nothing() -> None:
    def fail(old: object, new: object) -> None:
        raise RuntimeError("a listener's own trouble")

    cache: Cache[PersistentVolume] = Cache(fail)
    cache.replace([pv("a", 1)], "5")
    cache.change("MODIFIED", pv("a", 6))
    assert cache.items["a"].metadata.resource_version == "6"


NAMES = st.sampled_from("abc")


@given(st.lists(st.tuples(NAMES, st.booleans()), max_size=25), st.data())
def test_the_copy_ends_up_right_whatever_is_ours_and_whenever_it_is_listed(
    actions: list[tuple[str, bool]], data: st.DataObject
) -> None:
    """A server's history, some of it written by us, echoed late, with lists at any moment."""
    watched = listed(version=0)
    cache = watched.cache
    truth: dict[str, PersistentVolume] = {}
    history: list[tuple[str, PersistentVolume]] = []
    snapshots: list[list[PersistentVolume]] = [[]]
    echoed = 0
    for number, (name, ours) in enumerate(actions, start=1):
        delete = name in truth and data.draw(st.booleans())
        if delete:
            gone = truth.pop(name)
            meta = msgspec.structs.replace(gone.metadata, resource_version=str(number))
            history.append(("DELETED", msgspec.structs.replace(gone, metadata=meta)))
        else:
            uid = truth[name].metadata.uid if name in truth else f"{name}{number}"
            kind = "MODIFIED" if name in truth else "ADDED"
            truth[name] = pv(name, number, uid=uid)
            history.append((kind, truth[name]))
            if ours:
                cache.write(truth[name])
                assert cache.items[name] == truth[name]
        snapshots.append(list(truth.values()))
        # The watch may be behind by any number of events.
        upto = data.draw(st.integers(echoed, len(history)))
        for kind, thing in history[echoed:upto]:
            cache.change(kind, thing)
        echoed = upto
        if data.draw(st.booleans()):
            # A list of now or of a while ago, but never older than what the watch told.
            moment = data.draw(st.integers(echoed, len(history)))
            cache.replace(snapshots[moment], str(moment))
            echoed = moment
    for kind, thing in history[echoed:]:
        cache.change(kind, thing)
    assert cache.items == truth
    # Whoever followed the changes knows the same.
    followed: set[str] = set()
    for old, new in watched.told:
        followed.discard(old.split("@")[0] if old else "")
        if new:
            followed.add(new.split("@")[0])
    assert followed == {thing.metadata.uid for thing in truth.values()}
