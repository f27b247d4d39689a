"""A certificate in a directory, as the kubelet mounts a Secret, and who asks over TLS."""

from __future__ import annotations

import http.client
import ssl
from pathlib import Path

from tests.cluster.support_endpoints import STALLED
from tests.contract.support_kube_certificates import Authority, Signed

NAME = "metrics.test"


class Mounted:
    """A directory with tls.crt and tls.key, which are exchanged in one step."""

    def __init__(self, directory: Path) -> None:
        self.authority = Authority()
        self.directory = directory
        directory.mkdir()
        self._written = 0
        self.renew()

    def renew(self) -> bytes:
        """Put another certificate there; it, as DER."""
        signed = self.authority.sign(NAME)
        self.write(signed)
        return ssl.PEM_cert_to_DER_cert(signed.certificate.decode())

    def write(self, signed: Signed) -> None:
        self._written += 1
        data = self.directory / f"..{self._written}"
        data.mkdir()
        (data / "tls.crt").write_bytes(signed.certificate)
        (data / "tls.key").write_bytes(signed.key)
        self._link("..data", data.name)
        for name in ("tls.crt", "tls.key"):
            self._link(name, f"..data/{name}")

    def _link(self, name: str, target: str) -> None:
        new = self.directory.parent / f"new-{self.directory.name}"
        new.symlink_to(target)
        new.rename(self.directory / name)

    def trust(self) -> ssl.SSLContext:
        """For who knows the authority, and the name that a certificate of its must have."""
        return ssl.create_default_context(cadata=self.authority.pem.decode())

    def get(self, port: int, path: str, authorization: str = "") -> tuple[int, str]:
        """What is served there, (0, why) where nothing is; the certificate is verified."""
        for _ in range(10):
            answer = self._get(port, path, authorization)
            if STALLED not in answer[1]:
                break
        return answer

    def _get(self, port: int, path: str, authorization: str) -> tuple[int, str]:
        asked = http.client.HTTPSConnection("127.0.0.1", port, timeout=60, context=self.trust())
        try:
            headers = {"Authorization": authorization} if authorization else {}
            asked.request("GET", path, headers=headers)
            answer = asked.getresponse()
            return answer.status, answer.read().decode()
        except OSError as error:
            return 0, str(error)
        finally:
            asked.close()
