"""aiohttp without what we never use of it.

When imported, aiohttp builds a TLS context with every certificate authority of the system: 90 ms
of CPU and 2 MB that stay. Every request of ours brings its own context (the cluster's authority
and no other), so OpenSSL is shown an empty list while aiohttp is being imported.

The agent must import this package before it imports aiohttp from anywhere else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_VARIABLES: Final = {"SSL_CERT_FILE": os.devnull, "SSL_CERT_DIR": os.devnull}


@contextmanager
def no_authorities() -> Iterator[None]:
    """Hide the system's certificate authorities from OpenSSL for the time of a `with`."""
    before = {name: os.environ.get(name) for name in _VARIABLES}
    os.environ.update(_VARIABLES)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
