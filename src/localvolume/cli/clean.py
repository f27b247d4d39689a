"""`localvolume clean`: clean one volume and report the result. A cleaning Job runs this.

LOCAL_PV_BLKDEVICE or LOCAL_PV_FILESYSTEM names the volume, which must be what the arguments say.
It is then held, checked, cleaned and proved as the agent would do it. No cluster is asked.
Exit status: 0 clean, 1 not clean, 2 not understood.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import signal
import time
from collections.abc import Callable

from localvolume.cleaning.method import Method, choose_method
from localvolume.cleaning.order import Order, add_order_arguments, read_order
from localvolume.cleaning.receipt import CleaningFailed, CleaningStopped, Progress, Receipt
from localvolume.cleaning.run import clean
from localvolume.cleaning.target import Target
from localvolume.cli.logs import add_log_arguments, set_up
from localvolume.cli.output.refusal import say
from localvolume.config.flags.table import Flag, add_flags
from localvolume.host.process.workers import Hung, Workers
from localvolume.static.facts.survey import Survey
from localvolume.static.model import Entry
from localvolume.volumes.identity import unchanged

log = logging.getLogger(__name__)

TERMINATION_LOG = "/dev/termination-log"
"""Where Kubernetes reads a container's termination message, of at most 4096 bytes."""

_MESSAGE_BYTES = 4096
_PROGRESS_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = "Exit status: 0 clean, 1 not clean, 2 not understood."
    add_order_arguments(parser)
    text = "where the receipt, or why there is none, is written if that file exists"
    add_flags(parser, Flag("--termination-log", "FILE", text, default=TERMINATION_LOG))
    add_log_arguments(parser)


def run(arguments: argparse.Namespace) -> int:
    set_up(arguments)
    try:
        order = read_order(arguments, os.environ)
        method = choose_method(order.command, volume_kind=order.kind, volume_mode=order.mode)
    except ValueError as error:
        say("clean", error)
        _last_words(arguments.termination_log, f"not understood: {error}")
        return 2
    log.info("cleaning %s with %s", order.path, method)
    try:
        receipt = asyncio.run(_clean(order, method))
    except CleaningStopped as stopped:
        return _not_clean(arguments, str(stopped))
    except CleaningFailed as failed:
        return _not_clean(arguments, failed.reason)
    log.info("cleaned: %s", receipt.summary(), extra={"receipt": receipt.as_dict()})
    words = {"summary": receipt.summary(), **receipt.as_dict()}
    _last_words(arguments.termination_log, json.dumps(words))
    return 0


def _not_clean(arguments: argparse.Namespace, reason: str) -> int:
    log.error("not clean: %s", reason)
    _last_words(arguments.termination_log, reason)
    return 1


def _last_words(path: str, text: str) -> None:
    """Writes the termination message if the kubelet wants one: then the file exists already."""
    line = text.encode(errors="backslashreplace")[:_MESSAGE_BYTES].decode(errors="ignore")
    with contextlib.suppress(OSError), open(path, "r+", encoding="utf-8") as file:
        file.write(line)
        file.truncate()


async def _clean(order: Order, method: Method) -> Receipt:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    workers = Workers()
    try:
        entry = await _as_ordered(order, workers)
        target = Target(
            order.kind, order.path, entry.device, entry.mount_id, identity=entry.identity
        )
        return await clean(
            target,
            method,
            workers=workers,
            progress=_reporter(order.path),
            stop=stop,
            timeout=order.timeout_seconds,
        )
    finally:
        workers.close()


async def _as_ordered(order: Order, workers: Workers) -> Entry:
    """What is at the path now, if it is what the order means. Raises CleaningFailed."""
    name = os.path.basename(order.path)
    try:
        entry = await Survey(workers).read_now(
            Entry("", name, order.path, order.path), offered=True
        )
    except (Hung, OSError) as error:
        raise CleaningFailed(f"{order.path}: {error}", touched=False) from error
    if entry.problem is not None:
        raise CleaningFailed(f"{order.path}: {entry.problem.text}", touched=False)
    for what, planned, found in (
        ("kind", order.kind, entry.kind),
        ("device", order.device, entry.device),
        ("size", order.size_bytes, entry.size_bytes),
    ):
        if planned != found:
            text = f"its {what} was {planned!r} when it was planned and is {found!r}"
            raise CleaningFailed(f"{order.path}: {text}", touched=False)
    comparison = unchanged(order.identity, entry.identity)
    if comparison.verdict != "same":
        text = f"it is not the volume that was planned: {comparison.reason}"
        raise CleaningFailed(f"{order.path}: {text}", touched=False)
    return entry


def _reporter(path: str) -> Callable[[Progress], None]:
    said = time.monotonic()

    def report(progress: Progress) -> None:
        nonlocal said
        if time.monotonic() - said >= _PROGRESS_SECONDS:
            said = time.monotonic()
            log.info("%s: still cleaning: %s", path, progress)

    return report
