"""Pages of runs, served on loopback: episodes with filters, one of them, two side by side, charts; all runs' curves."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp import web
from PIL import Image

from webgym_cli.errors import StoreError, UsageError
from webgym_cli.inspect.page import read_episode, render_episode_page
from webgym_cli.store.buffer import LineRef, read
from webgym_cli.store.index.query import LINE_REF, Index, open_index
from webgym_cli.store.run import RunDir, saved_settings
from webgym_cli.store.screenshots import DAMAGE_HINT, ScreenshotStore
from webgym_cli.util.html_page import render_page
from webgym_cli.util.local_server import SecretServer, respond

RenderReport = Callable[[RunDir, Index], bytes]
# Renders the page of several runs, with links to their pages by folder.
RenderStudy = Callable[[Sequence[tuple[RunDir, Index]], Mapping[str, str]], bytes]
# Episodes of a page.
PAGE = 48
# Maximum values that a list offers.
_LISTED = 500
# Columns with a list of their values.
CHOICES = ("outcome", "failure", "split", "iteration", "policy", "site", "band", "reward", "verdict")
# In memory and in order, since the views over Parquet take most of a second for 100,000 episodes.
_TABLE = f"""
CREATE TABLE episodes AS SELECT row_number() OVER (ORDER BY iteration DESC, split, id, file, start) AS place,
    id, split, iteration, task, site, band, policy, steps, stop, failure, reward, left(instruction, 600) AS instruction,
    left(answer, 600) AS answer, left(failure_detail, 600) AS failure_detail, {LINE_REF} AS line,
    CASE WHEN judged THEN 'yes' WHEN NOT judged THEN 'no' END AS verdict,
    CASE WHEN failure IS NOT NULL THEN 'failure' WHEN success THEN 'solved' WHEN success IS NULL THEN 'not judged'
        ELSE 'not solved' END AS outcome,
    lower(concat_ws(chr(10), id, task, site, policy, instruction, answer, failure_detail)) AS words
FROM trajectories ORDER BY place
"""
# Maximum pixels of a thumbnail's longer side.
LARGEST = 320
# WebP quality, 0 to 100.
QUALITY = 60


class EpisodeTable:
    """The episodes of an index, as they are when it is made."""

    def __init__(self, index: Index) -> None:
        self.index = index
        list(index.rows(_TABLE))
        self.total = self.count("true", [])
        self.choices = {name: self._list_values(name) for name in CHOICES}
        """Values that occur, by column; of more than `_LISTED` the most frequent."""

    def _list_values(self, column: str) -> list[str]:
        sql = (
            f"SELECT {_cast_to_text(column)} AS value FROM episodes GROUP BY ALL ORDER BY count(*) DESC, value "
            f"LIMIT {_LISTED}"
        )
        return sorted((row["value"] for row in self.index.rows(sql)), key=lambda value: (len(value), value))

    def read_filter(self, query: Mapping[str, str]) -> tuple[str, list[Any]]:
        """Return a page's filter as a condition with its values. Raises `UsageError` for invalid SQL."""
        conditions, values = ["true"], []
        for name in ("task", *CHOICES):
            if value := query.get(name):
                conditions.append(f"{_cast_to_text(name)} = ?")
                values.append(value)
        for word in query.get("words", "").lower().split():
            conditions.append("contains(words, ?)")
            values.append(word)
        if expression := query.get("where"):
            conditions.append(f"id IN (SELECT id FROM trajectories WHERE {self.index.check_where(expression)})")
        return " AND ".join(conditions), values

    def count(self, where: str, values: list[Any]) -> int:
        """Return the number of episodes that a condition selects."""
        return int(self.index.one(f"SELECT count(*) AS number FROM episodes WHERE {where}", values)["number"])

    def list_page(self, where: str, values: list[Any], page: int) -> list[dict[str, Any]]:
        """Return a page, from 0, of the episodes that a condition selects."""
        sql = f"SELECT * EXCLUDE (line, words) FROM episodes WHERE {where} ORDER BY place LIMIT {PAGE} OFFSET ?"
        return list(self.index.rows(sql, [*values, page * PAGE]))

    def find(self, name: str) -> tuple[int, LineRef]:
        """Return an episode's place in the table and in the buffer. Raises `UsageError` for an unknown id."""
        for row in self.index.rows("SELECT place, line FROM episodes WHERE id = ? ORDER BY place LIMIT 1", [name]):
            return row["place"], LineRef(**row["line"])
        raise UsageError(f"no trajectory {name!r}")

    def find_neighbours(self, place: int, where: str, values: list[Any]) -> dict[str, str | None]:
        """Return the ids of the episodes `before` and `after` a place, of those that a condition selects."""
        sql = (
            f"SELECT arg_max(id, place) FILTER (place < {place}) AS before, "
            f"arg_min(id, place) FILTER (place > {place}) AS after FROM episodes WHERE {where}"
        )
        return self.index.one(sql, values)


class RunPages:
    """A run's pages, below a path. They show the run as it was when first asked for, or last refreshed."""

    def __init__(self, run: RunDir, root: str, render_report: RenderReport, *, several: bool = False) -> None:
        """`several`: the parent of `root` lists this run among others."""
        self._run, self._root, self._render_report, self._several = run, root, render_report, several
        self._store = ScreenshotStore(run.screenshots)
        self._opened = ExitStack()
        self._known: EpisodeTable | None = None

    @property
    def routes(self) -> list[web.RouteDef]:
        """The addresses of the pages."""
        pages = {
            "": self._show_list,
            "episode": self._show_episode,
            "pair": self._show_pair,
            "thumbnail": self._show_thumbnail,
            "report": self._show_report,
            "refresh": self._refresh,
        }
        return [web.get(f"{self._root}/{name}", show) for name, show in pages.items()]

    @property
    def _table(self) -> EpisodeTable:
        """The episodes; reads what is new if the index is not open. Raises `StoreError`."""
        if self._known is None:
            self._known = EpisodeTable(self._opened.enter_context(open_index(self._run)))
        return self._known

    def close(self) -> None:
        """Close the index."""
        self._known = None
        self._opened.close()

    async def _refresh(self, request: web.Request) -> web.Response:
        self.close()
        raise web.HTTPSeeOther(f".?{request.query_string}")

    async def _show_list(self, request: web.Request) -> web.Response:
        query = {name: value for name, value in request.query.items() if value}
        given = {name: value for name, value in query.items() if name != "page"}
        number = query.get("page", "0")
        page = int(number) if number.isdecimal() and len(number) < 9 else 0
        where, values = self._table.read_filter(query)
        count = self._table.count(where, values)
        return self._render(
            "episodes.html",
            episodes=self._table.list_page(where, values, page),
            choices=self._table.choices,
            given=given,
            filter=urlencode(given),
            count=count,
            total=self._table.total,
            page=page,
            pages=-(-count // PAGE),
            several=self._several,
        )

    async def _show_episode(self, request: web.Request) -> web.Response:
        given = [(name, value) for name, value in request.query.items() if name != "id" and value]
        place, line = self._table.find(request.query.get("id", ""))
        neighbours = self._table.find_neighbours(place, *self._table.read_filter(dict(given)))
        view = read_episode(self._run, self._table.index, line)
        links: dict[str, str] = {"back": f".?{urlencode(given)}"}
        for name, neighbour in neighbours.items():
            if neighbour is not None:
                links[name] = f"episode?{urlencode([('id', neighbour), *given])}"
        return respond(render_episode_page(view, self._store, links=links))

    async def _show_pair(self, request: web.Request) -> web.Response:
        ids = request.query.getall("id", [])
        if len(ids) != 2:
            raise UsageError("choose two episodes")
        return self._render("pair.html", ids=ids)

    async def _show_thumbnail(self, request: web.Request) -> web.Response:
        _, line = self._table.find(request.query.get("id", ""))
        steps = read(self._run, line, without=("token_ids", "logprobs")).steps
        shots = [step.observation.screenshot for step in steps if step.observation.screenshot is not None]
        if not shots:
            raise web.HTTPNotFound
        return web.Response(body=make_thumbnail(self._store.get(shots[-1].sha256)), content_type="image/webp")

    async def _show_report(self, request: web.Request) -> web.Response:
        return respond(await asyncio.to_thread(self._render_report, self._run, self._table.index))

    def _render(self, template: str, **values: Any) -> web.Response:
        page = render_page(
            Path(__file__).parent, template, "view", style="episode.css", script="keys.js", run=self._run.root, **values
        )
        return respond(page)


class ViewServer(SecretServer):
    """The server of the pages of runs. It reads the runs, and executes nothing of them."""

    def __init__(
        self, runs: Sequence[RunDir], render_report: RenderReport, render_study: RenderStudy, port: int = 0
    ) -> None:
        """One run's pages are the first ones; several runs have the page of their study before them."""
        super().__init__(port)
        self._runs, self._render, several = runs, render_study, len(runs) > 1
        self._pages = [
            RunPages(run, f"{self.root}/{number}" if several else self.root, render_report, several=several)
            for number, run in enumerate(runs)
        ]
        self.app.add_routes(list(chain.from_iterable(pages.routes for pages in self._pages)))
        if several:
            self.app.add_routes([web.get(f"{self.root}/", self._show_study)])

    async def __aexit__(self, *exc: object) -> None:
        """Stop, and close the indexes."""
        await super().__aexit__(*exc)
        for pages in self._pages:
            pages.close()

    async def _show_study(self, _request: web.Request) -> web.Response:
        return respond(await asyncio.to_thread(self._render_study))

    def _render_study(self) -> bytes:
        """Render the page of all runs; one whose settings can't be read is left out of its figures, with the reason."""
        links: dict[str, str] = {}
        runs: list[tuple[RunDir, Index]] = []
        with ExitStack() as stack:
            for number, run in enumerate(self._runs):
                name = str(run.root)
                try:
                    saved_settings(run)
                    runs.append((run, stack.enter_context(open_index(run))))
                except StoreError as error:
                    if run is self._runs[-1] and not runs:
                        raise
                    name = str(error)
                links[name] = f"{number}/"
            return self._render(runs, links)


def _cast_to_text(column: str) -> str:
    return f"coalesce(CAST({column} AS VARCHAR), 'none')"


def make_thumbnail(content: bytes) -> bytes:
    """Return an image as WebP of at most `LARGEST` pixels a side. Raises `StoreError` if the bytes are no image."""
    try:
        with Image.open(io.BytesIO(content)) as image:
            picture = image.convert("RGB")
        picture.thumbnail((LARGEST, LARGEST))
        packed = io.BytesIO()
        picture.save(packed, "WEBP", quality=QUALITY)
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:  # Pillow's for a bad image
        reason = str(error).partition("<")[0].strip()
        raise StoreError(f"the screenshot is no image: {reason}", hint=DAMAGE_HINT) from error
    return packed.getvalue()
