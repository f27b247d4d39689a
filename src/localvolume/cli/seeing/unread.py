"""Says in a few words which right is missing where something could not be read, and who has it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_REFUSED: Final = re.compile(
    r'is forbidden: User "(?P<user>[^"]*)" cannot (?P<verb>[a-z]+) resource "[^"]*"'
    r'(?: in API group "[^"]*")?(?: in the namespace "(?P<namespace>[^"]*)")?'
)
"""What the API server says about a request that its authorizer denies."""


def refused_user(why: str) -> str | None:
    """Who was refused, None if it could not be read for another reason."""
    refused = _REFUSED.search(why)
    return refused["user"] if refused else None


def in_short(why: str) -> str:
    """Which right is missing, after the name of what could not be read; else `why` itself."""
    refused = _REFUSED.search(why)
    if refused is None:
        return why
    within = f" in the namespace {refused['namespace']}" if refused["namespace"] else ""
    return f"no right to {refused['verb']} them{within}"


def unread_facts(unknown: Mapping[str, str]) -> list[tuple[str, str]]:
    """One pair for each thing that could not be read, and after them who has the rights."""
    found = [("Unknown", f"{what}: {in_short(why)}") for what, why in unknown.items()]
    users = sorted({user for why in unknown.values() if (user := refused_user(why)) is not None})
    if users:
        whom = " and ".join(f'"{user}"' for user in users)
        found.append(
            ("Rights", f"the chart's ClusterRole …-viewer has these: have it bound to {whom}")
        )
    return found
