"""TLS to the API server: its certificate authority, and our client certificate if we have one."""

from __future__ import annotations

import base64
import binascii
import os
import ssl
from dataclasses import dataclass
from typing import Final

from localvolume.kube.errors import AccessInvalid


class Pem:
    """PEM text from a file, read again on demand, or from a kubeconfig's base64 data.

    `field` says where it is configured, for messages.
    """

    def __init__(self, field: str, *, path: str = "", data: str = "") -> None:
        self._field: Final = field
        self._path: Final = "" if data else path
        self._data: Final = data

    def __bool__(self) -> bool:
        return bool(self._path or self._data)

    def read(self) -> bytes:
        if self._data:
            try:
                return base64.b64decode(self._data, validate=False)
            except binascii.Error as error:
                raise AccessInvalid(f"{self._field}-data: not base64: {error}") from error
        try:
            with open(self._path, "rb") as file:
                return file.read()
        except OSError as error:
            raise AccessInvalid(f"{self._field}: {self._path}: {error.strerror}") from error

    def __str__(self) -> str:
        return f"{self._field}: {self._path}" if self._path else f"{self._field}-data"


@dataclass(eq=False, kw_only=True)
class Tls:
    """The TLS context for one server. When its certificates change, a new context is made.

    aiohttp never uses a pooled connection of one context for a request with another, so a new
    certificate takes effect with the next request.
    """

    authority: Pem
    certificate: Pem
    key: Pem
    insecure: bool = False

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise AccessInvalid(
                f"{self.certificate or self.key}: a certificate needs its key, and the reverse"
            )
        # The pair from an exec plugin, which takes precedence over the kubeconfig's.
        self._given = b""
        self._material = self._read()
        self.context = self._build(*self._material)

    def reload(self) -> None:
        """Read the files again; there is a new context if they changed. Raises AccessInvalid."""
        material = self._read()
        if material != self._material:
            # If this fails, the next call finds the same change again.
            self.context = self._build(*material)
            self._material = material

    def use_certificate(self, pem: bytes) -> None:
        """Use this client certificate and its key: PEM, one after the other."""
        self._given = pem
        self.reload()

    def _read(self) -> tuple[bytes, bytes]:
        authority = self.authority.read() if self.authority else b""
        pair = self._given
        if not pair and self.certificate:
            pair = self.certificate.read() + b"\n" + self.key.read()
        return authority, pair

    def _build(self, authority: bytes, pair: bytes) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["http/1.1"])
        if self.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        elif authority:
            # Only this one: loading the system's 140 takes 60 ms, and none of them counts here.
            try:
                context.load_verify_locations(cadata=authority.decode("ascii", "replace"))
            except (ssl.SSLError, ValueError) as error:
                raise AccessInvalid(f"{self.authority}: no certificate in it: {error}") from error
        else:
            context.load_default_certs()
        if pair:
            self._load_pair(context, pair)
        return context

    def _load_pair(self, context: ssl.SSLContext, pair: bytes) -> None:
        # Python's ssl module loads a pair only from a file; this file is only in memory.
        descriptor = os.memfd_create("client-certificate", os.MFD_CLOEXEC)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(pair)
            # The password keeps OpenSSL from asking for one at the terminal.
            context.load_cert_chain(f"/proc/self/fd/{descriptor}", password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            raise AccessInvalid(
                f"{self.certificate}: certificate and key do not load: {error}"
            ) from error
        finally:
            os.close(descriptor)
