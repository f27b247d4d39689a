"""`localvolume completion SHELL`: the script that completes our commands and their flags.

shtab writes it from the commands' own parsers. What is in a cluster is not completed.
"""

from __future__ import annotations

import argparse

import shtab

from localvolume.cli.completing import words
from localvolume.cli.main import installed, parser_of

SHELLS = ("bash", "zsh", "tcsh")
PROGRAMS = ("kubectl-localvolume", "localvolume")

_HOW = """\
bash: add to ~/.bashrc "source <(localvolume completion bash)". zsh: write it to a file _localvolume
in a directory of $fpath. tcsh: "localvolume completion tcsh > ~/.localvolume.tcsh", and source that
in ~/.tcshrc. For "kubectl localvolume", kubectl asks kubectl_complete-localvolume, which is
installed beside it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _HOW
    parser.add_argument("shell", choices=SHELLS, help="the shell that is to complete")
    parser.add_argument(
        "--program",
        choices=PROGRAMS,
        default=PROGRAMS[1],
        help="the name that is typed (default localvolume)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints the script. Returns 0."""
    parser = parser_of(arguments.program, installed())
    for command in words.commands_of(parser).values():
        for action in command._actions:
            if words.is_directory(action):
                action.complete = shtab.DIRECTORY  # type: ignore[attr-defined]  # how shtab is told
            elif words.is_file(action):
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    print(shtab.complete(parser, shell=arguments.shell))
    return 0
