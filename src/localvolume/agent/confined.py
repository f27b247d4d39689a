"""Checks that policies confine the agent to its node, by trying what they forbid.

RBAC alone gives every agent the volumes of the whole cluster. If the API server does not serve
ValidatingAdmissionPolicy, or the policies were not applied, nobody would notice otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from http import HTTPStatus
from typing import Any, Final

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import AlreadyThere, ApiError
from localvolume.kube.kinds import PERSISTENT_VOLUMES

log = logging.getLogger(__name__)

_AGAIN_SECONDS: Final = 10.0

_BY_RBAC: Final = "cannot create resource"
"""What the API server's authorizers say. If they say something else, that is taken for a policy."""

_NOT_ASKED: Final = "it is not known yet whether the agent is confined to its node"
_UNCONFINED: Final = (
    "the agent is not confined to its node: the API server let it offer a volume of no node. Apply "
    "the ValidatingAdmissionPolicies of the manifests, or say confinement.enabled: false "
    "(docs/rights.md)"
)

FORBIDDEN: Final[dict[str, Any]] = {
    "metadata": {"name": "local-pv-forbidden"},
    "spec": {
        "capacity": {"storage": "1"},
        "accessModes": ["ReadWriteOnce"],
        "persistentVolumeReclaimPolicy": "Retain",
        "hostPath": {"path": "/nowhere"},
    },
}
"""A volume without our label, node or class. It is never created: the request is a dry run."""


class Confined:
    """Run `run()` as a task; `problem` is why the agent is not ready, "" once it is confined."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.problem = _NOT_ASKED

    async def run(self) -> None:
        """Try until the agent is confined: policies may be applied, and take effect, after it."""
        backoff = Backoff()
        while True:
            try:
                # Policies are checked before the name: if the name is taken, no policy refused it.
                with contextlib.suppress(AlreadyThere):
                    await self._client.try_to_create(PERSISTENT_VOLUMES, FORBIDDEN)
            except ApiError as error:
                if error.status == HTTPStatus.FORBIDDEN:
                    # Refused by a policy, or by RBAC: then there is nothing to confine.
                    if self.problem == _UNCONFINED:
                        log.info("the agent is confined to its node now")
                    log.debug("confined: %s", error)
                    self.problem = ""
                    if _BY_RBAC not in str(error):
                        return
                    # Roles may be applied, and take effect, after the agent, too.
                    await asyncio.sleep(backoff.next(error.after))
                    continue
                log.info("whether the agent is confined to its node: %s", error)
                await asyncio.sleep(backoff.next(error.after))
            else:
                if self.problem != _UNCONFINED:
                    log.error("%s", _UNCONFINED)
                self.problem = _UNCONFINED
                await asyncio.sleep(_AGAIN_SECONDS)
