"""Lists: versions, pages, selectors."""

import pytest

from tests.contract.support_api import ApiUnderTest, Body, claim, pod, volume
from tests.suite.api import NODES, VOLUMES
from tests.suite.until import until_async


async def numbered(api: ApiUnderTest, count: int) -> None:
    """Config maps `unique-0`…, all labelled `test=unique`."""
    for i in range(count):
        labels = {"test": api.unique, "number": str(i), **({"even": ""} if i % 2 == 0 else {})}
        body = {"metadata": {"name": f"{api.unique}-{i}", "labels": labels}, "data": {"v": "old"}}
        await api.made(api.config_maps, body)


def names(body: dict[str, list[dict[str, dict[str, str]]]]) -> list[str]:
    return [item["metadata"]["name"].rpartition("-")[2] for item in body["items"]]


async def test_a_list(api: ApiUnderTest) -> None:
    await api.made(VOLUMES, volume(api.unique, labels={"test": api.unique}))
    listed = (await api.get(VOLUMES, labelSelector=f"test={api.unique}")).body
    assert (listed["kind"], listed["apiVersion"]) == ("PersistentVolumeList", "v1")
    assert int(listed["metadata"]["resourceVersion"]) > 0
    [item] = listed["items"]
    assert item["metadata"]["name"] == api.unique
    assert "kind" not in item
    assert "apiVersion" not in item


async def test_all_namespaces_at_once(api: ApiUnderTest) -> None:
    await numbered(api, 1)
    listed = await api.get("/api/v1/configmaps", labelSelector=f"test={api.unique}")
    assert [item["metadata"]["namespace"] for item in listed.body["items"]] == [api.namespace]
    answer = await api.call("POST", "/api/v1/configmaps", {"metadata": {"name": "x"}})
    assert answer.status == 405


async def test_pages_show_one_state(api: ApiUnderTest) -> None:
    await numbered(api, 5)
    query = {"limit": 2, "labelSelector": f"test={api.unique}"}
    first = (await api.get(api.config_maps, **query)).body
    assert names(first) == ["0", "1"]
    assert "remainingItemCount" not in first["metadata"]
    # Between the pages everything changes.
    await api.patch(f"{api.config_maps}/{api.unique}-2", {"data": {"v": "new"}})
    await api.delete(f"{api.config_maps}/{api.unique}-3")
    late = {"metadata": {"name": f"{api.unique}-35", "labels": {"test": api.unique}}}
    await api.made(api.config_maps, late)
    token = first["metadata"]["continue"]
    second = (await api.get(api.config_maps, **query, **{"continue": token})).body
    assert names(second) == ["2", "3"]
    assert second["items"][0]["data"] == {"v": "old"}
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    token = second["metadata"]["continue"]
    third = (await api.get(api.config_maps, **query, **{"continue": token})).body
    assert names(third) == ["4"]
    assert "continue" not in third["metadata"]
    now = (await api.get(api.config_maps, labelSelector=f"test={api.unique}")).body
    assert names(now) == ["0", "1", "2", "35", "4"]


async def test_what_remains_is_counted(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await numbered(api, 3)

    async def root_ca() -> bool:
        return (await api.get(f"{api.config_maps}/kube-root-ca.crt")).status == 200

    if api.real:  # whose controllers put it there, too
        await until_async(root_ca)
    total = len((await api.get(api.config_maps)).body["items"])
    first = (await api.get(api.config_maps, limit=1)).body
    assert first["metadata"]["remainingItemCount"] == total - 1
    whole = (await api.get(api.config_maps, limit=total)).body
    assert "continue" not in whole["metadata"]


async def test_limits_do_not_bind_the_watch_cache(api: ApiUnderTest) -> None:
    await numbered(api, 3)
    query = {"limit": 1, "resourceVersion": "0", "labelSelector": f"test={api.unique}"}

    async def some() -> Body:
        found: Body = (await api.get(api.config_maps, **query)).body
        return found

    # A real server's cache may be behind what was just made.
    listed = await until_async(some, lambda found: names(found) == ["0", "1", "2"])
    assert "continue" not in listed["metadata"]


async def test_versions_asked_for(api: ApiUnderTest) -> None:
    await numbered(api, 2)
    selector = f"test={api.unique}"
    before = (await api.get(api.config_maps, labelSelector=selector)).body["metadata"]
    version = before["resourceVersion"]
    await api.delete(f"{api.config_maps}/{api.unique}-0")
    exact = {"resourceVersion": version, "resourceVersionMatch": "Exact"}
    then = (await api.get(api.config_maps, labelSelector=selector, **exact)).body
    assert (names(then), then["metadata"]["resourceVersion"]) == (["0", "1"], version)
    newer = {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}

    async def later() -> Body:
        found: Body = (await api.get(api.config_maps, labelSelector=selector, **newer)).body
        return found

    # Not older, and no newer than a real server's cache is by now.
    now = await until_async(later, lambda found: names(found) == ["1"])
    assert int(now["metadata"]["resourceVersion"]) > int(version)


async def test_a_version_of_the_future(api: ApiUnderTest) -> None:
    answer = await api.get(api.config_maps, resourceVersion="99999999")
    assert (answer.status, answer.body["reason"]) == (504, "Timeout")
    assert {reason for _, reason in answer.causes} == {"ResourceVersionTooLarge"}
    assert answer.body["details"]["retryAfterSeconds"] == 1
    assert answer.headers["Retry-After"] == "1"


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"continue": "nonsense"}, 400),
        ({"resourceVersion": "abc"}, 400),
        ({"limit": "x"}, 400),
        ({"labelSelector": "a in (b"}, 400),
        ({"labelSelector": "a=b=c"}, 400),
        ({"labelSelector": "a b"}, 400),
        ({"labelSelector": "!"}, 400),
        ({"labelSelector": "a/b/c"}, 400),
        ({"fieldSelector": "spec=x"}, 400),
        ({"fieldSelector": "nonsense"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
        ({"resourceVersionMatch": "Vaguely", "resourceVersion": "1"}, 422),
    ],
)
async def test_questions_without_sense(
    api: ApiUnderTest, query: dict[str, str], status: int
) -> None:
    answer = await api.get(api.config_maps, **query)
    assert answer.status == status, answer.body
    assert answer.body["reason"] == {400: "BadRequest", 422: "Invalid"}[status]


async def test_label_selectors(api: ApiUnderTest) -> None:
    await numbered(api, 4)
    for selector, expected in (
        ("number=1", "1"),
        ("number==1", "1"),
        ("number!=1", "023"),
        ("number in (1, 3)", "13"),
        ("number notin (1,3)", "02"),
        ("even", "02"),
        ("!even", "13"),
        ("even=", "02"),
        ("even,number notin (0)", "2"),
        ("number>1", "23"),
        ("number<1", "0"),
        ("none!=x", "0123"),
        ("none notin (x)", "0123"),
        ("none in (x,)", ""),
        (" even , number = 2 ", "2"),
    ):
        listed = await api.get(api.config_maps, labelSelector=f"test={api.unique},{selector}")
        assert listed.status == 200, (selector, listed.body)
        assert "".join(names(listed.body)) == expected, selector


async def test_field_selectors(api: ApiUnderTest) -> None:
    await numbered(api, 3)
    query = {"fieldSelector": f"metadata.name={api.unique}-1,metadata.namespace={api.namespace}"}
    assert names((await api.get(api.config_maps, **query)).body) == ["1"]
    selector = {"labelSelector": f"test={api.unique}"}
    query = {"fieldSelector": f"metadata.name!={api.unique}-1"}
    assert names((await api.get(api.config_maps, **query, **selector)).body) == ["0", "2"]

    await api.made(VOLUMES, volume(api.unique))
    query = {"fieldSelector": f"metadata.name={api.unique}"}
    assert len((await api.get(VOLUMES, **query)).body["items"]) == 1
    for query in ({"fieldSelector": "spec.local.path=/x"}, {"fieldSelector": "status.phase=x"}):
        assert (await api.get(VOLUMES, **query)).status == 400

    await api.made(NODES, {"metadata": {"name": api.unique}})
    for value, count in (("false", 1), ("true", 0)):
        fields = f"metadata.name={api.unique},spec.unschedulable={value}"
        assert len((await api.get(NODES, fieldSelector=fields)).body["items"]) == count

    await api.made(api.claims, claim(api.unique, api.unique))
    assert (await api.get(api.claims, fieldSelector="spec.volumeName=x")).status == 400


async def test_pods_by_node(api: ApiUnderTest) -> None:
    await api.own_namespace()
    await api.made(api.pods, pod("here", nodeName=f"none-{api.unique}"))
    await api.made(api.pods, pod("there", nodeSelector={"no": "where"}))
    query = {"fieldSelector": f"spec.nodeName=none-{api.unique}"}
    assert names((await api.get("/api/v1/pods", **query)).body) == ["here"]
    query = {"fieldSelector": "spec.nodeName=,status.phase=Pending"}
    assert names((await api.get(api.pods, **query)).body) == ["there"]


async def test_events_by_object(api: ApiUnderTest) -> None:
    about = {"kind": "PersistentVolume", "name": api.unique, "uid": "u1", "apiVersion": "v1"}
    for i in range(2):
        meta = {"name": f"{api.unique}-{i}"}
        body = {"metadata": meta, "involvedObject": about | {"uid": f"u{i}"}, "type": "Normal"}
        body |= {"reason": f"R{i}", "source": {"component": f"c{i}"}}
        await api.made(api.events, body)
    # The question of kubectl describe.
    about_it = f"involvedObject.name={api.unique},involvedObject.namespace="
    about_it += ",involvedObject.kind=PersistentVolume,involvedObject.uid=u1"
    assert names((await api.get("/api/v1/events", fieldSelector=about_it)).body) == ["1"]
    named = f"involvedObject.name={api.unique}"
    for fields, found in ((",reason=R0", "0"), (",source=c1", "1"), (",type!=Normal", "")):
        listed = await api.get(api.events, fieldSelector=named + fields)
        assert "".join(names(listed.body)) == found
