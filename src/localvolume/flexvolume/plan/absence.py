"""When a 404 proves that an object is not there. Pure."""

from __future__ import annotations

from localvolume.kube.errors import NotThere


def is_proven(error: NotThere) -> bool:
    """Whether the API server itself says so: a proxy, or a server of something else, has a 404 of
    its own."""
    return error.reason == "NotFound"
