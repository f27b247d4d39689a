"""`localvolume controller`: the process that sees the whole cluster; two replicas, one leader."""

from __future__ import annotations

import argparse
import os
import sys

from localvolume.cli.logs import add_log_arguments, set_up
from localvolume.cli.process import run_process
from localvolume.config.controller_flags import (
    ControllerFlags,
    FlagsInvalid,
    add_controller_flags,
)
from localvolume.controller.controller import Controller, ControllerOptions, LeaseOptions
from localvolume.controller.leading import Pace
from localvolume.controller.model import Policy
from localvolume.volumes.marks import FLEX_DRIVER, FLEX_DRIVERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_controller_flags(parser)
    add_log_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    set_up(arguments)
    try:
        options = _options(ControllerFlags.read(arguments, os.environ))
    except FlagsInvalid as error:
        print(f"localvolume controller: {error}", file=sys.stderr)
        return 2
    return run_process("controller", Controller(options).run)


def _options(flags: ControllerFlags) -> ControllerOptions:
    return ControllerOptions(
        policy=Policy(
            delete_classes=flags.storageclass_names,
            claim_delay=flags.pvc_deletion_delay,
            return_period=flags.node_return_period,
            provisioners=flags.dynamic_provisioners - FLEX_DRIVERS,
            flex_drivers=(flags.dynamic_provisioners & FLEX_DRIVERS) | {FLEX_DRIVER},
        ),
        pace=Pace(
            lost=flags.stale_pv_discovery_interval,
            resync=flags.resync,
            at_a_time=flags.worker_threads,
        ),
        lease=LeaseOptions(
            name=flags.lease_name,
            namespace=flags.lease_namespace,
            seconds=flags.lease_seconds,
            renew_deadline=flags.renew_deadline,
            retry_seconds=flags.retry_seconds,
        ),
        kubeconfig=flags.kubeconfig,
        listen_address=flags.listen_address,
        metrics_path=flags.metrics_path,
        metrics_certificate=flags.metrics_certificate,
    )
