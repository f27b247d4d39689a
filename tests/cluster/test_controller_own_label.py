"""The node of our own label has a volume's data, whatever hostname it has now: it is asked for too.

Nothing else would find it right before the volume is said to be lost, or deleted.
"""

import pytest

from tests.cluster.support_controller import Ground, in_, term
from tests.faults.support_proxy import Order, Proxy
from tests.suite.names import HOSTNAME

pytestmark = pytest.mark.needs("controlplane")


def test_a_node_that_only_our_label_names_and_no_watch_told_of(
    ground: Ground, proxy: Proxy
) -> None:
    proxy.orders.append(Order("silence", ("watch",), "nodes"))
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    node = ground.node(labels={HOSTNAME: f"{ground.unique}-renamed"})
    # What nobody ever used would be deleted at once.
    volume = ground.volume(node, terms=[term(in_(f"{ground.unique}-before"))])
    ground.until(lambda: proxy.asked("nodes", "get"), lambda count: count >= 2)
    assert ground.mark(volume) is None
    ground.stays(volume)
    assert ground.events(volume) == []
