"""What TLS and authorization of the endpoints take; imported by processes that have them on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from localvolume.kube.access.auth import find_access
from localvolume.kube.client import Client
from localvolume.process.certificate import Certificate
from localvolume.process.endpoints import Guard, Secured
from localvolume.process.readers import REVIEW_SECONDS, Readers, Verdict

REVIEWS: Final = 2
"""How many questions about readers may be in flight."""


@contextlib.asynccontextmanager
async def guarding(secured: Secured, path: str) -> AsyncIterator[Guard]:
    """The guard of the page at `path`, for as long as the block.

    Raises CertificateInvalid, and AccessInvalid.
    """
    certificate = Certificate(secured.certificate)
    # A client of its own: whoever knocks with false tokens delays nothing that the node needs.
    async with Client(
        find_access(secured.kubeconfig),
        user_agent="localvolume-metrics",
        timeout=REVIEW_SECONDS,
        concurrency=REVIEWS,
        on_request=secured.on_request,
    ) as client:
        readers = Readers(client, path)

        def refusal(authorization: str) -> str:
            verdict = readers.judge(authorization)
            return "" if verdict is Verdict.MAY else verdict.value

        yield Guard(certificate.accept, refusal)
