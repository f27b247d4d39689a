"""A program of ours as a thread of the tests' process, with an event loop of its own."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Coroutine


class LoopThread:
    """Runs `main` until it ends, fails or is stopped; `what` names it in failures."""

    def __init__(self, what: str, main: Callable[[], Coroutine[object, object, None]]) -> None:
        self.failure: BaseException | None = None
        self._what = what
        self._main = main
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name=what)
        self._thread.start()
        self._ready.wait(60)

    def _run(self) -> None:
        try:
            asyncio.run(self._until_cancelled())
        except BaseException as error:  # noqa: BLE001 - shown by whoever waits for it
            self.failure = error
        finally:
            self._ready.set()

    async def _until_cancelled(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._main())
        self._ready.set()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    def check(self) -> None:
        """Fail the test where it has ended by itself."""
        if self.failure is not None:
            raise AssertionError(f"the {self._what} has ended") from self.failure

    def stop(self) -> None:
        """End it as SIGTERM would; fails where it does not end."""
        if self._loop is not None and self._task is not None and self._thread.is_alive():
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(90)
        assert not self._thread.is_alive(), f"the {self._what} does not end"
        self.check()
