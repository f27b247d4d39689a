"""`localvolume controller`: the process for the whole cluster; two replicas, one leader."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping

from localvolume.cli.logs import add_log_arguments, set_up
from localvolume.cli.output.refusal import say
from localvolume.cli.process import run_process
from localvolume.config.flags.controller import (
    CONTROLLER_FLAGS,
    FlagsInvalid,
    check_together,
    lease_namespace,
)
from localvolume.config.flags.table import add_flags
from localvolume.config.provisioner import OURS
from localvolume.controller.controller import Controller, ControllerOptions, LeaseOptions
from localvolume.controller.leading import Pace
from localvolume.controller.model import Policy
from localvolume.volumes.marks import FLEX_DRIVER, FLEX_DRIVERS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, *CONTROLLER_FLAGS)
    add_log_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    set_up(arguments)
    try:
        options = options_of(arguments, os.environ)
    except FlagsInvalid as error:
        say("controller", error)
        return 2
    return run_process("controller", Controller(options).run)


def options_of(given: argparse.Namespace, environ: Mapping[str, str]) -> ControllerOptions:
    """The options from the flags; our own provisioners are always served. Raises FlagsInvalid."""
    namespace = lease_namespace(given, environ)
    check_together(given)
    provisioners = {*OURS, *given.dynamic_provisioners}
    return ControllerOptions(
        policy=Policy(
            delete_classes=frozenset(given.storageclass_names),
            claim_delay=given.pvc_deletion_delay,
            return_period=given.node_return_period,
            provisioners=frozenset(provisioners - FLEX_DRIVERS),
            flex_drivers=frozenset(provisioners & FLEX_DRIVERS | {FLEX_DRIVER}),
        ),
        pace=Pace(
            lost=given.stale_pv_discovery_interval,
            resync=given.resync,
            at_a_time=given.worker_threads,
        ),
        lease=LeaseOptions(
            name=given.lease_name,
            namespace=namespace,
            seconds=given.leader_elect_lease_duration,
            renew_deadline=given.leader_elect_renew_deadline,
            retry_seconds=given.leader_elect_retry_period,
        ),
        kubeconfig=given.kubeconfig,
        listen_address=given.listen_address,
        metrics_path=given.metrics_path,
        metrics_certificate=given.metrics_certificate,
    )
