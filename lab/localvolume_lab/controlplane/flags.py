"""The flags that each component is started with, and the files and ports they share."""

from dataclasses import dataclass
from pathlib import Path

#: What a stopped plane leaves that must not be used again: data, keys, tokens.
STATE = ("etcd", "certificates", "tokens.csv", "kubeconfig", "kubectl-cache")


@dataclass(frozen=True)
class Layout:
    """One plane's directory and its loopback ports."""

    directory: Path
    etcd: int
    etcd_peer: int
    apiserver: int
    controllers: int
    scheduler: int

    @property
    def certificates(self) -> Path:
        return self.directory / "certificates"

    @property
    def certificate(self) -> Path:
        return self.certificates / "apiserver.crt"

    @property
    def key(self) -> Path:
        return self.certificates / "apiserver.key"

    @property
    def tokens(self) -> Path:
        return self.directory / "tokens.csv"

    @property
    def kubeconfig(self) -> Path:
        return self.directory / "kubeconfig"


def etcd(layout: Layout) -> list[str]:
    client = f"http://127.0.0.1:{layout.etcd}"
    peer = f"http://127.0.0.1:{layout.etcd_peer}"
    return [
        "--name=plane",
        f"--data-dir={layout.directory / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=plane={peer}",
        "--unsafe-no-fsync",  # the data live as long as the process
    ]


def apiserver(layout: Layout) -> list[str]:
    return [
        f"--etcd-servers=http://127.0.0.1:{layout.etcd}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={layout.apiserver}",
        # It makes a key and a certificate here if there are none. The same key signs the tokens
        # of service accounts, so that a start needs neither openssl nor a library for keys.
        f"--cert-dir={layout.certificates}",
        f"--service-account-signing-key-file={layout.key}",
        f"--service-account-key-file={layout.key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        "--allow-privileged=true",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--endpoint-reconciler-type=none",
    ]


def controllers(layout: Layout, node_controllers: bool) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.controllers}",
        "--leader-elect=false",
        "--use-service-account-credentials=false",
        f"--service-account-private-key-file={layout.key}",
        f"--root-ca-file={layout.certificate}",
        "--pvclaimbinder-sync-period=2s",
        "--kube-api-qps=300",  # one client for all controllers: its default would hold tests up
        "--kube-api-burst=600",
        # Nodes that are only objects send no heartbeats and need no pod network.
        "--controllers=*,-nodeipam" + ("" if node_controllers else ",-nodelifecycle"),
    ]


def scheduler(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        "--bind-address=127.0.0.1",
        f"--secure-port={layout.scheduler}",
        "--leader-elect=false",
    ]
