"""Paces at which nothing is given up because the machine is busy."""

from __future__ import annotations

from typing import Final

from localvolume.static.paces import StaticPaces
from tests.suite.clock import LONG

PATIENT: Final = StaticPaces(entry=LONG, patience=LONG, directory=LONG)
