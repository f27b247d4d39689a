"""Tests in a guest kernel: those in inside/ are collected there alone; test_guest.py runs them."""

import os

from tests.kernel.support_guest import INSIDE

collect_ignore = [] if INSIDE in os.environ else ["inside"]
