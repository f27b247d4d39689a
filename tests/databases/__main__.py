"""Runs PostgreSQL, Kafka and Cassandra on volumes of ours, as docs/databases.md has them.

    python -m tests.databases [postgres] [kafka] [cassandra] [-- ARGUMENTS OF PYTEST]

No part of `make test`: their images are made of what Debian and Maven serve, some 250 MB the first
time, and each database needs minutes on two processors.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from image.running import BuildFailed
from tests import capabilities
from tests.databases.support_images import IMAGES, provide

_HERE = Path("tests/databases")
_OWN_MOUNTS = ("unshare", "--mount", "--propagation", "private")


def main(arguments: list[str]) -> int:
    """The exit code: 0 if all that was chosen passed."""
    cut = arguments.index("--") if "--" in arguments else len(arguments)
    chosen, options = arguments[:cut] or list(IMAGES), arguments[cut + 1 :]
    if unknown := set(chosen) - set(IMAGES):
        print(f"there are {', '.join(IMAGES)}, and no {', '.join(unknown)}", file=sys.stderr)
        return 2
    if lacking := capabilities.missing("databases"):
        print(*lacking, sep="\n", file=sys.stderr)
        return 1
    try:
        for name in chosen:
            provide(name)
    except BuildFailed as failed:
        print(f"databases: {failed}", file=sys.stderr)
        return 1
    capabilities.build({"controlplane", "coredns", "kubectl", "kubelet"})
    files = [str(file) for name in chosen for file in sorted(_HERE.glob(f"test_*{name}.py"))]
    pytest = [sys.executable, "-m", "pytest", "-m", "databases", "-p", "no:cacheprovider"]
    # What was chosen is run: a test that is skipped fails.
    environment = {**os.environ, "CI": "true"}
    command = [*_OWN_MOUNTS, *pytest, "-v", "--durations=0", *options, *files]
    return subprocess.call(command, env=environment)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
