"""The certificate of our endpoints, as a mounted Secret has it: read anew whenever it changes."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
from typing import Final

log = logging.getLogger(__name__)

CERTIFICATE: Final = "tls.crt"
KEY: Final = "tls.key"

_Stamp = tuple[tuple[int, int, int, int] | None, ...]


class CertificateInvalid(OSError):
    """There is no certificate with its key in the directory: which file, and why."""


class Certificate:
    """The pair in a directory. Raises CertificateInvalid where there is none to begin with.

    Both files are looked at for each client, so a new pair serves the next one; nothing is watched,
    and a link that is exchanged is as good as a file. A new pair that does not load leaves the old
    one in use, and the log says so once.
    """

    def __init__(self, directory: str) -> None:
        self._directory: Final = directory
        self._lock: Final = threading.Lock()
        # Before they are read: what changes meanwhile is read once more.
        self._seen = self._stamp()
        self._context = self._read()

    def accept(self, client: socket.socket) -> ssl.SSLSocket:
        """The same connection with TLS, after the handshake; the caller closes both sockets.

        The client's timeout is for all of the handshake. Raises OSError.
        """
        context = self._current()
        # A socket of its own, as the other goes on to be good for ending the connection.
        own = client.dup()
        try:
            secured = context.wrap_socket(own, server_side=True, do_handshake_on_connect=False)
        except BaseException:
            own.close()
            raise
        try:
            secured.do_handshake()
        except BaseException:
            secured.close()
            raise
        return secured

    def _current(self) -> ssl.SSLContext:
        with self._lock:
            stamp = self._stamp()
            if stamp != self._seen:
                self._seen = stamp
                try:
                    self._context = self._read()
                except CertificateInvalid as error:
                    log.error("%s; the certificate of before stays in use", error)  # noqa: TRY400
                else:
                    log.info("%s: a new certificate is in use", self._directory)
            return self._context

    def _paths(self) -> tuple[str, str]:
        return os.path.join(self._directory, CERTIFICATE), os.path.join(self._directory, KEY)

    def _stamp(self) -> _Stamp:
        """Which files these are; None for what cannot be seen."""
        return tuple(_stamp_of(path) for path in self._paths())

    def _read(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # Of TLS 1.2, OpenSSL would keep up to 20,480 sessions; of 1.3 it keeps none.
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        try:
            for path in self._paths():
                # OpenSSL's errors do not name the file.
                with open(path, "rb"):
                    pass
            # The password keeps OpenSSL from asking for one at the terminal.
            context.load_cert_chain(*self._paths(), password="")
        except ssl.SSLError as error:
            where = f"{self._directory}: {CERTIFICATE} and {KEY}"
            raise CertificateInvalid(f"{where} are no certificate with its key: {error}") from error
        except (OSError, ValueError) as error:
            raise CertificateInvalid(f"the certificate cannot be read: {error}") from error
        return context


def _stamp_of(path: str) -> tuple[int, int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
