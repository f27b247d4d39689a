"""Kinds that were just defined: when kubectl and helm can be asked about them."""

from collections.abc import Iterable

from localvolume_lab.controlplane import ControlPlane, KubectlFailed
from tests.suite.until import until


def kinds_served(plane: ControlPlane, names: Iterable[str]) -> None:
    """Wait until kubectl and helm know these definitions, by their names.

    The API server lists a kind for them in its own time, also after the definition says that it is
    established.
    """
    wanted = set(names)

    def listed() -> set[str]:
        try:
            return set(plane.kubectl("api-resources", "--output=name").split())
        except KubectlFailed:
            # One of its groups could not be read.
            return set()

    until(listed, lambda found: found >= wanted)
