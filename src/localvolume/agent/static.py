"""The role of the volumes that an administrator prepared, and the Jobs that feed it."""

from __future__ import annotations

import asyncio

from localvolume.agent.shared import Shared
from localvolume.config.model import Configuration
from localvolume.static.jobs.watch import JobWatch
from localvolume.static.role import StaticRole
from localvolume.static.telemetry import Telemetry


def begin(
    shared: Shared, tasks: asyncio.TaskGroup, configuration: Configuration, telemetry: Telemetry
) -> StaticRole:
    """Make the role and start its informers. The caller runs it."""
    options, wakes = shared.options, shared.wakes
    paces = options.paces.static
    jobs = JobWatch(
        shared.client, options.namespace, options.node_name, wakes.jobs, paces.jobs_again
    )
    jobs.needed = configuration.use_job_for_cleaning
    role = StaticRole(
        client=shared.client,
        events=shared.events,
        workers=shared.workers,
        telemetry=telemetry,
        volumes=shared.volumes,
        storage_classes=shared.storage_classes,
        nodes=shared.nodes,
        jobs=jobs,
        own_pod=shared.own_pod,
        node_name=options.node_name,
        job_image=options.job_image,
        configuration=configuration,
        kubelet_directory=options.kubelet_directory,
        records_directory=options.records_directory,
        grace_seconds=options.vanished_grace,
        paces=paces,
        clean=options.deeds.clean,
        on_resync=wakes.resync,
        on_offered=wakes.offered,
    )
    for wake in (wakes.volumes, wakes.classes, wakes.node, wakes.jobs, wakes.pod):
        wake.append(role.objects_changed)
    wakes.mounts.append(role.mounts_changed)
    wakes.devices.append(role.device_changed)
    shared.loops["discovery"] = role.loop
    shared.look_at_volumes = role.objects_changed
    shared.problems.append(lambda: role.problems)
    tasks.create_task(jobs.run())
    return role
