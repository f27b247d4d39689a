"""The Pod that this process runs in, read once from the API server, for its mounts.

A pod's mounts do not change during its life.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from localvolume.kube.backoff import Backoff
from localvolume.kube.client import Client
from localvolume.kube.errors import ApiError, TryAgainLater
from localvolume.kube.kinds import POD_MOUNTS
from localvolume.kube.podmounts import PodMounts

log = logging.getLogger(__name__)

_LONGEST_SECONDS: Final = 60.0
"""The longest wait before a failed read is tried again."""


class OwnPod:
    """Run `run()` as a task. `pod` is None until it is read, and always if `name` is "".

    `answered` is set once the pod is read or cannot be. `problem` says why it cannot, or is "".
    """

    def __init__(self, client: Client, namespace: str, name: str) -> None:
        self._client = client
        self._namespace = namespace
        self._name = name
        self.pod: PodMounts | None = None
        self.problem = ""
        self.answered = asyncio.Event()
        if not name:
            self.answered.set()

    async def run(self, changed: Callable[[], object]) -> None:
        """Try until the pod is read, then call `changed` and return."""
        if not self._name:
            return
        backoff = Backoff(longest=_LONGEST_SECONDS)
        while True:
            after = None
            try:
                self.pod = await read_pod(self._client, self._namespace, self._name)
            except TryAgainLater as error:
                # Not a problem of its own: without the API server nothing else is done either.
                after = error.after
                log.info("the agent's own pod: %s", error)
            except ApiError as error:
                self._unknown(str(error))
            else:
                if self.pod is not None:
                    break
                self._unknown(f"there is no pod {self._name} in {self._namespace}")
            await asyncio.sleep(backoff.next(after))
        self.problem = ""
        self.answered.set()
        changed()

    def _unknown(self, why: str) -> None:
        problem = (
            "what the agent's pod has mounted is not known, so a hostDir that is not what is"
            f" mounted at its mountDir is not noticed: {why}"
        )
        if self.problem != problem:
            log.error("%s", problem)
        self.problem = problem
        self.answered.set()


async def read_pod(client: Client, namespace: str, name: str) -> PodMounts | None:
    """The pod of that name; None if there is none. Raises ApiError.

    Uses a list: agents are allowed to list the pods of their namespace, for their Jobs.
    """
    selector = f"metadata.name={name}"
    page = await client.list_page(POD_MOUNTS, namespace, field_selector=selector, limit=0)
    return next(iter(page.items), None)
