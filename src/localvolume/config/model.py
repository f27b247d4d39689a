"""The configuration once it is validated: frozen dataclasses and nothing else.

The keys and defaults are those of the static provisioner's ConfigMap; `pools`, `flexvolume`,
`disks`, `jobResources` and three class keys of ours (`firstUse`, `cleaningConcurrency`,
`cleaningTimeout`) are optional and absent from its files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from localvolume.config.syntax import globs

if TYPE_CHECKING:
    # An agent that has none of these need not import them.
    from localvolume.config.disks import DisksConfig
    from localvolume.config.flexvolume import FlexVolumeConfig
    from localvolume.config.pools import Flavor, LvmConfig, PoolConfig

VolumeMode = Literal["Filesystem", "Block"]
AccessMode = Literal["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"]
FirstUse = Literal["require-empty", "trust", "clean"]

Resources = Mapping[str, Mapping[str, str]]
"""`requests` and `limits`: each the quantities of `cpu` and `memory` that were given."""

JOB_RESOURCES: Final[Resources] = {
    "requests": {"cpu": "10m", "memory": "64Mi"},
    "limits": {"memory": "256Mi"},
}
"""What a cleaning Job asks for and may use if `jobResources` is not given."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong in the configuration, worded so that it can be corrected.

    `file` is the file's name inside the directory (or the path given on a command line; several
    names joined by ", " if a key is given twice); `key` the path of the key, written
    `storageClassMap.fast.hostDir` or `jobTolerations[0].operator`, and "" if the file as a whole
    is meant; `reason` a sentence without a full stop.
    """

    file: str
    key: str
    reason: str

    def __str__(self) -> str:
        return ": ".join(part for part in (self.file, self.key, self.reason) if part)


class ConfigurationInvalid(Exception):
    """The configuration must not be used; `problems` holds every reason, `warnings` the rest.

    A caller that has an earlier configuration keeps it.
    """

    def __init__(self, problems: Iterable[Problem], warnings: Iterable[Problem] = ()) -> None:
        self.problems = list(problems)
        self.warnings = list(warnings)
        super().__init__("; ".join(str(problem) for problem in self.problems))


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassConfig:
    """One storage class of `storageClassMap`: where its volumes are and how they are treated.

    `host_dir` and `mount_dir` are clean absolute paths without a trailing slash: the discovery
    directory as the host and as this process sees it. `block_cleaner_command` is None when the key
    is absent (the choice is then `cleaning`'s). `selector` holds NodeSelectorTerms as the API
    writes them. `cleaning_concurrency` is how many volumes of one device may be cleaned at the same
    time. `cleaning_timeout_seconds` None means no limit.
    """

    name: str
    host_dir: str
    mount_dir: str
    block_cleaner_command: tuple[str, ...] | None = None
    volume_mode: VolumeMode = "Filesystem"
    access_mode: AccessMode = "ReadWriteOnce"
    fs_type: str = ""
    name_pattern: str = "*"
    selector: tuple[Mapping[str, Any], ...] = ()
    first_use: FirstUse = "require-empty"
    cleaning_concurrency: int = 1
    cleaning_timeout_seconds: float | None = None

    def matches(self, entry_name: str) -> bool:
        """Whether `namePattern` matches an entry of the discovery directory.

        It is a comma separated list of Go's filepath.Match patterns, not trimmed, as in upstream.
        `load` lets no malformed pattern through; one built by hand raises globs.BadPattern.
        """
        return any(globs.match(token, entry_name) for token in self.name_pattern.split(","))


@dataclass(frozen=True, slots=True)
class Served:
    """A provisioner that is replaced here. `refusals` say why a class ("": any other) has no pool
    on this node; `default_host_dir` is the directory of OpenEBS' classes without BasePath, and
    `host_dirs` are all directories that they may name."""

    provisioner: str
    flavor: Flavor
    refusals: Mapping[str, str] = field(default_factory=dict)
    default_host_dir: str = ""
    host_dirs: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """The whole configuration. Upstream's documentation says what each of its keys does.

    `job_tolerations` and `job_resources` are as the API writes them. `warnings` are things worth
    changing that do not stop the agent.
    """

    storage_classes: Mapping[str, ClassConfig] = field(default_factory=dict)
    pools: tuple[PoolConfig, ...] = ()
    served: tuple[Served, ...] = ()
    flexvolume: FlexVolumeConfig | None = None
    disks: DisksConfig | None = None
    node_labels_for_pv: tuple[str, ...] = ()
    labels_for_pv: Mapping[str, str] = field(default_factory=dict)
    job_tolerations: tuple[Mapping[str, Any], ...] = ()
    job_resources: Resources = field(default_factory=lambda: JOB_RESOURCES)
    use_alpha_api: bool = False
    use_job_for_cleaning: bool = False
    use_node_name_only: bool = False
    set_pv_owner_ref: bool = False
    remove_node_not_ready_taint: bool = False
    provisioner_not_ready_node_taint_key: str = ""
    min_resync_period_seconds: float = 300.0
    warnings: tuple[Problem, ...] = field(default=(), compare=False)

    @property
    def groups(self) -> tuple[LvmConfig, ...]:
        """The volume groups in which volumes are made for claims."""
        flex = (self.flexvolume,) if self.flexvolume else ()
        return tuple(one.lvm for one in (*self.pools, *flex) if one.lvm)
