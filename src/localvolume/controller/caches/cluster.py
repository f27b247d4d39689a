"""What the controller knows of volumes and nodes, and which volumes a Node matters to.

Both replicas keep this up to date; only the leader listens for changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from localvolume.controller.caches.trimmed import NODES, VOLUMES, KnownNode, KnownVolume
from localvolume.controller.plan.nodes import Nodes
from localvolume.controller.plan.ours import is_on_a_disk
from localvolume.kube.client import Client
from localvolume.kube.informer import Informer, unready
from localvolume.volumes import affinity, marks


def _nobody(_old: object, _new: object) -> None:
    """Ignores changes until somebody listens for them."""


class Cluster:
    """`listener` is called with the names of the PersistentVolumes that are to be judged again.

    `on_volume` and `on_node` are called for every change that is not a heartbeat.
    """

    def __init__(self, client: Client) -> None:
        self.volumes = Informer(client, VOLUMES, on_change=self._volume_changed)
        self.nodes = Informer(client, NODES, on_change=self._node_changed)
        self.listener: Callable[[Iterable[str]], None] | None = None
        self.on_volume: Callable[[KnownVolume | None, KnownVolume | None], None] = _nobody
        self.on_node: Callable[[KnownNode | None, KnownNode | None], None] = _nobody
        self._naming: dict[str, set[str]] = {}
        """The PersistentVolumes that name a host; "": those that any Node may concern."""
        self._by_handle: dict[str, str] = {}
        """The PersistentVolumes of our CSI driver whose handle is not their name."""
        self._now: Nodes | None = None

    @property
    def synced(self) -> bool:
        """Whether both lists have been read: before that, a missing Node means nothing."""
        return self.volumes.synced.is_set() and self.nodes.synced.is_set()

    async def wait_synced(self) -> None:
        await self.volumes.synced.wait()
        await self.nodes.synced.wait()

    def nodes_now(self) -> Nodes:
        """The Nodes as of the watch's latest event."""
        if self._now is None:
            self._now = Nodes(self.nodes.items.values())
        return self._now

    def volume_of(self, handle: str) -> KnownVolume | None:
        """The PersistentVolume of our CSI driver that has this handle."""
        found = self.volumes.items.get(self._by_handle.get(handle, handle))
        csi = found.spec.csi if found is not None else None
        return None if csi is None or csi.volume_handle not in ("", handle) else found

    def problems(self) -> dict[str, str]:
        """Why the caches are incomplete or refused, by resource; empty if none is."""
        return unready(self.volumes, self.nodes)

    # --- what changes --------------------------------------------------------------------------

    def _volume_changed(self, old: KnownVolume | None, new: KnownVolume | None) -> None:
        name = (new or old).metadata.name  # type: ignore[union-attr]  # one of them is there
        if old is not None and self._by_handle.get(handle := _handle(old)) == name:
            del self._by_handle[handle]
        if new is not None and (handle := _handle(new)):
            self._by_handle[handle] = name
        before, after = _named_by(old), _named_by(new)
        if before != after:
            self._forget(name, before)
            self._remember(name, after)
        self._tell((name,))
        self.on_volume(old, new)

    def _node_changed(self, old: KnownNode | None, new: KnownNode | None) -> None:
        same = old is not None and new is not None and old.metadata.labels == new.metadata.labels
        if same and old.spec == new.spec:  # type: ignore[union-attr]  # both are there
            return  # a heartbeat: kubelet sends some every minute
        self._now = None
        self.on_node(old, new)
        if same:
            return  # whether it takes pods does not matter to a volume that is there
        concerned = set(self._naming.get("", ()))
        for node in (old, new):
            if node is not None:
                concerned |= self._naming.get(node.metadata.name, set())
                hostname = node.metadata.labels.get(marks.HOSTNAME_LABEL, "")
                concerned |= self._naming.get(hostname, set())
        self._tell(concerned)

    def _tell(self, names: Iterable[str]) -> None:
        if self.listener is not None:
            self.listener(names)

    def _remember(self, name: str, named: frozenset[str]) -> None:
        for host in named:
            self._naming.setdefault(host, set()).add(name)

    def _forget(self, name: str, named: frozenset[str]) -> None:
        for host in named:
            those = self._naming.get(host, set())
            those.discard(name)
            if not those:
                self._naming.pop(host, None)


def _handle(volume: KnownVolume) -> str:
    """Its handle, where that is not its name."""
    return volume.spec.csi.volume_handle if volume.spec.csi is not None else ""


def _named_by(volume: KnownVolume | None) -> frozenset[str]:
    """The hostnames of its affinity, and "" where a term has none: any Node may be meant."""
    if volume is None or not is_on_a_disk(volume):
        return frozenset()
    terms = affinity.required_terms(volume)
    named = affinity.hostnames(terms)
    if any(not affinity.hostnames_of(term) for term in terms):
        named |= {""}
    return named
