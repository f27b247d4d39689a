"""ControlPlane: etcd, the API server, the controllers and the scheduler, up in seconds."""

import os
import shutil
import signal
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from localvolume_lab.controlplane import flags, kubectl
from localvolume_lab.controlplane.access import ADMIN, Access, RequestFailed, healthy
from localvolume_lab.controlplane.assets import PLANE, Assets
from localvolume_lab.controlplane.build import provide
from localvolume_lab.controlplane.nodes import create_node
from localvolume_lab.controlplane.ports import free_ports
from localvolume_lab.controlplane.processes import Guard, wait_all
from localvolume_lab.controlplane.running import START_SECONDS, Running

APISERVER = "kube-apiserver"


class PlaneFailed(Exception):
    """The plane did not come up or fell over; the message has the ends of the logs that say why."""


class ControlPlane(Running):
    """A real control plane on loopback ports; a context manager, or start() and stop().

    Certificates, keys, tokens and data are new with every start. Nodes exist only as objects
    (`create_node`), so pods are scheduled but never run, and a pod that was scheduled goes only
    with `kubectl delete pod --force --grace-period=0`. Everything dies with this process, however
    it dies. Not for several threads at once, but start, stop and the others may come from any.

    `directory`: where logs, keys and kubeconfigs go; the logs stay there (a temporary one of
    ours is removed). `users`: further user names with their groups, for tests of permissions.
    `node_controllers`: run nodelifecycle, which needs kubelets, or evicts from silent nodes.
    `extra_apiserver_args`: flags that come after ours, and so win.
    """

    error = PlaneFailed

    def __init__(
        self,
        directory: str | os.PathLike[str] | None = None,
        *,
        controllers: bool = True,
        scheduler: bool = True,
        node_controllers: bool = False,
        users: Mapping[str, Sequence[str]] | None = None,
        extra_apiserver_args: Sequence[str] = (),
        assets: Assets | None = None,
    ) -> None:
        super().__init__()
        self._given_directory = None if directory is None else Path(directory).absolute()
        self._controllers, self._scheduler = controllers, scheduler
        self._node_controllers = node_controllers
        self._users = dict(users or {})
        self._extra = tuple(extra_apiserver_args)
        self._assets = assets
        self._guard: Guard | None = None

    # Life

    def start(self, timeout: float = START_SECONDS) -> None:
        """Start everything and wait until it is ready; raises PlaneFailed or ComponentsMissing."""
        if self._guard is not None:
            raise PlaneFailed("this control plane is already running")
        names = [name for name in PLANE if self._wanted(name)]
        self._assets = self._assets or provide(names)
        if self._given_directory is None:
            self.directory = Path(tempfile.mkdtemp(prefix="localvolume-plane-"))
        else:
            self.directory = self._given_directory
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._remove_state()
        self._guard = Guard(remove=self.directory if self._given_directory is None else None)
        try:
            self._start(self._assets, self._guard, time.monotonic() + timeout)
        except BaseException:
            self.stop(grace=0)
            raise

    def _wanted(self, name: str) -> bool:
        return {
            "kube-controller-manager": self._controllers,
            "kube-scheduler": self._scheduler,
        }.get(name, True)

    def _start(self, assets: Assets, guard: Guard, deadline: float) -> None:
        layout = flags.Layout(self.directory, *free_ports(5))
        self.url = f"https://127.0.0.1:{layout.apiserver}"
        self._access = Access(self.url, layout.certificate, self._users)
        self._access.write_tokens(layout.tokens)
        self.kubeconfig = layout.kubeconfig
        self._layout = layout

        def launch(name: str, arguments: Sequence[str]) -> None:
            self._launch(name, [str(assets[name]), *arguments], guard)

        launch("etcd", flags.etcd(layout))
        launch(APISERVER, [*flags.apiserver(layout), *self._extra])
        # Its certificate comes long before its first answer, and signs service account tokens too.
        self._until(lambda: _complete_pem(layout.certificate), deadline, "its certificate")
        self._access.write_kubeconfig(self.kubeconfig)
        # kube-controller-manager ends if this is not so within 10 s of its start.
        self._until(lambda: self._ok("/healthz"), deadline, "the API server to be healthy")
        if self._controllers:
            launch("kube-controller-manager", flags.controllers(layout, self._node_controllers))
        if self._scheduler:
            launch("kube-scheduler", flags.scheduler(layout))
        self.wait_ready(deadline - time.monotonic())

    def stop(self, grace: float = 2.0) -> None:
        """End everything, by force after `grace` seconds; data and temporary directory go."""
        if self._guard is None:
            return
        if self._components:
            self._access.close()
        # What writes first, then what it writes to. All of it is thrown away: no long goodbyes.
        for name in ("kube-scheduler", "kube-controller-manager"):
            if name in self._components:
                self._components[name].signal(signal.SIGKILL)
        wait_all(list(reversed(self._components.values())), grace)
        self._components.clear()
        self._remove_state()
        self._guard.close()
        self._guard = None

    def _remove_state(self) -> None:
        for name in flags.STATE:
            path = self.directory / name
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)

    # Health

    def wait_ready(self, timeout: float = START_SECONDS) -> None:
        """Until the API server is ready and what runs beside it works; raises PlaneFailed.

        With controllers, pods can be created in the namespace "default" from then on.
        """
        deadline = time.monotonic() + timeout
        self._until(lambda: self._ok("/readyz"), deadline, "the API server to be ready")
        if self._controllers:
            account = "/api/v1/namespaces/default/serviceaccounts/default"
            self._until(lambda: self._ok(account), deadline, "the controllers to work")
        if self._scheduler:
            url = f"https://127.0.0.1:{self._layout.scheduler}/healthz"
            self._until(lambda: healthy(url), deadline, "the scheduler to be ready")

    def _ok(self, path: str) -> bool:
        try:
            self._access.request("GET", path, timeout=5.0)
        except (OSError, RequestFailed):
            return False
        return True

    # Faults

    def stop_apiserver(self, grace: float = 2.0) -> None:
        """End the API server: its port then refuses connections, at once.

        Open watches go on for `grace` seconds, then they are cut by SIGKILL (0: immediately).
        """
        self._components[APISERVER].stop(grace)

    def start_apiserver(self, timeout: float = START_SECONDS) -> None:
        """Start it again on the same port with the same data and keys; returns when it is ready."""
        self._components[APISERVER].start()
        deadline = time.monotonic() + timeout
        self._until(lambda: self._ok("/readyz"), deadline, "the API server to be ready again")

    def pause(self, name: str = APISERVER) -> None:
        """Freeze a component: connections stay open and nothing is answered."""
        self._components[name].signal(signal.SIGSTOP)

    def resume(self, name: str = APISERVER) -> None:
        """Let a frozen component go on."""
        self._components[name].signal(signal.SIGCONT)

    # Use

    @property
    def token(self) -> str:
        """The administrator's bearer token (group system:masters)."""
        return self._access.tokens[ADMIN]

    @property
    def ca_file(self) -> Path:
        """The certificate (PEM) with which the API server is to be verified."""
        return self._access.certificate

    @property
    def pids(self) -> dict[str, int]:
        """The process id of each component that runs now."""
        return {name: c.pid for name, c in self._components.items() if c.pid is not None}

    def token_of(self, user: str) -> str:
        """The bearer token of one of `users`."""
        return self._access.tokens[user]

    def kubeconfig_of(self, user: str) -> Path:
        """A kubeconfig file for one of `users`."""
        path = self.directory / f"kubeconfig-{user.replace(':', '-').replace('/', '-')}"
        self._access.write_kubeconfig(path, user)
        return path

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        content_type: str = "application/json",
        user: str = ADMIN,
    ) -> Any:
        """One API request, decoded: quicker than kubectl by its 0.2 s; raises RequestFailed."""
        return self._access.request(method, path, body, content_type=content_type, user=user)

    def kubectl(self, *arguments: str, input: str | None = None, timeout: float = 60.0) -> str:  # noqa: A002
        """kubectl's standard output; `input` is its standard input; raises KubectlFailed."""
        program, *options = self.kubectl_argv
        return kubectl.run(Path(program), options, arguments, input or "", timeout)

    @property
    def kubectl_argv(self) -> list[str]:
        """What comes before the arguments of a kubectl that talks to this control plane."""
        if self._assets is None:
            raise PlaneFailed("this control plane was never started")
        # The cache of discovery answers belongs to this plane, not to the user's home.
        cache = f"--cache-dir={self.directory}/kubectl-cache"
        return [str(self._assets["kubectl"]), f"--kubeconfig={self.kubeconfig}", cache]

    def create_node(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        *,
        taints: Sequence[Mapping[str, str]] = (),
    ) -> dict[str, Any]:
        """A Ready node without a kubelet: room for 110 pods, and a hostname label as kubelet sets.

        Returns the Node as the API has it; raises RequestFailed (409 where it exists).
        """
        return create_node(self._access, name, labels or {}, taints)


def _complete_pem(path: Path) -> bool:
    # Two certificates, the server's own and its issuer's: half a file is not enough.
    try:
        return path.read_bytes().count(b"-----END CERTIFICATE-----") >= 2
    except FileNotFoundError:
        return False
