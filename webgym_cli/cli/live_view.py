"""Renders a rollout's snapshot for a terminal of any size, in the live view and in `webgym status`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from webgym_cli.util.optional import when
from webgym_cli.util.text import escape_control, format_duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

_GOING_ON = ("running", "silent")
_GAP = (0, 2, 0, 0)


@dataclass(slots=True)
class LiveView:
    """The board of a snapshot (`Monitor.snapshot`). Takes the terminal's width and height."""

    snapshot: dict[str, Any]
    """`state`: that of its rollout; missing while the rollout itself shows it."""
    beside: dict[str, Any] | None = None
    """Snapshot of a concurrent evaluation, shown in short."""
    below: int = 0
    """Terminal lines reserved for other output."""

    @property
    def bars(self) -> tuple[str, ...]:
        """Names of the progress bars that the board replaces."""
        return tuple(str(one["bar"]) for one in (self.snapshot, self.beside) if one)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Render the head, the stages, and as many episodes as fit, the oldest."""
        head = [line for one in (self.snapshot, self.beside) if one for line in _head(one, options.max_width)]
        stages = _table(("stage", "left"), ("p50", "right"), ("p95", "right"), ("now", "right"), ("count", "right"))
        for name, stage in self.snapshot["stages"].items():
            if stage["count"] or stage["now"]:
                latencies = (format_duration(stage["p50"]), format_duration(stage["p95"]))
                _row(stages, name, *latencies, str(stage["now"]), str(stage["count"]))
        yield Group(*head, Text(), stages)
        # Rich crops overlong output at the bottom, where the newest lines are: two empty lines, and two of names.
        room = console.size.height - self.below - 1 - len(head) - stages.row_count - 4
        if self.snapshot["episodes"] and room > 0:
            table = _table(("episode", "left"), ("step", "right"), ("stage", "left"), ("for", "right"), expand=True)
            table.add_column("task", no_wrap=True, overflow="ellipsis", ratio=2)
            table.add_column("address", no_wrap=True, overflow="ellipsis", ratio=3)
            for episode in self.snapshot["episodes"][:room]:
                _row(
                    table,
                    episode["id"],
                    f"{episode['step']}/{episode['max_steps']}",
                    episode["stage"],
                    format_duration(episode["stage_seconds"]),
                    escape_control(episode["task"]),
                    shorten_url(episode["url"]),
                )
            yield Group(Text(), table)


def shorten_url(url: str) -> str:
    """Return a URL without scheme, `www.` and trailing slash."""
    return escape_control(url).split("://", 1)[-1].removeprefix("www.").removesuffix("/")


def _head(snapshot: dict[str, Any], width: int) -> list[Any]:
    done, total, state = snapshot["done"], snapshot["total"], snapshot.get("state", "running")
    style = {"running": "green", "finished": "green"}.get(state, "red")
    who = _cut(_line((f"{snapshot['bar']}", "bold"), (escape_control(snapshot["policy"])[:40], ""), (state, style)))
    count = Text(f"{done}/{total}", style="bold")
    bar = ProgressBar(total=max(1, total), completed=done, width=max(10, width - who.cell_len - len(count) - 4))
    first = Table.grid(padding=_GAP)
    first.add_row(who, count, bar)
    rate, (low, high) = snapshot["success_rate"], snapshot["interval"]
    success = f"success {rate:.1%} ({100 * low:.1f}-{high:.1%}) of {snapshot['known']}" if rate is not None else ""
    left = snapshot["eta"] if state == "running" else None
    pace = _line(
        (success or "no reward known", "bold"),
        (f"{snapshot['steps_per_second']:.1f} steps/s", ""),
        (f"{format_duration(snapshot['elapsed'])} elapsed", ""),
        (when(left is not None, f"ETA {format_duration(left)}"), ""),
    )
    lines = [pace, _counts(snapshot, state)]
    if failures := Counter(snapshot["failures"]).most_common():
        lines.append(_line(*((f"{escape_control(kind)} {count}", "red") for kind, count in failures)))
    return [first, *map(_cut, lines)]


def _counts(snapshot: dict[str, Any], state: str) -> Text:
    """Return slots, queues, and the counts of episodes that are not done."""
    more = [(name, snapshot[name]) for name in ("unjudged", "skipped", "cut", "given_up") if snapshot[name]]
    ranks = when(snapshot["ranks"] > 1, [(f"{snapshot['ranks']} ranks", "")])
    queues = [(f"{escape_control(name)} {depth}", "") for name, depth in snapshot["queues"].items()]
    servers = snapshot["servers"].values()
    shut = sum(facts["open"] > 0 for facts in servers)
    return _line(
        *ranks,
        (when(state in _GOING_ON, f"{snapshot['running']} of {snapshot['slots']} slots busy"), ""),
        *queues,
        (when(shut, f"{shut} of {len(servers)} policy servers left alone"), "yellow"),
        *((f"{name.replace('_', ' ')} {count}", "yellow") for name, count in more),
    )


def _table(*columns: tuple[str, Any], expand: bool = False) -> Table:
    table = Table(box=None, padding=_GAP, pad_edge=False, header_style="dim", expand=expand)
    for name, justify in columns:
        table.add_column(name, justify=justify, no_wrap=True, overflow="ellipsis")
    return table


def _row(table: Table, *cells: str) -> None:
    """Add a row of plain text, without interpreting markup."""
    table.add_row(*map(Text, cells))


def _line(*parts: tuple[str, str]) -> Text:
    """Join the non-empty parts by two spaces."""
    return Text("  ").join(Text(text, style=style) for text, style in parts if text)


def _cut(text: Text) -> Text:
    """Return the text so that it stays on one line."""
    text.no_wrap, text.overflow = True, "ellipsis"
    return text
