"""Where the code is that pages are written from."""

from pathlib import Path

SOURCE = Path(__file__).resolve().parents[1] / "src" / "localvolume"
