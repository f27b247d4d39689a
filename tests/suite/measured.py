"""What a process finds in its environment where `make coverage` measures it (suite/coverage.py)."""

import os
from pathlib import Path

#: Of coverage.py, which starts itself where it finds its configuration there.
CONFIGURATION = "COVERAGE_PROCESS_START"
#: Where data go; each process adds a name of its own.
DATA = "COVERAGE_FILE"


def environment() -> dict[str, str]:
    """For a child process whose environment is otherwise its own."""
    return {name: os.environ[name] for name in (CONFIGURATION, DATA) if name in os.environ}


def directory() -> Path | None:
    """Where the data are; None where nothing is measured."""
    return Path(os.environ[DATA]).parent if DATA in os.environ else None
