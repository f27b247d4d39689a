"""The program kubectl_complete-localvolume, which kubectl runs to complete `kubectl localvolume`.

It gets the words after `kubectl localvolume`, the last as far as it is typed, and answers with one
word a line, and last a colon and a number, as kubectl's own completions do.
"""

from __future__ import annotations

import sys

from localvolume.cli.completing.words import following
from localvolume.cli.main import installed, parser_of

_FILES, _NO_FILES = 0, 4
"""Whether the shell adds files where no word fits (cobra's ShellCompDirective)."""


def main() -> int:
    """Prints what may come next. Returns 0."""
    found = following(parser_of("kubectl localvolume", installed()), sys.argv[1:])
    for word in found.words:
        print(word)
    print(f":{_FILES if found.files else _NO_FILES}")
    return 0
