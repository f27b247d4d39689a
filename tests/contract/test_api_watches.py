"""Watches: order, versions, selectors, bookmarks, ends."""

import itertools

import pytest

from tests.contract.support_api import ApiUnderTest, Body, volume
from tests.suite.api import VOLUMES
from tests.suite.until import until_async


async def test_what_happens_is_told_in_order(api: ApiUnderTest) -> None:
    mine = {"labelSelector": f"test={api.unique}"}
    listed = (await api.get(api.config_maps, **mine)).body
    version = listed["metadata"]["resourceVersion"]
    async with api.watch(api.config_maps, resourceVersion=version, **mine) as watch:
        path = f"{api.config_maps}/{api.unique}"
        meta = {"name": api.unique, "labels": {"test": api.unique}}
        made = await api.made(api.config_maps, {"metadata": meta})
        await api.patch(path, {"data": {"a": "b"}})
        await api.patch(path, {"data": {"a": "b"}})  # changes nothing, tells nothing
        last = await api.patch(path, {"data": {"a": "c"}})
        await api.delete(path)
        events = [await watch.next() for _ in range(4)]
    assert [kind for kind, _ in events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert events[0][1] == made
    assert events[2][1] == last.body
    gone = events[3][1]
    assert gone["data"] == {"a": "c"}
    versions = [int(body["metadata"]["resourceVersion"]) for _, body in events]
    assert versions == sorted(set(versions)), "a deletion has a version of its own"


async def test_a_watch_goes_on_from_any_version(api: ApiUnderTest) -> None:
    mine = {"labelSelector": f"test={api.unique}"}
    path = f"{api.config_maps}/{api.unique}"
    meta = {"name": api.unique, "labels": {"test": api.unique}}
    made = await api.made(api.config_maps, {"metadata": meta})
    await api.patch(path, {"data": {"a": "b"}})
    await api.delete(path)
    version = made["metadata"]["resourceVersion"]
    async with api.watch(api.config_maps, resourceVersion=version, **mine) as watch:
        assert await watch.names(2) == [("MODIFIED", api.unique), ("DELETED", api.unique)]


@pytest.mark.parametrize("query", [{}, {"resourceVersion": "0"}])
async def test_without_a_version_the_present_comes_first(
    api: ApiUnderTest, query: dict[str, str]
) -> None:
    mine = {"labelSelector": f"test={api.unique}"} | query
    for name in ("b", "a"):
        meta = {"name": f"{api.unique}-{name}", "labels": {"test": api.unique}}
        await api.made(api.config_maps, {"metadata": meta})
    # Not before the real server's cache has seen them.
    async with api.watch(api.config_maps, **mine) as watch:
        first = await watch.names(2)
        assert sorted(first) == [("ADDED", f"{api.unique}-a"), ("ADDED", f"{api.unique}-b")]
        await api.delete(f"{api.config_maps}/{api.unique}-a")
        assert await watch.names(1) == [("DELETED", f"{api.unique}-a")]


async def test_selected_objects_come_and_go(api: ApiUnderTest) -> None:
    path = f"{api.config_maps}/{api.unique}"
    await api.made(api.config_maps, {"metadata": {"name": api.unique}, "data": {"v": "1"}})
    version = (await api.get(api.config_maps)).body["metadata"]["resourceVersion"]
    query = {"labelSelector": f"test={api.unique}", "resourceVersion": version}
    async with api.watch(api.config_maps, **query) as watch:
        await api.patch(path, {"data": {"v": "2"}})  # not selected: not told
        await api.patch(path, {"metadata": {"labels": {"test": api.unique}}})
        await api.patch(path, {"data": {"v": "3"}})
        left = await api.patch(path, {"metadata": {"labels": None}, "data": {"v": "4"}})
        events = [await watch.next() for _ in range(3)]
    assert [(kind, body["data"]["v"]) for kind, body in events] == [
        ("ADDED", "2"),
        ("MODIFIED", "3"),
        ("DELETED", "3"),
    ]
    number = left.body["metadata"]["resourceVersion"]
    assert events[2][1]["metadata"]["resourceVersion"] == number
    assert events[2][1]["metadata"]["labels"] == {"test": api.unique}


async def test_one_object_by_name_and_the_old_paths(api: ApiUnderTest) -> None:
    meta = {"name": api.unique}
    await api.made(api.config_maps, {"metadata": meta})
    await api.made(api.config_maps, {"metadata": {"name": f"{api.unique}-2"}})
    by_name = {"fieldSelector": f"metadata.name={api.unique}"}
    old = api.config_maps.replace("/api/v1/", "/api/v1/watch/")
    for path, query in ((api.config_maps, by_name), (f"{old}/{api.unique}", {})):
        async with api.watch(path, **query) as watch:
            assert await watch.names(1) == [("ADDED", api.unique)]
            for name in (f"{api.unique}-2", api.unique):
                await api.patch(f"{api.config_maps}/{name}", {"data": {"p": path}})
            assert await watch.names(1) == [("MODIFIED", api.unique)]


async def test_a_terminating_object_is_modified_then_deleted(api: ApiUnderTest) -> None:
    meta = {"name": api.unique, "finalizers": ["test.dev/hold"]}
    await api.made(api.config_maps, {"metadata": meta})
    path = f"{api.config_maps}/{api.unique}"
    async with api.watch(api.config_maps, fieldSelector=f"metadata.name={api.unique}") as watch:
        await watch.next()
        await api.delete(path)
        last = await api.patch(path, {"metadata": {"finalizers": None}})
        held, gone = await watch.next(), await watch.next()
    assert (held[0], gone[0]) == ("MODIFIED", "DELETED")
    assert held[1]["metadata"]["finalizers"] == ["test.dev/hold"]
    # The last state anyone could read, under a number of its own; the writer is told the old one.
    assert gone[1]["metadata"]["finalizers"] == ["test.dev/hold"]
    version = held[1]["metadata"]["resourceVersion"]
    assert last.body["metadata"]["resourceVersion"] == version
    assert int(gone[1]["metadata"]["resourceVersion"]) > int(version)


async def test_cluster_scoped(api: ApiUnderTest) -> None:
    query = {"fieldSelector": f"metadata.name={api.unique}"}
    async with api.watch(VOLUMES, **query) as watch:
        await api.made(VOLUMES, volume(api.unique))
        kind, body = await watch.next()
        assert (kind, body["kind"], body["status"]["phase"]) == (
            "ADDED",
            "PersistentVolume",
            "Pending",
        )
        kind, body = await watch.next()
        assert (kind, body["status"]["phase"]) == ("MODIFIED", "Available")


async def test_an_impossible_version(api: ApiUnderTest) -> None:
    answer = await api.get(api.config_maps, watch="1", resourceVersion="abc")
    assert answer.status == 500
    answer = await api.get(api.config_maps, watch="1", labelSelector="a in (")
    assert answer.status == 400


async def test_the_server_ends_a_watch_in_time(api: ApiUnderTest) -> None:
    query = {"labelSelector": f"test={api.unique}", "timeoutSeconds": "1"}
    async with api.watch(api.config_maps, **query) as watch:
        assert await watch.rest() == []


async def test_a_bookmark_before_the_end(api: ApiUnderTest) -> None:
    listed = (await api.get(api.config_maps)).body
    version = int(listed["metadata"]["resourceVersion"])
    query = {"resourceVersion": str(version), "labelSelector": f"test={api.unique}"}
    # It is sent 2 s early.
    query |= {"timeoutSeconds": "4", "allowWatchBookmarks": "true"}
    number = itertools.count()

    async def told() -> list[tuple[str, Body]]:
        async with api.watch(api.config_maps, **query) as watch:
            name = f"{api.unique}-{next(number)}"
            await api.made(api.config_maps, {"metadata": {"name": name}})  # not selected
            return await watch.rest()

    def newer(events: list[tuple[str, Body]]) -> bool:
        assert {kind for kind, _ in events} <= {"BOOKMARK"}
        return any(int(body["metadata"]["resourceVersion"]) > version for _, body in events)

    # On a busy machine the object may be made too late, and a real server may send no bookmark.
    _, body = (await until_async(told, newer))[-1]
    assert (body["kind"], body["apiVersion"]) == ("ConfigMap", "v1")
    assert set(body["metadata"]) <= {"resourceVersion", "creationTimestamp"}


async def test_initial_events_end_with_a_bookmark(api: ApiUnderTest) -> None:
    meta = {"name": api.unique, "labels": {"test": api.unique}}
    made = await api.made(api.config_maps, {"metadata": meta})
    query = {"labelSelector": f"test={api.unique}", "allowWatchBookmarks": "true"}
    stream = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
    async with api.watch(api.config_maps, **query, **stream) as watch:
        kind, body = await watch.next()
        assert (kind, body) == ("ADDED", made)
        kind, body = await watch.next()
        assert kind == "BOOKMARK"
        assert body["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        number = int(body["metadata"]["resourceVersion"])
        assert number >= int(made["metadata"]["resourceVersion"])
        await api.delete(f"{api.config_maps}/{api.unique}")
        assert (await watch.next())[0] == "DELETED"
    refused = await api.get(api.config_maps, watch="1", sendInitialEvents="true")
    assert (refused.status, refused.causes) == (
        422,
        {("resourceVersionMatch", "FieldValueForbidden")},
    )
