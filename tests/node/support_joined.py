"""Several real nodes at once, whose pods reach each other by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from localvolume_lab.controlplane import ControlPlane
from localvolume_lab.controlplane.node import KubeletClient, KubeletNode, NodeNetwork

#: A label of each such node, for selectors: its value is the name that they have together.
TOGETHER = "example.com/together"


@contextlib.contextmanager
def joined_nodes(
    plane: ControlPlane,
    client: KubeletClient,
    directory: Path,
    together: str,
    images: Sequence[Path],
    *,
    count: int = 3,
) -> Iterator[list[KubeletNode]]:
    """Nodes `TOGETHER-0` and so on, all started at once, that have the images.

    Their Nodes stay in the API when they are gone.
    """
    with contextlib.ExitStack() as running:
        network = running.enter_context(NodeNetwork(plane, directory / "network"))

        def start(number: int) -> KubeletNode:
            node = KubeletNode(
                plane,
                f"{together}-{number}",
                directory / f"node-{number}",
                labels={TOGETHER: together},
                client=client,
                network=network,
            )
            # It is stopped also if it comes up and its images, or other nodes, do not.
            running.callback(node.stop)
            node.start()
            for image in images:
                node.import_image(image)
            return node

        with ThreadPoolExecutor(count) as starting:
            nodes = list(starting.map(start, range(count)))
        yield nodes
