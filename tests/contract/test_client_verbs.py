"""What the client sends for each verb, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from types import MappingProxyType
from typing import Any

import pytest

from localvolume.kube import objects
from localvolume.kube.client import Client, JsonPatch, MergePatch
from localvolume.kube.errors import (
    LONGEST_WAIT_SECONDS,
    AlreadyThere,
    ApiError,
    ListAgain,
    LookAgain,
    NotThere,
    TellTheAdministrator,
    TryAgainLater,
)
from localvolume.kube.kinds import CLAIMS, EVENTS, PERSISTENT_VOLUMES, Kind
from localvolume.kube.objects import NO_STRINGS, Meta, PersistentVolume
from tests.contract.support_kube import (
    FaultServer,
    answer,
    client_of,
    failure,
    fault_server,
    listing,
    never,
    raw,
    volume,
)
from tests.suite.api import MERGE, VOLUMES


@pytest.fixture
async def server() -> AsyncIterator[FaultServer]:
    async with fault_server() as running:
        yield running


@pytest.fixture
async def client(server: FaultServer) -> AsyncIterator[Client]:
    async with client_of(server) as opened:
        yield opened


async def test_get_reads_an_object_with_null_lists(server: FaultServer, client: Client) -> None:
    server.others = [answer(volume("a", 7))]
    got = await client.get(PERSISTENT_VOLUMES, "a")
    assert (got.metadata.name, got.metadata.resource_version) == ("a", "7")
    assert got.metadata.labels is NO_STRINGS
    assert got.metadata.finalizers == ()
    assert got.metadata.owner_references == ()
    assert got.spec.access_modes == ()
    assert got.spec.capacity == {"storage": "10Gi"}
    assert got.spec.node_affinity is not None
    assert got.spec.node_affinity.required is not None
    assert got.spec.node_affinity.required.node_selector_terms == ()
    assert server.seen[0].path == "/api/v1/persistentvolumes/a"


async def test_hostname_terms_are_kept(server: FaultServer, client: Client) -> None:
    sent = volume("a", 7)
    requirement = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
    terms = [{"matchExpressions": [requirement]}, {"matchExpressions": None}]
    sent["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = terms
    server.others = [answer(sent)]
    got = await client.get(PERSISTENT_VOLUMES, "a")
    assert got.spec.node_affinity is not None
    assert got.spec.node_affinity.required is not None
    first, second = got.spec.node_affinity.required.node_selector_terms
    (expression,) = first.match_expressions
    assert (expression.key, expression.operator) == ("kubernetes.io/hostname", "In")
    assert expression.values == ("n1",)
    assert second.match_expressions == ()


async def test_what_volumes_have_in_common_is_kept_once(
    server: FaultServer, client: Client
) -> None:
    """It is what keeps a cached volume at 2 kB."""
    items = []
    for number in range(2):
        item = volume(f"v{number}", number, labels={"node": "n1"}, finalizers=["f"])
        requirement = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["n1"]}
        item["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"] = [
            {"matchExpressions": [requirement]}
        ]
        item["spec"]["storageClassName"] = "fast"
        items.append(item)
    items.append(volume("other", 3, labels={"node": "n2"}))
    server.lists = [answer(listing(5, *items))]
    one, two, other = (await client.list_page(PERSISTENT_VOLUMES)).items
    assert one.metadata.labels is two.metadata.labels
    assert one.metadata.finalizers is two.metadata.finalizers
    assert one.spec.capacity is two.spec.capacity is other.spec.capacity
    assert one.spec.node_affinity is two.spec.node_affinity
    assert one.spec.storage_class_name is two.spec.storage_class_name
    assert (one.metadata.name, two.metadata.name) == ("v0", "v1")
    assert other.metadata.labels == {"node": "n2"}
    assert other.spec.node_affinity != one.spec.node_affinity


def test_what_is_kept_once_is_bounded() -> None:
    for number in range(10_000):
        PersistentVolume(metadata=Meta(labels={"number": str(number)}))
    assert len(objects._shared) <= 4096


async def test_names_cannot_leave_their_place(server: FaultServer, client: Client) -> None:
    with pytest.raises(NotThere):
        await client.get(CLAIMS, "../x y", "a/b")
    assert client.access.server == server.url
    path = "/api/v1/namespaces/a%2Fb/persistentvolumeclaims/..%2Fx%20y"
    assert CLAIMS.path("a/b", "../x y") == path
    for misuse in (("", None), ("..", None), ("x", "default")):
        with pytest.raises(ValueError, match="PersistentVolume"):
            PERSISTENT_VOLUMES.path(namespace=misuse[1], name=misuse[0])
    with pytest.raises(ValueError, match="namespace"):
        CLAIMS.path(name="x")


async def test_create_fills_in_what_it_is(server: FaultServer, client: Client) -> None:
    server.others = [answer(volume("a", 7), status=201)]
    labels = MappingProxyType({"k": "v"})
    made = await client.create(PERSISTENT_VOLUMES, {"metadata": {"name": "a", "labels": labels}})
    assert made.metadata.uid == "uid-a"
    sent = server.seen[0]
    assert (sent.method, sent.path) == ("POST", VOLUMES)
    assert sent.body == {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "a", "labels": {"k": "v"}},
    }


async def test_create_takes_the_namespace_from_the_manifest(
    server: FaultServer, client: Client
) -> None:
    server.others = [answer({"metadata": {"name": "c"}}, status=201)]
    await client.create(CLAIMS, {"metadata": {"name": "c", "namespace": "n"}})
    assert server.seen[0].path == "/api/v1/namespaces/n/persistentvolumeclaims"
    with pytest.raises(ValueError, match="namespace"):
        await client.create(CLAIMS, {"metadata": {"name": "c"}})


async def test_patches_say_what_they_are(server: FaultServer, client: Client) -> None:
    server.others = [answer(volume("a", 8))]
    await client.patch(PERSISTENT_VOLUMES, "a", MergePatch({"x": None}), subresource="status")
    await client.patch(PERSISTENT_VOLUMES, "a", JsonPatch([{"op": "remove", "path": "/x"}]))
    merge, json_patch = server.seen
    assert merge.path.endswith("/persistentvolumes/a/status")
    assert merge.headers["Content-Type"] == MERGE
    assert merge.body == {"x": None}
    assert json_patch.headers["Content-Type"] == "application/json-patch+json"
    assert json_patch.body == [{"op": "remove", "path": "/x"}]


async def test_delete_names_the_very_object(server: FaultServer, client: Client) -> None:
    server.others = [answer({})]
    await client.delete(
        PERSISTENT_VOLUMES, "a", uid="u", resource_version="9", propagation="Background"
    )
    sent = server.seen[0]
    assert sent.method == "DELETE"
    assert sent.body["preconditions"] == {"uid": "u", "resourceVersion": "9"}
    assert sent.body["propagationPolicy"] == "Background"


@pytest.mark.parametrize(("uid", "version"), [("", None), ("u", "")])
async def test_delete_without_a_precondition_is_refused_here(
    server: FaultServer, client: Client, uid: str, version: str | None
) -> None:
    with pytest.raises(ValueError, match="UID"):
        await client.delete(PERSISTENT_VOLUMES, "a", uid=uid, resource_version=version)
    assert server.seen == []


async def test_list_pages(server: FaultServer, client: Client) -> None:
    server.lists = [answer(listing(5, volume("a", 1), cont="more")), answer(listing(5))]
    first = await client.list_page(
        PERSISTENT_VOLUMES, label_selector="a=b,c in (d)", limit=1, resource_version="3"
    )
    assert ([item.metadata.name for item in first.items], first.cont) == (["a"], "more")
    assert first.size == len(json.dumps(listing(5, volume("a", 1), cont="more")))
    last = await client.list_page(PERSISTENT_VOLUMES, cont="more", resource_version="3", limit=1)
    # `items: null` is an empty list.
    assert (last.items, last.cont, last.resource_version) == ([], "", "5")
    one, two = server.seen
    assert one.query == {"labelSelector": "a=b,c in (d)", "limit": "1", "resourceVersion": "3"}
    assert two.query == {"continue": "more", "limit": "1"}


@pytest.mark.parametrize(
    ("code", "reason", "expected"),
    [
        (400, "BadRequest", TellTheAdministrator),
        (403, "Forbidden", TellTheAdministrator),
        (404, "NotFound", NotThere),
        (405, "MethodNotAllowed", TellTheAdministrator),
        (408, "", TryAgainLater),
        (409, "AlreadyExists", AlreadyThere),
        (409, "Conflict", LookAgain),
        (410, "Expired", ListAgain),
        (413, "RequestEntityTooLarge", TellTheAdministrator),
        (415, "UnsupportedMediaType", TellTheAdministrator),
        (422, "Invalid", TellTheAdministrator),
        (429, "TooManyRequests", TryAgainLater),
        (500, "InternalError", TryAgainLater),
        (503, "ServiceUnavailable", TryAgainLater),
        (504, "Timeout", TryAgainLater),
    ],
)
async def test_errors_are_named_by_what_to_do(
    server: FaultServer, client: Client, code: int, reason: str, expected: type[ApiError]
) -> None:
    server.others = [failure(code, reason, "the sentence")]
    with pytest.raises(ApiError) as caught:
        await client.get(PERSISTENT_VOLUMES, "a")
    assert type(caught.value) is expected
    assert (caught.value.status, caught.value.reason) == (code, reason)
    assert caught.value.message == "the sentence"


async def test_a_json_patch_that_does_not_apply_is_a_conflict(
    server: FaultServer, client: Client
) -> None:
    # Both answers as kube-apiserver 1.34 gives them.
    sentence = "the server rejected our request due to an error in our request"
    server.others = [failure(422, "Invalid", sentence, details={})]
    with pytest.raises(LookAgain):
        await client.patch(PERSISTENT_VOLUMES, "a", JsonPatch([]))
    with pytest.raises(TellTheAdministrator):
        await client.patch(PERSISTENT_VOLUMES, "a", MergePatch({}))
    cause = {"reason": "FieldValueForbidden", "message": "immutable", "field": "spec"}
    details = {"name": "a", "kind": "PersistentVolume", "causes": [cause]}
    server.others = [failure(422, "Invalid", "is invalid", details=details)]
    with pytest.raises(TellTheAdministrator, match="immutable"):
        await client.patch(PERSISTENT_VOLUMES, "a", JsonPatch([]))


async def test_answers_that_are_not_kubernetes(server: FaultServer, client: Client) -> None:
    server.others = [
        raw(b"<html>Bad gateway</html>", status=502),
        raw(b'{"metadata": {"name": '),
        raw(b'{"metadata": 7}'),
        raw(b"", status=302, headers={"Location": "http://127.0.0.1:1/"}),
    ]
    with pytest.raises(TryAgainLater, match="Bad gateway"):
        await client.get(PERSISTENT_VOLUMES, "a")
    with pytest.raises(TryAgainLater, match="cut"):
        await client.get(PERSISTENT_VOLUMES, "a")
    with pytest.raises(TellTheAdministrator, match="cannot read"):
        await client.get(PERSISTENT_VOLUMES, "a")
    with pytest.raises(TellTheAdministrator):
        await client.get(PERSISTENT_VOLUMES, "a")


async def test_nobody_there(server: FaultServer) -> None:
    server.url = "http://127.0.0.1:1"
    async with client_of(server) as client:
        with pytest.raises(TryAgainLater) as caught:
            await client.get(PERSISTENT_VOLUMES, "a")
    assert caught.value.status == 0
    assert caught.value.after is None


async def test_a_silent_server_is_not_waited_for(server: FaultServer) -> None:
    server.others = [never()]
    told: list[ApiError | None] = []
    async with client_of(server, timeout=0.1) as client:
        client.on_request = lambda verb, kind, seconds, error: told.append(error)
        with pytest.raises(TryAgainLater, match=r"within 0\.1 s"):
            await client.get(PERSISTENT_VOLUMES, "a")
    assert [type(error) for error in told] == [TryAgainLater]


async def test_retry_after_keeps_everybody_away(server: FaultServer, client: Client) -> None:
    busy = failure(429, "TooManyRequests", headers={"Retry-After": "1"})
    server.others = [busy, answer(volume("a", 1))]
    with pytest.raises(TryAgainLater) as caught:
        await client.get(PERSISTENT_VOLUMES, "a")
    assert caught.value.after == 1
    await client.get(PERSISTENT_VOLUMES, "b")
    assert server.seen[1].at - server.seen[0].at >= 0.95


async def test_a_long_retry_after_is_told_at_once(server: FaultServer, client: Client) -> None:
    server.others = [failure(503, "ServiceUnavailable", headers={"Retry-After": "60"})]
    for _ in range(2):
        with pytest.raises(TryAgainLater) as caught:
            await client.get(PERSISTENT_VOLUMES, "a")
        assert caught.value.after == pytest.approx(60, abs=20)
    assert len(server.seen) == 1


async def test_nobody_stays_away_for_a_day(server: FaultServer, client: Client) -> None:
    """A mistake cannot be told from a wish: what is asked for is bounded, for every caller."""
    server.others = [failure(503, "ServiceUnavailable", headers={"Retry-After": "86400"})]
    with pytest.raises(TryAgainLater) as caught:
        await client.get(PERSISTENT_VOLUMES, "a")
    assert caught.value.after == LONGEST_WAIT_SECONDS


@pytest.mark.parametrize("value", ["soon", "nan", "-1", "inf"])
async def test_a_senseless_retry_after_is_none(
    server: FaultServer, client: Client, value: str
) -> None:
    server.others = [failure(429, "TooManyRequests", headers={"Retry-After": value})]
    with pytest.raises(TryAgainLater) as caught:
        await client.get(PERSISTENT_VOLUMES, "a")
    assert caught.value.after is None


async def test_requests_in_flight_are_limited(server: FaultServer) -> None:
    now, most = 0, 0
    together = asyncio.Event()

    async def slow(request: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        if now == 3:
            together.set()
        # However late the others are; and then a fourth could come.
        await asyncio.wait_for(together.wait(), 60)
        await asyncio.sleep(0.02)
        now -= 1
        return await answer(volume("a", 1))(request)

    server.others = [slow]
    async with client_of(server, concurrency=3) as client:
        await asyncio.gather(*(client.get(PERSISTENT_VOLUMES, "a") for _ in range(12)))
    assert most == 3


async def test_requests_are_reported(server: FaultServer) -> None:
    told: list[tuple[str, str, type | None]] = []

    def hook(verb: str, kind: Kind[Any], seconds: float, error: ApiError | None) -> None:
        assert 0 <= seconds < 60
        told.append((verb, kind.plural, type(error) if error else None))

    server.others = [answer(volume("a", 1), status=201), failure(409, "Conflict")]
    async with client_of(server, on_request=hook) as client:
        await client.create(PERSISTENT_VOLUMES, {})
        with pytest.raises(LookAgain):
            await client.delete(PERSISTENT_VOLUMES, "a", uid="u")
        await client.list_page(EVENTS)
    assert told == [
        ("create", "persistentvolumes", None),
        ("delete", "persistentvolumes", LookAgain),
        ("list", "events", None),
    ]


async def test_what_identifies_us(server: FaultServer, client: Client) -> None:
    await client.list_page(PERSISTENT_VOLUMES)
    headers = server.seen[0].headers
    assert headers["User-Agent"] == "test"
    assert headers["Accept"] == "application/json"
    assert headers["Accept-Encoding"] == "identity"
    assert "Authorization" not in headers
