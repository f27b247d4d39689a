"""Running kubectl and hearing what it says."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


class KubectlFailed(Exception):
    """kubectl exited with an error; `returncode`, `stdout` and `stderr` (text) are attributes."""

    def __init__(self, argv: Sequence[str], returncode: int, stdout: str, stderr: str) -> None:
        super().__init__(f"kubectl {' '.join(argv)}: exit {returncode}: {stderr.strip()}")
        self.returncode, self.stdout, self.stderr = returncode, stdout, stderr


def run(
    program: Path, options: Sequence[str], arguments: Sequence[str], given: str, timeout: float
) -> str:
    """Its standard output; `given` is its standard input; `timeout` in seconds.

    Raises KubectlFailed, or subprocess.TimeoutExpired with the process killed.
    """
    done = subprocess.run(
        [str(program), *options, *arguments],
        input=given,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if done.returncode != 0:
        raise KubectlFailed(arguments, done.returncode, done.stdout, done.stderr)
    return done.stdout
