"""The sandbox's time: metav1.Time is whole seconds, UTC."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def timestamp(ahead: float = 0) -> str:
    """Now, `ahead` seconds on, as the API writes times."""
    return (datetime.now(UTC) + timedelta(seconds=ahead)).strftime("%Y-%m-%dT%H:%M:%SZ")


def age(then: str | None) -> str:
    """How long ago, as the tables print it (apimachinery's HumanDuration)."""
    if not then:
        return "<unknown>"
    moment = datetime.fromisoformat(then)
    seconds = int((datetime.now(UTC) - moment).total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86400
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return f"{minutes}m{seconds % 60}s" if seconds % 60 else f"{minutes}m"
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return f"{hours}h{minutes % 60}m" if minutes % 60 else f"{hours}h"
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return f"{days}d{hours % 24}h" if hours % 24 else f"{days}d"
    if days < 730:
        return f"{days}d"
    return f"{days // 365}y{days % 365}d" if days % 365 else f"{days // 365}y"
