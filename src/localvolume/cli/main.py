"""The command `localvolume`: one subcommand per module beside this one.

Only the module of the subcommand in use is imported: the agent on every node must not carry what
people's commands need.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

COMMANDS = {
    "agent": "serve this node's volumes (the DaemonSet runs this)",
    "plan": "say what the agent would do on this host, and why, changing nothing",
    "check-config": "say what is wrong in configuration files",
    "demo": "show the main job, live, and leave nothing behind",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit status: 0 well, 1 not well, 2 not understood."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(
        prog="localvolume", description="Your nodes' own disks as Kubernetes volumes."
    )
    version = metadata.version("local-volume-provisioner")
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    chosen = next((word for word in words if word in COMMANDS), None)
    for name, text in COMMANDS.items():
        subparser = commands.add_parser(name, help=text, description=text)
        if name == chosen:
            module = import_module(f"localvolume.cli.{name.replace('-', '_')}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    arguments = parser.parse_args(words)
    status: int = arguments.run(arguments)
    return status
