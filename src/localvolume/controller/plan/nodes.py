"""The nodes there are, and which of them could serve a PersistentVolume."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from localvolume.controller.plan.ours import maker_of
from localvolume.kube.objects import Node, NodeSelectorTerm, PersistentVolume
from localvolume.volumes import affinity, marks


class Nodes:
    """A snapshot of the Nodes, found by name and by hostname, which need not be the same."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        self._by_name: dict[str, Node] = {}
        self._by_hostname: dict[str, list[Node]] = {}
        self._by_key: dict[str, Node] | None = None
        for node in nodes:
            self._by_name[node.metadata.name] = node
            hostname = node.metadata.labels.get(marks.HOSTNAME_LABEL)
            if hostname:
                self._by_hostname.setdefault(hostname, []).append(node)

    def by_name(self, name: str) -> Node | None:
        return self._by_name.get(name)

    def by_key(self, key: str) -> Node | None:
        """The Node whose agent lists by this value of our label."""
        if self._by_key is None:
            self._by_key = {marks.node_key(name): node for name, node in self._by_name.items()}
        return self._by_key.get(key)

    def named(self, names: Iterable[str]) -> list[Node]:
        """The Nodes that have one of these as their name or hostname, sorted by name."""
        found: dict[str, Node] = {}
        for name in names:
            if name in self._by_name:
                found[name] = self._by_name[name]
            found.update((node.metadata.name, node) for node in self._by_hostname.get(name, ()))
        return [found[name] for name in sorted(found)]

    def serving(self, volume: PersistentVolume) -> str:
        """The name of a Node that can serve the volume, "" if there is none.

        A Node that the affinity names counts, even if the rest of its term does not hold now. So
        does any Node that a term matches by other labels: with a shared disk, all of these can.
        """
        terms = affinity.required_terms(volume)
        if named := self.named(affinity.hostnames(terms)):
            return named[0].metadata.name
        return self._meant_by([term for term in terms if not affinity.hostnames_of(term)])

    def serving_dynamic(self, volume: PersistentVolume) -> str:
        """The same for a volume made on a single node, whatever label its affinity names.

        Its own node counts even if it has lost this label. So does a node whose name is the label's
        value: local-path writes the name if a node has no such label.
        """
        terms = affinity.required_terms(volume)
        if not affinity.hostnames(terms) and (name := self.keeping(volume)):
            return name
        if name := self.serving(volume):
            return name
        return next((node.metadata.name for node in self._named_as_value(terms)), "")

    def keeping(self, volume: PersistentVolume) -> str:
        """The name of the Node whose agent has the volume, by our label, "" if there is none."""
        node = self.by_key(volume.metadata.labels.get(marks.NODE_LABEL, ""))
        return "" if node is None else node.metadata.name

    def _meant_by(self, terms: Sequence[NodeSelectorTerm]) -> str:
        if not terms:
            return ""
        for node in self._by_name.values():
            meta = node.metadata
            if any(affinity.matches(term, meta.name, meta.labels) for term in terms):
                return meta.name
        return ""

    def owner(self, volume: PersistentVolume) -> Node | str:
        """The Node whose agent made the volume, or why nobody can tell.

        The provisioner's name is ambiguous (nodes `a` and `a-b`), and the affinity has only the
        hostname: together they must identify one Node that is there.
        """
        provisioner = volume.metadata.annotations.get(marks.PROVISIONED_BY_ANNOTATION, "")
        named = self.named(affinity.hostnames(affinity.required_terms(volume)))
        made = [n for n in named if marks.is_provisioned_by_node(provisioner, n.metadata.name)]
        if len(made) == 1:
            return made[0]
        if not named:
            return "no node that its affinity names is there"
        names = ", ".join(node.metadata.name for node in made or named)
        if not made:
            return f"its affinity names {names}, but {provisioner} made it"
        return f"it may be any of these nodes': {names}"

    def maker(self, volume: PersistentVolume) -> Node | str:
        """The Node on which another provisioner made the volume, or why nobody can tell.

        This is the one Node that its affinity matches, by whatever label; else the one whose name
        is the value there (kutti writes names for hostnames, local-path for missing labels). If its
        provisioner wrote the node down, it must be that one: another node with the same label does
        not have the data.
        """
        terms = affinity.required_terms(volume)
        said = maker_of(volume)
        for found in (self._meeting(terms), self._named_as_value(terms)):
            names = [node.metadata.name for node in found]
            if said and said in names:
                return self._by_name[said]
            if not said and len(found) == 1:
                return found[0]
            if not said and found:
                return f"it may be any of these nodes': {', '.join(names)}"
        if said:
            return f"it was made on {said}, which is not there or does not match its affinity"
        return "no node that its affinity matches is there"

    def _meeting(self, terms: Sequence[NodeSelectorTerm]) -> list[Node]:
        """The Nodes that match one of the terms, as for the scheduler, sorted by name."""
        if all(affinity.hostnames_of(term) for term in terms):
            among: Iterable[Node] = self.named(affinity.hostnames(terms))
        else:
            among = self._by_name.values()
        found = {
            node.metadata.name: node
            for node in among
            if any(affinity.matches(t, node.metadata.name, node.metadata.labels) for t in terms)
        }
        return [found[name] for name in sorted(found)]

    def _named_as_value(self, terms: Sequence[NodeSelectorTerm]) -> list[Node]:
        """The Nodes whose name is the only value of the only expression of a term."""
        found = {}
        for term in terms:
            if len(term.match_expressions) != 1 or term.match_fields:
                continue
            one = term.match_expressions[0]
            if one.operator == "In" and len(one.values) == 1 and one.values[0] in self._by_name:
                found[one.values[0]] = self._by_name[one.values[0]]
        return [found[name] for name in sorted(found)]
