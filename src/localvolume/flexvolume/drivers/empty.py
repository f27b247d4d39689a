"""A driver without any volumes: to try how client and daemon are wired."""

from __future__ import annotations

from collections.abc import Mapping

from localvolume.flexvolume.driver import Owned, Volume


class EmptyDriver:
    """Says that everything was done, and has no volumes."""

    def mount(self, volume: Volume, target: str) -> str:
        return "successfully created the volume"

    def unmount(self, name: str, target: str) -> str:
        return "successfully unmounted the volume"

    def list_volumes(self) -> list[Owned]:
        return []

    def note(self, name: str, tags: Mapping[str, str]) -> None:
        """Nothing to note it with."""

    def is_in_use(self, name: str) -> bool:
        return False

    def remove(self, volume: Owned) -> None:
        """Nothing to remove."""

    def grow(self, name: str, size_bytes: int) -> int:
        return size_bytes

    def unmarked(self) -> list[str]:
        return []

    def adopt(self, volumes: Mapping[str, Mapping[str, str]]) -> list[str]:
        return []
