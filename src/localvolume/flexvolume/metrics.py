"""The metrics of FlexVolume: what was asked, how it ended, and what there is."""

from __future__ import annotations

from localvolume.process.metrics import Metrics, counter, gauge, histogram


class FlexMetrics(Metrics):
    """All of them, on one registry."""

    # fmt: off
    calls = counter("localvolume_flexvolume_calls_total",
        "Calls of the driver's client, by result: success, failure, or error for those that "
        "could not be read or for which the API server did not do its part", "callout", "result")
    call_seconds = histogram("localvolume_flexvolume_call_duration_seconds",
        "Seconds a call of the driver's client took", "callout")
    volumes = gauge("localvolume_flexvolume_volumes", "FlexVolume volumes on this node")
    volumes_bytes = gauge("localvolume_flexvolume_volumes_bytes", "The sizes they were made for")
    adopted = counter("localvolume_flexvolume_adopted_total",
        "Volumes of elastic's driver that were marked as ours")
    # fmt: on
