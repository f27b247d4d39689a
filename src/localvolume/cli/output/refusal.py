"""Says on stderr what a command refuses or leaves out, in one form for all commands."""

from __future__ import annotations

import sys
from collections.abc import Iterable


def say(command: str, text: object) -> None:
    """Prints `localvolume COMMAND: TEXT` to stderr."""
    print(f"localvolume {command}: {text}", file=sys.stderr)


def say_all(command: str, texts: Iterable[object]) -> None:
    """Prints each as `say` does."""
    for text in texts:
        say(command, text)
