"""The command `localvolume`: one subcommand per module beside this one.

Only the module of the subcommand in use is imported: the agent on every node must not spend memory
on what the commands for people need.
"""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
from collections.abc import Collection, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NoReturn

from localvolume.cli.output import exits

DISTRIBUTION = "local-volume-provisioner"
COMMANDS = {
    "agent": "serve this node's volumes (the DaemonSet runs this)",
    "clean": "clean one volume (a cleaning Job runs this)",
    "controller": "see to adoption and lost nodes in the whole cluster (a Deployment runs this)",
    "status": "say how volumes, room, claims and cleanings are in the cluster, and what is wrong",
    "ui": "show the same as a live page in a browser on this machine, changing nothing",
    "why": "say why a volume, a claim or a path is as it is, and what happens next",
    "support-bundle": "put what is needed to look into a problem into one file, without secrets",
    "plan": "say what the agent would do on this host, and why, changing nothing",
    "orphans": "list what lies in this node's pools and belongs to no PersistentVolume",
    "undo": "bring back a volume whose claim is gone, within its class's undoPeriod",
    "forget": "remove the record of who holds a volume, on its node, as the administrator's word",
    "restamp": "let agents use a pool again whose files were copied to another disk",
    "move-to-csi": "have pods use volumes of the kind local through our CSI driver",
    "check-config": "say what is wrong in configuration files",
    "remove-finalizers": "let PersistentVolumes go on without localvolume, for going back",
    "completion": "print the script that completes these commands in a shell",
    "version": "say the version of this command, and those of the cluster's agents and controller",
    "demo": "show the main job, live, and leave nothing behind",
}
#: Commands in a distribution of their own, with the package that has them.
_APART = {"demo": "localvolume_lab"}
#: Commands that are a package.
_PACKAGES = {
    "completion": "completing",
    "move-to-csi": "moving",
    "ui": "seeing.page",
    "version": "versions",
}


def module_of(command: str) -> str:
    """The module that has a command's `add_arguments` and `run`."""
    if apart := _APART.get(command):
        return f"{apart}.{command}.command"
    if package := _PACKAGES.get(command):
        return f"localvolume.cli.{package}.command"
    return f"localvolume.cli.{command.replace('-', '_')}"


def installed() -> dict[str, str]:
    """The commands that are installed, each with what it is for."""
    return {
        name: text
        for name, text in COMMANDS.items()
        if name not in _APART or find_spec(_APART[name])
    }


class _Version(argparse.Action):
    """Print the version and exit. Looks it up only when asked, as that imports 2 MB."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        from importlib import metadata

        print(metadata.version(DISTRIBUTION))
        parser.exit()


def kubectl() -> int:
    """Like `main`, as a plugin of kubectl, which finds it in PATH as kubectl-localvolume."""
    return main(program="kubectl localvolume")


def main(argv: Sequence[str] | None = None, *, program: str = "localvolume") -> int:
    """Runs one subcommand. Returns its exit status, of those in `output.exits`."""
    _open_what_is_closed()
    _escape_what_has_no_character()
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv), program)
        finally:
            # A pipe that nobody reads any more is found here, and not when Python exits.
            sys.stdout.flush()
    except BrokenPipeError:
        _write_no_more()
        return exits.PIPE_CLOSED
    except OSError as error:
        # Only the output has no name. Its reader must not take a half for the whole.
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _write_no_more()
        print(f"{program}: the output could not be written: {error.strerror}", file=sys.stderr)
        return exits.WRONG
    except KeyboardInterrupt:
        return exits.INTERRUPTED


def _open_what_is_closed() -> None:
    """Python has no object for an input or output that was closed before it began (`<&-`)."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # until the process ends


def _escape_what_has_no_character() -> None:
    """A path may hold bytes that are no character: they are escaped, as on the standard error."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _write_no_more() -> None:
    """What is left in the buffer would be written at the exit, and fail once more."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(words: Sequence[str], program: str) -> int:
    chosen = next((word for word in words if word in installed()), None)
    arguments = parser_of(program, (chosen,) if chosen else ()).parse_args(words)
    status: int = arguments.run(arguments)
    return status


def parser_of(program: str, complete: Collection[str]) -> argparse.ArgumentParser:
    """The parser of all commands. Those of `complete` have their arguments: it imports them."""
    parser = argparse.ArgumentParser(
        prog=program, description="Your nodes' own disks as Kubernetes volumes."
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in installed().items():
        subparser = commands.add_parser(name, help=text, description=text)
        if name in complete:
            module = import_module(module_of(name))
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser
