"""Bearer tokens that rotate: from a file that is rewritten, or from an exec plugin."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, Protocol

from localvolume.kube.errors import AccessInvalid

if TYPE_CHECKING:
    from localvolume.kube.access.execplugin import Credential

_log = logging.getLogger(__name__)

# client-go's period: kubelet rewrites a token at 80 % of its life, which is an hour or more.
FILE_AGE_SECONDS: Final = 60.0
# Renew what is about to expire rather than be refused in the middle of something.
_EXPIRY_MARGIN_SECONDS: Final = 30.0


class TokenSource(Protocol):
    async def get(self) -> str:
        """The token to use now, empty for none. Raises AccessInvalid."""

    async def renew(self, refused: str) -> bool:
        """The server refused this one: True if there is now something else to try."""


class FixedToken:
    """A token that is what it is."""

    def __init__(self, token: str) -> None:
        self._token: Final = token

    async def get(self) -> str:
        return self._token

    async def renew(self, refused: str) -> bool:
        return refused != self._token


class TokenFile:
    """A token in a file, read again at most every 60 s and when the server refuses it."""

    def __init__(
        self, path: str, *, field: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path: Final = path
        self._field: Final = field
        self._clock: Final = clock
        self._token = ""
        self._read_at = clock()
        self._read()
        if not self._token:
            raise AccessInvalid(f"{field}: {path}: empty")

    async def get(self) -> str:
        if self._clock() - self._read_at >= FILE_AGE_SECONDS:
            self._read_again()
        return self._token

    async def renew(self, refused: str) -> bool:
        self._read_again()
        return self._token != refused

    def _read_again(self) -> None:
        try:
            self._read()
        except AccessInvalid as error:
            # The token we have may be good for a while; the server will say when it is not.
            _log.warning("keeping the token read before: %s", error)

    def _read(self) -> None:
        # A few hundred bytes from a tmpfs or the page cache: not worth a thread.
        self._read_at = self._clock()
        try:
            with open(self._path, encoding="utf-8") as file:
                token = file.read().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise AccessInvalid(f"{self._field}: {self._path}: {error}") from error
        self._token = token or self._token


class PluginToken:
    """What an exec plugin prints: a token, a client certificate for `on_certificate`, or both."""

    def __init__(
        self,
        run: Callable[[], Awaitable[Credential]],
        *,
        on_certificate: Callable[[bytes], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._run: Final = run
        self._on_certificate: Final = on_certificate
        self._clock: Final = clock
        self._credential: Credential | None = None
        self._one_at_a_time: Final = asyncio.Lock()

    async def get(self) -> str:
        async with self._one_at_a_time:
            if self._credential is None or self._is_expiring(self._credential):
                await self._ask()
            return self._token()

    async def renew(self, refused: str) -> bool:
        async with self._one_at_a_time:
            if self._token() == refused:
                await self._ask()
            return True

    def _token(self) -> str:
        return (self._credential.token or "") if self._credential else ""

    def _is_expiring(self, credential: Credential) -> bool:
        expiry = credential.expiration_timestamp
        return expiry is not None and expiry.timestamp() - _EXPIRY_MARGIN_SECONDS < self._clock()

    async def _ask(self) -> None:
        self._credential = credential = await self._run()
        if credential.client_certificate_data:
            pair = f"{credential.client_certificate_data}\n{credential.client_key_data}"
            self._on_certificate(pair.encode())
