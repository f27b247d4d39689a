"""All objects of a kind at once, for commands: what runs for long has an informer instead."""

from __future__ import annotations

from typing import Final

from localvolume.kube.client import Client
from localvolume.kube.errors import ListAgain
from localvolume.kube.kinds import Kind, T

PAGE: Final = 500
"""How many objects are asked for in one request."""


async def listed(
    client: Client,
    kind: Kind[T],
    namespace: str | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    page: int = PAGE,
) -> list[T]:
    """All objects of a kind, page by page; begun anew once where a page came too late."""
    for last in (False, True):
        found: list[T] = []
        cont = ""
        try:
            while True:
                part = await client.list_page(
                    kind,
                    namespace,
                    label_selector=label_selector,
                    field_selector=field_selector,
                    limit=page,
                    cont=cont,
                )
                found += part.items
                cont = part.cont
                if not cont:
                    return found
        except ListAgain:
            if last:
                raise
    raise AssertionError("not reached")
