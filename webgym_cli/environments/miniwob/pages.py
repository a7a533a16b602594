"""The MiniWoB pages that ship inside the `miniwob` wheel, and the scripts that start and watch their episodes."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path

from webgym_cli.environments.browser.frames import OBSERVE_JS, WAITS_JS
from webgym_cli.errors import UsageError
from webgym_cli.records.task import Task
from webgym_cli.util.registry import suggest_name

# Size of the task's area in CSS pixels; the pages show rewards and timer beside it.
WIDTH, HEIGHT = 160, 210

# Gives pages a function that collects garbage: once, where the DevTools command does it several times, for 2 ms of CPU
# time a step. Only for these pages, which are trusted.
GC_ARGUMENT = "--js-flags=--expose-gc-as=webgymCollectGarbage"

# Longest wait for a page's own animations after an action, in milliseconds.
_SETTLE_MS = 1500


@cache
def pages_folder() -> Path:
    """Return the folder of the pages. Raises `UsageError` when the wheel isn't installed."""
    spec = find_spec("miniwob")
    if spec is None or spec.origin is None:
        raise UsageError("the package miniwob is not installed", hint="pip install 'miniwob>=1.1,<1.2'")
    return Path(spec.origin).parent / "html" / "miniwob"


@cache
def list_pages() -> tuple[str, ...]:
    """Return the names of all pages, sorted."""
    return tuple(sorted(page.stem for page in pages_folder().glob("*.html")))


def page_of(task: Task) -> str:
    """Return the name of a task's page."""
    return (task.start_url or task.id).removesuffix(".html")


def page_url(name: str) -> str:
    """Return the address of a page. Raises `UsageError` for an unknown one."""
    if name not in list_pages():
        raise UsageError(f"there is no MiniWoB page {name!r}", hint=suggest_name(name, list_pages()))
    return (pages_folder() / f"{name}.html").as_uri()


# Runs before a page's own scripts: hides everything but the task and seeds the random numbers.
INIT_SCRIPT = """
(() => {
  // Until an episode seeds the generator itself, it is the same in every process.
  let state = 1;
  Math.random = () => (state = (state * 48271) % 2147483647) / 2147483647;
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("#reward-display, #click-canvas, #sync-task-cover { display: none !important; }");
  document.adoptedStyleSheets.push(sheet);
})();
"""

_WATCH = f"""
  const eyes = {OBSERVE_JS};
  const over = () => {{
    if (typeof core === "undefined" || !core.webgymStarted) return {{ left: true }};
    return WOB_DONE_GLOBAL ? {{ reward: WOB_RAW_REWARD_GLOBAL, reason: WOB_REWARD_REASON || "" }} : null;
  }};
  const show = async () => {{
    let end = over();
    if (end) return {{ end }};
    await {WAITS_JS}.settle({_SETTLE_MS});
    end = over();
    if (end) return {{ end }};
    const listed = options.limit ? eyes.look({{ limit: options.limit }}) : [];
    return {{ url: location.href, title: document.title, listed }};
  }};
"""

# Answers `end` when the episode is over, else waits until the page has drawn and lists its elements.
SHOW_JS = f"async (options) => {{ {_WATCH} return await show(); }}"

# Starts the episode of a seed, without a time limit and without the start screen. Before that it frees the pages of
# earlier episodes, of which Chrome would otherwise accumulate 70 MB in each context.
START_JS = f"""async (options) => {{
  window.webgymCollectGarbage?.();
  {_WATCH}
  for (let turn = 0; turn < 200 && !(window.WOB_TASK_READY && core.cover_div); turn++) {{
    await new Promise((done) => setTimeout(done, 10));
  }}
  if (!core.cover_div) return {{ error: "the page did not become ready" }};
  core.EPISODE_MAX_TIME = 2147483647;
  Math.seedrandom(String(options.seed));
  core.startEpisodeReal();
  clearInterval(core.CD_TIMER);
  core.startEpisode = () => {{}};
  core.webgymStarted = true;
  const told = core.getUtterance();
  const instruction = typeof told === "string" ? told : (told && told.utterance) || "";
  return {{ instruction: instruction.replace(/\\s+/g, " ").trim(), ...await show() }};
}}"""

# Observation for the expert.
SCENE_JS = f"""(options) => ({{
  listed: {OBSERVE_JS}.look({{ limit: options.limit, detail: true }}),
  pressed: window.buttonsPushed ? window.buttonsPushed.length : 0,
}})"""
