"""How the processes log: one line per record on stderr, as text for people or JSON for machines."""

from __future__ import annotations

import argparse
import json
import logging
import sys
from datetime import UTC, datetime

from localvolume.config.flags.table import Flag, add_flags

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}

_KLOG_DEBUG = 4
"""From this verbosity on, programs that use klog log what only their developers need."""

_FLAGS = (
    Flag("--log-format", "", "how log lines are written: for people, or one JSON object each",
         choices=("text", "json"), default="text"),
    Flag("--log-level", "", "the lowest level that is logged",
         choices=("debug", "info", "warning", "error"), default="info"),
)  # fmt: skip


def add_log_arguments(parser: argparse.ArgumentParser) -> None:
    add_flags(parser, *_FLAGS)
    text = f"verbosity as klog counts it: {_KLOG_DEBUG} and more is --log-level debug"
    parser.add_argument("-v", "--v", metavar="N", type=int, default=0, help=text)


def set_up(arguments: argparse.Namespace) -> None:
    """Sends records to stderr, in the format and from the level that were asked for."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Json() if arguments.log_format == "json" else _Text())
    level = "debug" if arguments.v >= _KLOG_DEBUG else arguments.log_level
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _extra(record: logging.LogRecord) -> dict[str, object]:
    return {key: value for key, value in vars(record).items() if key not in _STANDARD}


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


class _Text(logging.Formatter):
    """Time, level and message, then all other fields as key=value."""

    def format(self, record: logging.LogRecord) -> str:
        words = [_time(record), record.levelname, record.getMessage()]
        words += [f"{key}={value!r}" for key, value in _extra(record).items()]
        # A file name may hold any bytes: it must not lose a line, or make one look like two.
        line = " ".join(words).encode(errors="backslashreplace").decode().replace("\n", "\\n")
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class _Json(logging.Formatter):
    """One JSON object per line: time, level, logger, message, and all other fields."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        line |= _extra(record)
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        # Not msgspec: a file name that is not UTF-8 must not lose a log line.
        return json.dumps(line, default=str)
