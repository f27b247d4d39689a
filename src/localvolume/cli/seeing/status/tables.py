"""`localvolume status` for people: the summary first, then what somebody should look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from localvolume.cli.output.console import table_console
from localvolume.cli.rows import print_columns, printable
from localvolume.cli.seeing.said import by_whom
from localvolume.cli.seeing.status.bars import bars
from localvolume.cli.seeing.unread import in_short, refused_user
from localvolume.cli.seeing.words import UNKNOWN, age, pairs, size

Shape = Mapping[str, Any]


def print_status(status: Shape, now: float, *, wide: bool) -> None:
    _print_summary(status)
    _print_problems(status["problems"], now, status["unknown"])
    _print_nodes(status["nodes"], known=status["summary"]["nodes"] is not None)
    _print_bars(status)
    _print_capacities(status["nodes"])
    _print_claims(status["claims"], now, status["unknown"])
    _print_cleanings(status["cleanings"], now)
    if wide:
        _print_volumes(status["volumes"], now, status["unknown"])
        _print_snapshots(status["snapshots"], now)
        _print_groups(status["groupSnapshots"])
        _print_pools(status["nodes"])
        _print_disks(status["nodes"])


def counted(counts: Mapping[str, int] | None) -> str:
    """`3 bound, 1 held`: zero counts are left out."""
    if counts is None:
        return UNKNOWN
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count) or "none"


def _print_summary(status: Shape) -> None:
    summary, controller = status["summary"], status["controller"]
    total = summary["capacityBytes"]
    volumes = counted(summary["volumes"])
    print(f"Volumes     {volumes}" + ("" if total is None else f"; {size(total)} in all"))
    if summary["snapshots"] is None or any(summary["snapshots"].values()):
        print(f"Snapshots   {counted(summary['snapshots'])}")
    groups = summary["groupSnapshots"]
    if groups is None or any(groups.values()):
        print(f"Groups      {counted(groups)} (of snapshots)")
    nodes = summary["nodes"]
    agents = counted(summary["agents"])
    print(f"Nodes       {UNKNOWN if nodes is None else nodes}; agents: {agents}")
    print(f"Controller  {_controller(controller)}")
    waiting = summary["claimsWaiting"]
    print(f"Claims      {UNKNOWN if waiting is None else waiting} waiting")
    for why, what in _by_reason(status["unknown"]).items():
        print(f"Unknown     {', '.join(what)}: {printable(why)}")


def _by_reason(unknown: Mapping[str, str]) -> Mapping[str, Sequence[str]]:
    """What could not be read, by reason: all that one user may not read makes one line."""
    found: dict[str, list[str]] = {}
    for what, why in unknown.items():
        user = refused_user(why)
        text = why if user is None else f'not allowed for "{user}"'
        found.setdefault(text, []).append(what)
    return found


def _controller(controller: Shape) -> str:
    if controller["pods"] is None:
        return UNKNOWN
    if not controller["pods"]:
        return "no pod of it was found"
    leads = f"; {printable(controller['leader'])} leads" if controller["leader"] else ""
    return f"{controller['ready']} of {controller['pods']} ready{leads}"


def _print_problems(problems: Sequence[Shape], now: float, unknown: Mapping[str, str]) -> None:
    # What could not be read may have any number of problems.
    more = "unknown: not everything could be read" if unknown else ""
    if not problems:
        print(f"Problems    {more or 'none known'}\n")
        return
    print(f"Problems    {len(problems)}" + (f"; others {more}" if more else "") + "\n")
    print_columns(
        ("PROBLEM", "ABOUT", "NODE", "WHAT", "DO"),
        [
            (one["severity"], one["about"], one["node"], _since(one, now), one["do"])
            for one in problems
        ],
        none="",
    )
    print()


def _since(problem: Shape, now: float) -> str:
    """What is wrong, and when that was said: it may have been put right since."""
    said = problem["said"]
    return f"{problem['reason']} (said {age(now, said)} ago)" if said else str(problem["reason"])


def _print_nodes(nodes: Sequence[Shape], *, known: bool) -> None:
    rows: list[Sequence[str]] = []
    for node in nodes:
        there = {None: UNKNOWN, True: "ready", False: "not ready"}[node["ready"]]
        there = "no such Node" if node["exists"] is False else there
        head = (node["name"], there, node["agent"]["state"])
        if node["classes"] is None:
            rows.append((*head, UNKNOWN, UNKNOWN, UNKNOWN))
        for class_ in node["classes"] or ():
            row = (class_["name"], counted(class_["volumes"]), size(class_["capacityBytes"]))
            rows.append((*head, *row))
        if node["classes"] == []:
            rows.append((*head, "", "none", ""))
    print_columns(
        ("NODE", "STATE", "AGENT", "CLASS", "VOLUMES", "CAPACITY"),
        rows,
        none="no node has anything of localvolume" if known else "nodes: unknown",
    )


def _print_bars(status: Shape) -> None:
    """Bars are for people at a terminal: programs that read the tables see them as before."""
    console = table_console()
    unicode = console.encoding.startswith("utf")
    if console.is_terminal and (rows := bars(status, unicode=unicode)):
        print()
        print_columns(("NODE", "BAR", "SIZES"), rows, none="")


def _print_capacities(nodes: Sequence[Shape]) -> None:
    rows = [
        (
            node["name"],
            capacity["class"],
            size(capacity["roomBytes"]),
            size(capacity["largestBytes"]),
        )
        for node in nodes
        for capacity in node["rooms"] or ()
    ]
    if rows:
        print()
        print_columns(("NODE", "CLASS OF POOLS", "ROOM", "LARGEST VOLUME"), rows, none="")


def _print_claims(claims: Sequence[Shape] | None, now: float, unknown: Shape) -> None:
    rows = [
        (
            one["namespace"],
            one["name"],
            one["class"],
            size(one["requestedBytes"]),
            one["node"],
            age(now, one["created"]),
            _said(one["lastEvent"], now, "events" in unknown),
        )
        for one in claims or ()
    ]
    if rows:
        print()
        titles = ("NAMESPACE", "CLAIM WAITING", "CLASS", "SIZE", "NODE", "AGE", "LAST EVENT")
        print_columns(titles, rows, none="")


def _print_cleanings(cleanings: Sequence[Shape] | None, now: float) -> None:
    rows = [
        (
            one["persistentVolume"],
            one["node"],
            age(now, one["deleting"]) if one["deleting"] else "",
            _jobs(one["jobs"]),
            _said(one["lastEvent"], now, unknown=False),
        )
        for one in cleanings or ()
    ]
    if rows:
        print()
        print_columns(("CLEANING", "NODE", "FOR", "JOBS", "LAST EVENT"), rows, none="")


def _jobs(jobs: Sequence[Shape] | None) -> str:
    if jobs is None:
        return UNKNOWN
    return ", ".join(f"{job['name']}: {job['state']}" for job in jobs)


def _print_volumes(volumes: Sequence[Shape] | None, now: float, unknown: Shape) -> None:
    print()
    if volumes is None:
        why = in_short(unknown.get("persistentvolumes", ""))
        print(f"persistentvolumes: unknown: {printable(why)}")
        return
    titles = ("VOLUME", "NODE", "CLASS", "STATE", "SIZE", "CLAIM", "AGE", "PATH", "IDENTITY")
    changed = any(one["attributesClass"] for one in volumes)
    print_columns(
        (*titles, "ATTRIBUTES BY") if changed else titles,
        [
            (
                one["name"],
                one["node"],
                one["class"],
                one["state"],
                size(one["capacityBytes"]),
                one["claim"],
                age(now, one["created"]),
                "through CSI" if one["csi"] else one["path"],
                pairs(one["identity"] or {}),
                *((one["attributesClass"],) if changed else ()),
            )
            for one in volumes
        ],
        none="no volumes",
    )


def _print_snapshots(snapshots: Sequence[Shape] | None, now: float) -> None:
    rows = [
        (
            one["snapshot"] or one["name"],
            one["node"],
            one["state"],
            size(one["restoreSizeBytes"]),
            one["volumeHandle"],
            age(now, one["cut"]) if one["cut"] else "",
            one["handle"],
        )
        for one in snapshots or ()
    ]
    if rows:
        print()
        titles = ("SNAPSHOT", "NODE", "STATE", "RESTORES TO", "OF VOLUME", "AGE", "HANDLE")
        print_columns(titles, rows, none="")


def _print_groups(groups: Sequence[Shape] | None) -> None:
    rows = [
        (
            one["groupSnapshot"] or one["name"],
            one["node"],
            one["state"],
            str(len(one["volumeHandles"] or one["snapshotHandles"])),
            one["handle"],
        )
        for one in groups or ()
    ]
    if rows:
        print()
        titles = ("GROUP OF SNAPSHOTS", "NODE", "STATE", "VOLUMES", "HANDLE")
        print_columns(titles, rows, none="")


def _print_pools(nodes: Sequence[Shape]) -> None:
    rows = [
        (
            node["name"],
            pool["name"],
            str(pool["volumeCount"]),
            size(pool["promisedBytes"]),
            size(pool["usedBytes"]),
            size(pool["totalBytes"]),
        )
        for node in nodes
        for pool in node["pools"] or ()
    ]
    if rows:
        print()
        print_columns(("NODE", "POOL", "VOLUMES", "PROMISED", "USED", "SIZE"), rows, none="")


def _print_disks(nodes: Sequence[Shape]) -> None:
    rows = [
        (
            node["name"],
            disk["path"],
            size(disk["capacityBytes"]),
            disk["model"],
            disk["class"],
            disk["verdict"],
            disk["reason"],
        )
        for node in nodes
        for disk in node["disks"] or ()
    ]
    more = {node["name"]: node["disksLeftOut"] for node in nodes if node["disksLeftOut"]}
    if rows or more:
        print()
    if rows:
        titles = ("NODE", "RAW DISK", "SIZE", "MODEL", "FOR CLASS", "VERDICT", "REASON")
        print_columns(titles, rows, none="")
    for name, count in more.items():
        print(f"{printable(name)}: {count} more raw {'disk' if count == 1 else 'disks'}")


def _said(event: Shape | None, now: float, unknown: bool) -> str:
    if event is None:
        return UNKNOWN if unknown else ""
    when = f"{age(now, event['time'])} ago"
    return f"{event['reason']} {when}, {by_whom(event)}: {event['message']}"
