"""Pages on which people label episodes, served on loopback: blind to every verdict, each person apart."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from aiohttp import web

from webgym_cli.errors import UsageError
from webgym_cli.inspect.page import EpisodeView, render_episode_page
from webgym_cli.records.judgement import LABELS, EpisodeLabel, LabelValue
from webgym_cli.store.buffer import LineRef, append_label, iter_labels, read
from webgym_cli.store.index.query import Index
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.util.html_page import render_page
from webgym_cli.util.local_server import SecretServer, respond

# What a person's name may be: it is a part of the pages' addresses.
_NAME = re.compile(r"[^\s./][^/]{0,39}")
# Characters without a glyph that words of some scripts need, as in Persian or Sinhala.
_JOINERS = re.compile("(?<=.)[\u200c\u200d](?=.)")


def _is_name(who: str) -> bool:
    """Whether a person may have this name: two that look the same are the same, so it has nothing invisible."""
    return _NAME.fullmatch(who) is not None and _JOINERS.sub("", who).isprintable()


def read_episodes_to_label(run: RunDir, index: Index, ids: Sequence[str] | None) -> dict[str, LineRef]:
    """Return the episodes that were rolled out, by id in their order; judges' verdicts don't matter.

    Raises `UsageError` for an id.
    """
    rows = index.rows(
        "SELECT id, file, start AS offset, size AS length FROM stored "
        "WHERE failure IS NULL OR failure = 'judge_failed' ORDER BY split, iteration, file, start"
    )
    known = {row["id"]: LineRef(**row) for row in rows}
    if missing := [name for name in ids or () if name not in known]:
        raise UsageError(
            f"{run.root}: {missing[0]} is no episode to label", hint=f"webgym inspect-buffer {run.root} -q"
        )
    return known if ids is None else {name: known[name] for name in ids}


class LabelServer(SecretServer):
    """Serves the episodes, in their order, and stores what each person says of them."""

    def __init__(self, run: RunDir, episodes: Mapping[str, LineRef], port: int = 0) -> None:
        super().__init__(port)
        self._run, self._episodes, self._ids = run, episodes, list(episodes)
        self.app.add_routes(
            [
                web.get(f"{self.root}/", self._show_start),
                web.get(f"{self.root}/{{who}}/", self._go_on),
                web.get(f"{self.root}/{{who}}/{{id}}", self._show_episode),
                web.post(f"{self.root}/{{who}}/{{id}}", self._label),
            ]
        )

    async def _show_start(self, request: web.Request) -> web.Response:
        # the same name whatever the keyboard, and as one line
        if who := " ".join(unicodedata.normalize("NFC", request.query.get("who", "")).split()):
            if not _is_name(who):
                raise web.HTTPBadRequest(text="a name has at most 40 visible characters, no /, and begins with no dot")
            raise web.HTTPSeeOther(f"{self.root}/{quote(who)}/")
        return self._render_start(who="")

    async def _go_on(self, request: web.Request) -> web.Response:
        who = request.match_info["who"]
        if name := self.find_next(who):
            raise web.HTTPSeeOther(f"{self.root}/{quote(who)}/{quote(name, safe='')}")
        return self._render_start(who)

    def _render_start(self, who: str) -> web.Response:
        labels = self.read_labels()
        facts: dict[str, Any] = {
            "run": self._run.root,
            "who": who,
            "counts": {name: len(of_one) for name, of_one in labels.items()},
            "total": len(self._ids),
            "mine": [(name, labels.get(who, {}).get(name, "")) for name in self._ids if who],
        }
        return respond(render_page(Path(__file__).parent, "label_start.html", "label", style="episode.css", **facts))

    async def _show_episode(self, request: web.Request) -> web.Response:
        episode, who = self._find(request), request.match_info["who"]
        mine = self.read_labels().get(who, {})
        at = self._ids.index(episode.id)
        facts = {"who": who, "done": len(mine), "total": len(self._ids), "label": mine.get(episode.id, "")}
        facts["before"] = quote(self._ids[at - 1], safe="") if at else ""
        view = EpisodeView(read(self._run, episode, without=("token_ids", "logprobs")))
        return respond(render_episode_page(view, ScreenshotStore(self._run.screenshots), facts))

    async def _label(self, request: web.Request) -> web.Response:
        episode, who = self._find(request), request.match_info["who"]
        given = (await request.post()).get("label")
        value = next((one for one in LABELS if one == given), None)
        if value is None:
            raise web.HTTPBadRequest(text="yes, no or unsure")
        self.add(who, episode, value)
        name = self.find_next(who, episode.id)
        raise web.HTTPSeeOther(f"{self.root}/{quote(who)}/{quote(name, safe='')}")

    def _find(self, request: web.Request) -> LineRef:
        if not _is_name(request.match_info["who"]):
            raise web.HTTPNotFound
        episode = self._episodes.get(request.match_info["id"])
        if episode is None:
            raise web.HTTPNotFound
        return episode

    def add(self, who: str, episode: LineRef, value: LabelValue) -> None:
        """Store a label."""
        label = EpisodeLabel(trajectory=episode.id, label=value, who=who, labelled_at=now())
        append_label(self._run, episode.file, label)

    def read_labels(self) -> dict[str, dict[str, LabelValue]]:
        """Read the label by trajectory, by person, of these episodes: another server of the run stores some too."""
        labels: dict[str, dict[str, LabelValue]] = {}
        for label in (one for one in iter_labels(self._run) if one.trajectory in self._episodes):
            labels.setdefault(label.who, {})[label.trajectory] = label.label
        return labels

    def find_next(self, who: str, after: str = "") -> str:
        """Return the next episode without this person's label, from `after` on; empty if there is none."""
        start = self._ids.index(after) + 1 if after else 0
        mine = self.read_labels().get(who, {})
        return next((name for name in [*self._ids[start:], *self._ids[:start]] if name not in mine), "")
