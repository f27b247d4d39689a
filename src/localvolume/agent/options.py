"""What the DaemonSet, or other code that starts an agent, tells it."""

from __future__ import annotations

from dataclasses import dataclass, field

from localvolume.agent.deeds import Deeds
from localvolume.agent.paces import Paces
from localvolume.config.environment import AgentEnvironment
from localvolume.config.flags.agent import CONFIG_DIRECTORY
from localvolume.config.flags.listening import DEFAULT_METRICS_PATH, ListenAddress
from localvolume.config.sources import Others
from localvolume.health.model import Patience
from localvolume.static.role import GRACE_SECONDS
from localvolume.volumes.periods import Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions(AgentEnvironment):
    """The environment and the flags. Periods and times are in seconds."""

    config_directory: str = CONFIG_DIRECTORY
    listen_address: ListenAddress | None = None
    metrics_path: str = DEFAULT_METRICS_PATH
    metrics_certificate: str | None = None
    """The directory of the TLS certificate; None: no TLS, and everyone may read the metrics."""
    claims_in_metrics: bool = False
    csi: bool = False
    """Whether the CSI driver is served; the kubelet's directory is needed for that."""
    cgroup_dir: str = ""
    """Where the host's control groups are, to limit reading and writing in them; "": nowhere."""
    csi_max_volumes: int = 0
    """How many CSI volumes pods of this node may use; 0: any number."""
    discovery_period: float | None = None
    config_sync_period: float | None = None
    vanished_grace: float = GRACE_SECONDS
    patience: Patience = field(default_factory=Patience)
    """How long a problem of a volume must last before it is reported."""
    others: Others = field(default_factory=Others)
    """The provisioners that this agent replaces."""
    paces: Paces = field(default_factory=Paces)
    deeds: Deeds = field(default_factory=Deeds)
    clock: Clock = field(default_factory=Clock)
    """Measures the periods that end with a removal."""
