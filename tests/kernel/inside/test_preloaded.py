"""What is preloaded into a guest, and into what runs in it, changes how long that takes alone."""

import ctypes
import re
import subprocess
import sys
from pathlib import Path

from tests.host.support_devices import command

_PROGRAM = Path(__file__).resolve().with_name("registers_kept.c")
_DEATH_SIGNAL = (
    "import ctypes; signal = ctypes.c_int(); "
    "ctypes.CDLL(None).prctl(2, ctypes.byref(signal)); print(signal.value)"  # PR_GET_PDEATHSIG
)


def test_processes_and_threads_keep_their_vector_registers(tmp_path: Path) -> None:
    command("cc", "-O1", "-Wall", "-pthread", "-o", tmp_path / "kept", _PROGRAM)
    command(tmp_path / "kept")


def test_a_program_that_ends_with_its_parent_is_started_as_setpriv_would() -> None:
    started = ("setpriv", "--pdeathsig", "KILL", "--", sys.executable, "-c", _DEATH_SIGNAL)
    assert command(*started).strip() == "9"
    assert command("setpriv", "--pdeathsig", "KILL", "--", "echo", "said") == "said\n"


def test_a_program_that_is_not_there_is_told_by_setpriv() -> None:
    missing = ("setpriv", "--pdeathsig", "KILL", "--", "no-such-program")
    done = subprocess.run(missing, capture_output=True, text=True, timeout=60)
    assert done.returncode == 127
    assert "setpriv" in done.stderr
    assert "no-such-program" in done.stderr


def test_what_a_program_is_made_of_is_mapped_when_it_begins() -> None:
    """All of its code, and not only what it has come to."""
    maps = re.findall(
        r"^[0-9a-f]+-[0-9a-f]+ r-xp [^\n]* (/\S+)\nSize: +(\d+) kB\n.*?^Rss: +(\d+) kB$",
        command("cat", "/proc/self/smaps"),
        re.MULTILINE | re.DOTALL,
    )
    assert {Path(path).name for path, _, _ in maps} >= {"cat", "preloaded.so"}
    assert [path for path, size, there in maps if size != there] == []


def test_much_memory_is_set_to_what_was_asked_for_and_no_more() -> None:
    library = ctypes.CDLL(None)
    library.memset.restype = ctypes.c_void_p
    library.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    many = 3 << 20
    room = ctypes.create_string_buffer(b"\xaa" * (many + 8192), many + 8192)
    at = ctypes.addressof(room)
    assert library.memset(at + 4001, 0x55, many) == at + 4001
    assert room.raw == b"\xaa" * 4001 + b"\x55" * many + b"\xaa" * (8192 - 4001)
