"""Sites that blocked the browser; their episodes are skipped until the block expires."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from pydantic import AwareDatetime

from webgym_cli.records.base import Record
from webgym_cli.store.run import RunDir
from webgym_cli.util.files import append_lines, read_valid_lines
from webgym_cli.util.urls import site_of


class Block(Record):
    """One entry of `blocklist.jsonl`."""

    site: str
    """Registrable domain, otherwise host and port."""
    url: str
    """URL of the blocked page."""
    trajectory: str
    """Id of the trajectory that was blocked."""
    reason: str = ""
    blocked_at: AwareDatetime
    expires_at: AwareDatetime


@dataclass(slots=True)
class Blocklist:
    """Blocklist of a run: the file's entries and those added since."""

    run: RunDir
    hours: float
    """Duration of a block in hours; 0: nothing is blocked."""
    _blocks: dict[tuple[str, str], Block] = field(default_factory=dict)
    """Newest entry by site and trajectory."""

    def __post_init__(self) -> None:
        """Read the file; unreadable lines are ignored."""
        for block in read_valid_lines(self.run.blocklist, Block.model_validate_json):
            self._blocks[block.site, block.trajectory] = block

    def sites(self) -> frozenset[str]:
        """Return the sites that are blocked now."""
        if not self.hours:
            return frozenset()
        now = datetime.now(UTC)
        return frozenset(site for (site, _), block in self._blocks.items() if block.expires_at > now)

    def add(self, url: str, trajectory: str, reason: str) -> Block | None:
        """Block a site; None if `hours` is 0 or the URL has no site. Raises `StoreError`."""
        site, now = site_of(url), datetime.now(UTC)
        if not self.hours or not site:
            return None
        block = Block(
            site=site,
            url=url,
            trajectory=trajectory,
            reason=reason[:500],
            blocked_at=now,
            expires_at=now + timedelta(hours=self.hours),
        )
        self._append(block)
        return block

    def lift(self, trajectory: str) -> None:
        """End the blocks that a trajectory caused, after a new judgement found no bot check. Raises `StoreError`."""
        now = datetime.now(UTC)
        for (_, cause), block in list(self._blocks.items()):
            if cause == trajectory and block.expires_at > now:
                self._append(block.model_copy(update={"expires_at": now, "reason": "judged again: not blocked"}))

    def _append(self, block: Block) -> None:
        append_lines(self.run.blocklist, block.model_dump_json())
        self._blocks[block.site, block.trajectory] = block
