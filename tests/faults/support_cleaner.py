"""An administrator's cleaner that waits to be told, and writes down when it ran."""

from pathlib import Path

from tests.suite.until import until


class Cleaner:
    """`command` is a blockCleanerCommand: zeros over the device, once `go` was called."""

    def __init__(self, directory: Path) -> None:
        self._go = directory / "go"
        self._record = directory / "record"
        self._child = directory / "child"
        script = directory / "cleaner"
        script.write_text(
            "#!/bin/sh\n"
            "sleep 1000 &\n"
            f"echo $! > '{self._child}'\n"
            f"echo begun >> '{self._record}'\n"
            f"until [ -e '{self._go}' ]; do sleep 0.05; done\n"
            "kill $!\n"
            'dd if=/dev/zero of="$LOCAL_PV_BLKDEVICE" bs=1M conv=notrunc 2>/dev/null\n'
            f"echo done >> '{self._record}'\n"
        )
        script.chmod(0o755)
        self.command = [str(script)]

    def go(self) -> None:
        self._go.touch()

    def child(self) -> int:
        """A process that the cleaner started and that lives until its end."""
        return int(self._child.read_text())

    def record(self) -> list[str]:
        return self._record.read_text().split() if self._record.exists() else []

    def wait_for(self, record: list[str], seconds: float = 90) -> None:
        """Wait until this is what the cleaner has written down."""
        __tracebackhide__ = True
        until(self.record, lambda found: found == record, seconds=seconds)
