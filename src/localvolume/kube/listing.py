"""Lists all objects of a kind at once, for commands. Long-running processes use an informer."""

from __future__ import annotations

from typing import Final

from localvolume.kube.client import Client
from localvolume.kube.errors import ListAgain
from localvolume.kube.kinds import Kind, T

PAGE: Final = 500
"""How many objects one request asks for."""


async def listed(
    client: Client,
    kind: Kind[T],
    namespace: str | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    page: int = PAGE,
) -> list[T]:
    """All objects of a kind, read page by page. Starts over once if the list expires meanwhile."""
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
