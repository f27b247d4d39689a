"""The node and the configured classes as a plan needs them, from the configuration and objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from localvolume.config.model import ClassConfig, Configuration
from localvolume.kube.objects import StorageClass
from localvolume.kube.podmounts import PodMounts
from localvolume.static.model import ClassFacts
from localvolume.volumes.hostdirs import misplaced
from localvolume.volumes.manifest import NodeFacts, PublishingOptions

if TYPE_CHECKING:
    from localvolume.cleaning.jobs import JobSettings


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What every action of one plan has in common."""

    node: NodeFacts
    options: PublishingOptions
    classes: dict[str, ClassFacts] = field(default_factory=dict)
    jobs: JobSettings | None = None
    """How cleaning Jobs are made; None: the configuration wants none."""

    def to_look_at(self) -> dict[str, ClassConfig]:
        """The classes whose directories can be looked at: those without a problem so far."""
        return {name: one.config for name, one in self.classes.items() if not one.problem}


def surroundings(
    configuration: Configuration,
    node: NodeFacts,
    storage_classes: Mapping[str, StorageClass] | None,
    *,
    namespace: str = "",
    image: str = "",
    sees_udev: bool = False,
    pod: PodMounts | None = None,
) -> Surroundings:
    """Configuration and StorageClass objects joined. If the latter are None, nobody was asked, and
    every class counts as existing with reclaim policy Delete.

    `namespace`, `image` and `sees_udev` are those of cleaning Jobs, if they are to be made.
    `pod` is the agent's own, None if it is not known.
    """
    options = PublishingOptions(
        node_labels=configuration.node_labels_for_pv,
        labels=configuration.labels_for_pv,
        use_node_name_only=configuration.use_node_name_only,
        set_owner_reference=configuration.set_pv_owner_ref,
        use_alpha_affinity=configuration.use_alpha_api,
    )
    classes = {}
    for name, config in configuration.storage_classes.items():
        known = (storage_classes or {}).get(name)
        if storage_classes is None:
            classes[name] = ClassFacts(config)
        elif known is None:
            classes[name] = ClassFacts(config, exists=False)
        else:
            policy = known.reclaim_policy or "Delete"
            classes[name] = ClassFacts(config, True, policy, known.mount_options)
    for name, facts in classes.items():
        if why := misplaced(pod, facts.config.host_dir, facts.config.mount_dir):
            classes[name] = replace(facts, problem=why)
    jobs = None
    if configuration.use_job_for_cleaning:
        # Imported now: an agent without Jobs need not load the code that makes them.
        from localvolume.cleaning.jobs import JobSettings

        tolerations, resources = configuration.job_tolerations, configuration.job_resources
        jobs = JobSettings(namespace, image, tolerations, resources, sees_udev)
    return Surroundings(node, options, classes, jobs)
