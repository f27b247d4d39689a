"""An API server that refuses, forgets to answer, cuts and keeps silent, ordered by a proxy.

Each time a volume goes its whole round: published, bound, written, released, cleaned, published
again. In the end there is one PersistentVolume, cleaning was done once, and nobody was flooded.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localvolume.agent.options import AgentOptions
from localvolume.config.flags.listening import ListenAddress
from tests.cluster.support_agent import AgentThread, Class, Lab
from tests.faults.support_proxy import Order, Proxy, proxy_for
from tests.host.support_devices import tmpfs

pytestmark = pytest.mark.needs("root", "controlplane")

EVERYTHING = ("watch", "list", "get", "post", "patch", "delete")
WRITES = ("post", "patch", "delete")
SPELL = 8.0
"""For so many seconds requests are counted, however long this process sleeps itself."""


@pytest.fixture
def proxy(lab: Lab, tmp_path: Path) -> Iterator[Proxy]:
    with proxy_for(lab.plane, tmp_path) as proxy:
        yield proxy
        lab.stop()


class Scene:
    """An agent behind the proxy, with one class and one volume that is not there yet."""

    def __init__(self, lab: Lab, proxy: Proxy) -> None:
        self.lab, self.proxy = lab, proxy
        self.fs: Class = lab.add_class("fs")
        self.where = self.fs.path("disk")
        self.where.mkdir()
        lab.configure()
        lab.agent = AgentThread(
            AgentOptions(
                node_name=lab.node,
                config_directory=str(lab.config_directory),
                kubeconfig=str(proxy.kubeconfig),
                listen_address=ListenAddress("127.0.0.1", lab.port),
                paces=lab.paces,
            )
        )
        lab.until(lab.looks, lambda looks: looks > 0)
        # Those of its three informers: a test that cuts them means all.
        lab.until(proxy.watches, lambda watches: watches >= 3)
        self.since = time.monotonic()

    def round(self) -> None:
        lab = self.lab
        lab.stack.enter_context(tmpfs(self.where))
        first = lab.published(self.fs, "disk")
        claim = lab.bound(first)
        (self.where / "secret").write_text("tenant")
        lab.delete_claim(claim)
        lab.published(self.fs, "disk", unlike=first["metadata"]["uid"])
        assert os.listdir(self.where) == []

    def check(self, requests: int) -> None:
        """One PersistentVolume and one cleaning, for not more than so many requests."""
        seconds = time.monotonic() - self.since
        made = self.proxy.count(self.since)
        assert made <= requests, f"{made} requests in {seconds:.0f} s: {self.proxy.seen[-60:]}"
        self.proxy.orders.clear()
        self.lab.settle()
        assert len(self.lab.volumes()) == 1
        assert sum("cleaned: " in line for line in self.lab.log()) == 1
        assert self.lab.agent
        self.lab.agent.check()


@pytest.fixture
def scene(lab: Lab, proxy: Proxy) -> Scene:
    return Scene(lab, proxy)


@pytest.mark.parametrize(
    "orders",
    [
        pytest.param([Order("lose", ("post",), times=2)], id="a create without its answer"),
        pytest.param([Order("lose", ("delete",), times=2)], id="a delete without its answer"),
        pytest.param([Order("lose", ("patch",), times=3)], id="patches without their answer"),
        pytest.param([Order("lose", WRITES, times=6)], id="no write with its answer"),
        pytest.param([Order("lose", WRITES, "events")], id="no Event with its answer"),
        pytest.param(
            [Order("answer", ("patch", "delete"), times=4, status=409, reason="Conflict")],
            id="409 on patches and deletes",
        ),
        pytest.param(
            [Order("answer", ("post",), times=3, status=409, reason="AlreadyExists")],
            id="409 on creates, though nothing is there",
        ),
        pytest.param(
            [Order("answer", ("post",), times=2, status=409, reason="Conflict")],
            id="409 on creates",
        ),
        pytest.param([Order("answer", WRITES, "", times=4, status=500)], id="500 on writes"),
        pytest.param(
            [Order("answer", ("patch",), times=2, status=403, reason="Forbidden")],
            id="403 until somebody allows it",
        ),
        pytest.param([Order("delay", EVERYTHING, "", seconds=0.7)], id="slow answers"),
        pytest.param([Order("gone", ("watch",), "", times=6)], id="410 in watches"),
        pytest.param(
            [Order("answer", ("watch",), "", times=6, status=410, reason="Expired")],
            id="410 to watches",
        ),
        pytest.param([Order("end", ("watch",), "", times=9)], id="watches that end at once"),
    ],
)
def test_a_round_in_spite_of(scene: Scene, orders: list[Order]) -> None:
    for order in orders:
        order.met = 0
    scene.proxy.orders += orders
    if orders[0].does in ("gone", "end") or "watch" in orders[0].verbs:
        scene.proxy.cut_watches()
    scene.round()
    # Events are written beside all else.
    scene.lab.until(lambda: all(order.met for order in orders), bool)
    scene.check(requests=90)


@pytest.mark.parametrize(("verb", "resource"), [("list", "jobs"), ("post", "persistentvolumes")])
def test_what_an_agent_begins_with_is_asked_again_when_the_server_says(
    lab: Lab, proxy: Proxy, verb: str, resource: str
) -> None:
    """With a status of which the client, unlike of 429 and 503, makes nothing by itself."""
    wait = 6
    order = Order(
        *("answer", (verb,), resource, 1, 500, "ServerTimeout"),
        headers={"Retry-After": str(wait)},
    )
    proxy.orders.append(order)
    lab.kubeconfig = proxy.kubeconfig
    lab.add_class("fs")
    lab.start(wait=False, confined=True)

    def asked() -> list[float]:
        return [one.at for one in proxy.seen if (one.verb, one.resource) == (verb, resource)]

    first, second, *_ = lab.until(asked, lambda found: len(found) >= 2)
    assert order.met == 1
    assert second - first >= wait


def test_watches_cut_again_and_again(scene: Scene) -> None:
    scene.proxy.cut_watches()
    scene.lab.stack.enter_context(tmpfs(scene.where))
    first = scene.lab.published(scene.fs, "disk")
    claim = scene.lab.claim(first)
    for _ in range(8):
        scene.proxy.cut_watches()
        time.sleep(0.2)
    scene.lab.delete_claim(claim)
    for _ in range(8):
        scene.proxy.cut_watches()
        time.sleep(0.2)
    scene.lab.published(
        scene.fs,
        "disk",
        unlike=first["metadata"]["uid"],
    )
    scene.check(requests=90)


def test_watches_that_never_live_are_no_storm(scene: Scene) -> None:
    scene.proxy.orders.append(Order("end", ("watch",), ""))
    scene.proxy.cut_watches()
    since = time.monotonic()
    time.sleep(SPELL)
    # Three informers, each at first after 0.5 s at most, twice as long each time.
    assert scene.proxy.count(since, since + SPELL) <= 45
    scene.lab.until(lambda: scene.proxy.count(since), lambda count: count >= 6)
    scene.proxy.orders.clear()
    scene.round()
    scene.check(requests=140)


def test_a_server_that_fails_all_the_time(scene: Scene) -> None:
    scene.proxy.orders.append(Order("answer", EVERYTHING, "", status=503, reason="Unavailable"))
    scene.proxy.cut_watches()
    since = time.monotonic()
    scene.lab.stack.enter_context(tmpfs(scene.where))
    time.sleep(SPELL)
    assert scene.proxy.count(since, since + SPELL) <= 45
    scene.lab.until(lambda: scene.proxy.count(since), lambda count: count >= 6)
    scene.proxy.orders.clear()
    scene.lab.published(scene.fs, "disk")
    assert len(scene.lab.volumes()) == 1


def test_a_server_that_asks_us_to_stay_away(scene: Scene) -> None:
    order = Order(
        "answer", EVERYTHING, "", status=429, reason="TooManyRequests", headers={"Retry-After": "3"}
    )
    scene.proxy.orders.append(order)
    since = time.monotonic()
    scene.lab.stack.enter_context(tmpfs(scene.where))
    scene.lab.until(lambda: order.met, bool)
    time.sleep(2.5)
    # By when they came: it may be later by now than was to be slept.
    came = [one.at for one in scene.proxy.seen if one.at >= since]
    assert sum(at < came[0] + 2.5 for at in came) <= 3
    scene.proxy.orders.clear()
    scene.lab.published(scene.fs, "disk")
    assert time.monotonic() - since >= 3
    assert len(scene.lab.volumes()) == 1


def test_a_silent_watch_is_given_up(lab: Lab, proxy: Proxy) -> None:
    """With times of seconds in place of the minutes that a watch may last."""
    lab.paces = replace(lab.paces, watch=(1.0, 2.0), watch_grace=1.0)
    scene = Scene(lab, proxy)
    silent = Order("silence", ("watch",), "", times=6)
    proxy.orders.append(silent)
    proxy.cut_watches()
    scene.round()
    lab.until(lambda: silent.met, lambda met: met == 6)
    assert len(lab.volumes()) == 1
