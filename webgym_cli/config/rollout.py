"""Settings of what collects data: tasks, policy, browser, rollout, judge. The text under a field is its help."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from webgym_cli.config.section import ConfigSection
from webgym_cli.records.action import InteractionMode
from webgym_cli.records.task import DifficultyBand
from webgym_cli.records.trajectory import PromptVersion


class TasksSettings(ConfigSection):
    """Which tasks are rolled out."""

    train: str = "miniwob:all"
    """A task file (JSON Lines, WebGym's fields or ours), or `miniwob:` or `sites:` and names with commas between:
    `miniwob:all` for every MiniWoB page, `sites:all` for every task on the fixture sites; `webarena:fixture`: tasks in
    WebArena's form on the same sites; `arithmetic:train`: 160
    questions with numbers for answers, `arithmetic:test` 40 others; `arithmetic:sums-train`: 240 of the sums,
    differences and products of two digits, `arithmetic:sums-test` the other 60. A file with questions may be a JSON
    array too."""
    test: str = ""
    """The same for evaluation; empty: the training tasks on seeds that training never sees."""
    sampler: Literal["uniform", "ratio"] = "uniform"
    """`uniform`: every task alike; `ratio`: so many of each difficulty band (`difficulty_ratio`)."""
    difficulty_ratio: dict[DifficultyBand, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    """Weights of `easy`, `medium` and `hard` for the sampler `ratio`; shares by largest remainder."""
    no_repeats: bool = False
    """Draw no training task again in a later iteration before all tasks were drawn."""

    @model_validator(mode="after")
    def _ratio_is_given(self) -> TasksSettings:
        if self.sampler == "ratio" and not any(self.difficulty_ratio.values()):
            raise ValueError('sampler "ratio" needs difficulty_ratio, like {"easy": 2, "medium": 5, "hard": 3}')
        return self


class PolicySettings(ConfigSection):
    """The model that acts, and how it samples."""

    base_model: str = "Qwen/Qwen3-VL-8B-Instruct"
    """Where the first policy comes from: a local folder or a Hugging Face id."""
    template: str = "auto"
    """LLaMA-Factory's template for this model; `auto`: that of its family, as its files or its name tell."""
    max_new_tokens: int = Field(default=3072, ge=1)
    """Longest response, in tokens."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature; 0: always the likeliest token."""
    top_p: float = Field(default=0.99, gt=0, le=1)
    """Only the likeliest tokens that have this probability together are sampled from."""
    top_k: int = Field(default=2, ge=-1)
    """How many of the likeliest tokens are sampled from; -1 or 0: all."""
    min_p: float = Field(default=0.0, ge=0, le=1)
    """Tokens less likely than this share of the likeliest one are left out; 0: none."""
    thinking: bool | None = None
    """The model thinks before it acts: what stands before `</think>` is no action and leaves the history; a response
    that never closes its thought is truncated. null: as its chat template or its name tells."""


class ContextSettings(ConfigSection):
    """What the policy is shown."""

    interaction_mode: InteractionMode = InteractionMode.COORDINATES
    """`coordinates` (0-1000 on both axes) or `set_of_marks` (numbered elements)."""
    history_window: int = Field(default=4, ge=0)
    """Earlier rounds sent in full; older ones become one line of text each."""
    max_images: int | None = Field(default=None, ge=1)
    """Screenshots in a prompt at most, the newest ones; null: one for every round of the window."""
    prompt_version: PromptVersion = PromptVersion.COMPLETE
    """`vanilla`: an action and its call; `complete`: memory, progress and intention before them; `webrl`: WebRL's
    rounds, in which the page is text; for the environment `webarena`, which takes no other."""
    explain_actions: bool = True
    """`webrl`: a system message states the action language, in the words of `agent.system_prompt` if it is set.
    `false`: there is none, as for models that were trained without one."""
    max_characters: int = Field(default=15872, ge=1)
    """`webrl`: characters of history and page in a prompt, at most; the end of the page is cut."""


class ImageSettings(ConfigSection):
    """The image sizes that serving and training share: what is trained is what is served."""

    image_min_pixels: int = Field(default=32 * 32, ge=1)
    """Smallest number of pixels of an image; written into LLaMA-Factory's configuration."""
    image_max_pixels: int = Field(default=1280 * 1024, ge=1)
    """Largest number of pixels. Bigger screenshots are refused: LLaMA-Factory would shrink what vLLM saw whole."""


class BrowserSettings(ConfigSection):
    """The browser that episodes run in."""

    executable: str = ""
    """Path of a Chromium; empty: Playwright's own, else chromium-headless-shell or chromium on this machine."""
    args: tuple[str, ...] = ()
    """More command-line arguments for Chromium."""
    sandbox: Literal["auto", "on", "off"] = "auto"
    """Chromium's sandbox; `auto`: off for root, where it can't start."""
    webgl: Literal["auto", "on", "off"] = "auto"
    """WebGL, drawn by the CPU; `auto`: off for MiniWoB, whose pages use none. Off takes some 30 MB less a process."""
    device_scale_factor: float = Field(default=1.0, gt=0, le=4)
    """Screenshot pixels per CSS pixel."""
    action_timeout: float = Field(default=15.0, gt=0)
    """Deadline of one action or observation, in seconds."""
    navigation_timeout: float = Field(default=30.0, gt=0)
    """Deadline of one page load, in seconds."""
    width: int = Field(default=1280, ge=64, le=8192)
    """Width of the viewport of web pages in CSS pixels (MiniWoB pages have their own)."""
    height: int = Field(default=768, ge=64, le=8192)
    """Height of the viewport of web pages in CSS pixels."""
    max_idle_wait: float = Field(default=3.0, ge=0, le=60)
    """How long an observation waits at most for a page that still loads or moves."""
    screenshots: bool = True
    """`webarena`: take a picture of every page, for judges and reports; the policy is never sent it."""
    processes: int = Field(default=1, ge=1, le=8)
    """Chromium processes that share the episodes; two help from some dozens of episodes on."""
    contexts_per_process: int = Field(default=400, ge=1)
    """A Chromium process is replaced after so many browser contexts."""
    process_minutes: float = Field(default=120.0, gt=0)
    """A Chromium process takes no new episode after so long, and is replaced."""
    context_minutes: float = Field(default=60.0, gt=0)
    """Hard cap on a browser context's life: then it is closed, whatever its episode does."""
    memory_reserve_mb: int = Field(default=1024, ge=0)
    """No further episode starts while the machine has less free memory than this."""
    cdp_urls: tuple[str, ...] = ()
    """Remote browsers by their CDP addresses (http:// or ws://) in place of local ones."""
    private_hosts: tuple[str, ...] = ()
    """Private addresses (`10.1.2.3`, `10.0.0.0/8`) or host names that pages may reach all the same."""


class MaxSteps(ConfigSection):
    """Step limits by difficulty band."""

    easy: int = Field(default=10, ge=1)
    """Steps for a task with 1 to 3 facts."""
    medium: int = Field(default=20, ge=1)
    """Steps for a task with 4 to 6 facts."""
    hard: int = Field(default=30, ge=1)
    """Steps for a task with 7 and more facts."""


class RolloutSettings(ConfigSection):
    """How episodes are run."""

    policy: str = "vllm"
    """`vllm` (our server on the run's current model), `oracle` (the environment's expert), or an OpenAI base URL;
    several base URLs, with commas between, share the requests."""
    episodes: int = Field(default=1024, ge=1)
    """Training episodes of an iteration, the greedy ones of `agent.greedy_chain` among them."""
    test_episodes: int = Field(default=100, ge=1)
    """Held-out tasks and seeds of an evaluation: the same each time."""
    test_repeats: int = Field(default=1, ge=1)
    """Episodes of each of them: a policy that samples answers differently each time."""
    concurrency: int | None = Field(default=None, ge=1)
    """Episodes that run at once; null: as many as the machine's cores and free memory carry."""
    train_max_steps: MaxSteps = MaxSteps()
    """Step limits of training episodes."""
    test_max_steps: MaxSteps = MaxSteps(easy=30, medium=50, hard=70)
    """Step limits of test episodes."""
    policy_timeout: float = Field(default=240.0, gt=0)
    """Deadline of one policy call, in seconds."""
    policy_retries: int = Field(default=2, ge=0)
    """Repeats of a policy call that the server failed to answer; of several servers, another one is asked."""
    policy_failures: int = Field(default=3, ge=1)
    """Failures in a row after which one of several policy servers is left alone for a while."""
    policy_cooldown: float = Field(default=5.0, gt=0)
    """How long it is left alone, in seconds; twice as long each time that it fails again before it has worked."""
    policy_cooldown_max: float = Field(default=120.0, gt=0)
    """Longest time that a policy server is left alone before it is probed, in seconds."""
    episode_timeout: float = Field(default=1800.0, gt=0)
    """Deadline of an episode, in seconds."""
    max_attempts: int = Field(default=3, ge=1)
    """How often an episode is tried when infrastructure fails. Each attempt is stored."""
    blocklist_hours: float = Field(default=12.0, ge=0)
    """How long a site that blocked the browser is left out; 0: never."""
    completion_threshold: float = Field(default=1.0, gt=0, le=1)
    """Once this share of the owed episodes is done, the rest is cut after `completion_grace`: stored as `cancelled`
    and owed. Below 1 it biases the sample against long episodes."""
    completion_grace: float = Field(default=30.0, ge=0)
    """Seconds that the last episodes are given once the threshold is reached."""
    executor: Literal["local", "ray"] = "local"
    """`ray`: one rollout actor on each node of a Ray cluster."""
    ray_address: str = ""
    """Address of the Ray cluster; empty: `RAY_ADDRESS`, else a new one on this machine."""
    ray_cpus: float = Field(default=1.0, ge=0)
    """CPUs that a rollout actor takes of its node's Ray resources; nodes that offer fewer get none."""


class JudgeSettings(ConfigSection):
    """The judge of episodes that the environment itself can't score: any OpenAI-compatible server."""

    base_url: str = ""
    """Base URL; empty: no judge, the rewards stay unknown until `webgym judge`; `scripted`: the shipped judge of plain
    rules, for demonstrations and tests."""
    model: str = "gemini-3-flash-preview"
    """The model that gives the verdicts."""
    key_points_model: str = ""
    """The model that picks the screenshots that matter; empty: `model`."""
    blocking_model: str = ""
    """The model that tells whether the site blocked the browser; empty: `model`."""
    api_key_env_var: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key; the key itself never stands in settings."""
    structured_output: Literal["json_schema", "json_object", "none"] = "json_schema"
    """How the server is told to answer in JSON; `none`: by the prompt alone."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature; votes differ by it."""
    max_tokens: int = Field(default=1024, ge=16)
    """Longest answer, in tokens."""
    votes: int = Field(default=1, ge=1)
    """Independent verdicts on each fact; the majority counts, a tie is no success."""
    retries: int = Field(default=2, ge=0)
    """Repeats of a call whose answer can't be read; then the judgement failed."""
    timeout: float = Field(default=120.0, gt=0)
    """Deadline of one call, in seconds."""
    concurrency: int = Field(default=16, ge=1)
    """Calls at once."""
    max_images: int = Field(default=48, ge=1)
    """Screenshots shown for a verdict at most: the newest of those that matter."""
    max_blocking_images: int = Field(default=20, ge=1)
    """Screenshots shown for the question whether the site blocked the browser."""
    check_claims: bool = True
    """Also ask whether everything that the answer claims can be seen on the screenshots (WebGym's criterion B)."""
