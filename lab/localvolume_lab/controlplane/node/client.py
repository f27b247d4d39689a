"""How the API server proves itself to kubelets, for `kubectl logs` and `kubectl exec`."""

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from localvolume_lab.controlplane.node.requirements import NodeFailed, program


@dataclass(frozen=True)
class KubeletClient:
    """A certificate of the API server's as a client of kubelets, and its key (PEM files)."""

    certificate: Path
    key: Path

    @property
    def apiserver_args(self) -> tuple[str, ...]:
        """For ControlPlane(extra_apiserver_args=...)."""
        return (
            f"--kubelet-client-certificate={self.certificate}",
            f"--kubelet-client-key={self.key}",
            # Nobody resolves the nodes' names.
            "--kubelet-preferred-address-types=InternalIP",
        )


def make_client(directory: Path) -> KubeletClient:
    """A new key and a certificate signed by itself, in `directory`; raises NodeFailed.

    A kubelet that let in whom it does not know would give a root shell to every user here.
    """
    client = KubeletClient(directory / "kubelet-client.crt", directory / "kubelet-client.key")
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(client.key, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600))
    argv = [
        *(program("openssl"), "req", "-x509", "-nodes", "-days", "30"),
        *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
        *("-subj", "/O=system:masters/CN=kube-apiserver"),
        *("-keyout", str(client.key), "-out", str(client.certificate)),
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
    if done.returncode != 0:
        raise NodeFailed(f"openssl req: {done.stderr.strip()}")
    return client
