"""A right that is taken away while the controller runs: it says so, and that it is not ready."""

import pytest

from tests.cluster.support_controller import Ground
from tests.faults.support_proxy import Order, Proxy

pytestmark = pytest.mark.needs("controlplane")


@pytest.mark.parametrize("resource", ["nodes", "persistentvolumeclaims"])
def test_what_it_may_not_read_any_more_is_said(ground: Ground, proxy: Proxy, resource: str) -> None:
    ground.start(ground.cls, kubeconfig=proxy.kubeconfig)
    verbs = ("list", "watch")
    proxy.orders.append(Order("answer", verbs, resource, status=403, reason="Forbidden"))
    proxy.cut_watches()
    # What is done with what it reads may fail a moment earlier, and is said as well.
    ground.until(
        lambda: ground.http("/ready"), lambda got: got[0] == 500 and f"{resource}: " in got[1]
    )
    proxy.orders.clear()
    # Nothing happens there that a watch could tell: it is enough that it is granted.
    ground.until(lambda: ground.http("/ready"), lambda got: got[0] == 200)
