"""Everything of a kind, page by page: all of it, once each."""

from __future__ import annotations

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.kube.kinds import CLAIMS
from localvolume.kube.listing import listed
from tests.contract.support_api import ApiUnderTest


async def test_all_of_a_kind_is_listed_page_by_page(api: ApiUnderTest) -> None:
    namespace = await api.own_namespace()
    names = [f"claim-{number}" for number in range(5)]
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    for name in names:
        await api.made(api.claims, {"metadata": {"name": name}, "spec": spec})
    pages: list[str] = []

    def count(verb: str, *_: object) -> None:
        pages.append(verb)

    access = find_access(str(api.kubeconfig))
    async with Client(access, user_agent="test", on_request=count) as client:
        found = await listed(client, CLAIMS, namespace, page=2)
    assert [claim.metadata.name for claim in found] == names
    assert pages == ["list"] * 3
