"""The Pod that this process runs in, as the API server has it: read once, for what it has mounted.

What a pod has mounted does not change while it lives.
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
"""How soon what was refused is asked for again, at the latest."""


class OwnPod:
    """Run `run()` as a task. `pod` is None until it is read, and where `name` is "".

    `answered` is set once it was read, or cannot be; then `problem` says why, "" for nothing.
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
        """Ends once it was read, having called `changed`."""
        if not self._name:
            return
        backoff = Backoff(longest=_LONGEST_SECONDS)
        while True:
            after = None
            try:
                self.pod = await read_pod(self._client, self._namespace, self._name)
            except TryAgainLater as error:
                # Without the API server nothing else is done either.
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
    """The pod of that name; None where there is none. Raises ApiError.

    By a list: agents may list the pods of their namespace, for their Jobs.
    """
    selector = f"metadata.name={name}"
    page = await client.list_page(POD_MOUNTS, namespace, field_selector=selector, limit=0)
    return next(iter(page.items), None)
