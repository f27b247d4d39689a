"""What the DaemonSet, or whoever starts an agent, tells it."""

from __future__ import annotations

from dataclasses import dataclass, field

from localvolume.agent.deeds import Deeds
from localvolume.agent.paces import Paces
from localvolume.config.environment import DEFAULT_METRICS_PATH, ListenAddress
from localvolume.config.sources import Others
from localvolume.config.variables import MY_NAMESPACE
from localvolume.health.model import Patience
from localvolume.static.role import GRACE_SECONDS
from localvolume.volumes.periods import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Periods and times in seconds.

    Cleaning Jobs run in `namespace`; `job_image` None: there can be none. `pod_name` is that of the
    agent's own pod there; "" where it has none.
    """

    node_name: str
    namespace: str = MY_NAMESPACE.default
    pod_name: str = ""
    job_image: str | None = None
    confined: bool = False
    """Whether it must be refused what is not its node's, before it is ready."""
    config_directory: str = "/etc/provisioner/config"
    kubeconfig: str | None = None
    listen_address: ListenAddress | None = None
    metrics_path: str = DEFAULT_METRICS_PATH
    metrics_certificate: str | None = None
    """The directory of the certificate for TLS; None: none, and everyone reads the metrics."""
    claims_in_metrics: bool = False
    discovery_period: float | None = None
    config_sync_period: float | None = None
    vanished_grace: float = GRACE_SECONDS
    kubelet_directory: str | None = None
    """Where the kubelet mounts volumes for pods; None: it does not, on this machine."""
    records_directory: str | None = None
    """Where the records lie of what can carry none itself; None: nowhere."""
    patience: Patience = field(default_factory=Patience)
    """How long what is wrong with a volume must last before it is said."""
    others: Others = field(default_factory=Others)
    """The provisioners for claims whose places are taken."""
    paces: Paces = field(default_factory=Paces)
    deeds: Deeds = field(default_factory=Deeds)
    clock: Clock = field(default_factory=Clock)
    """By which periods are counted that end with a removal."""
