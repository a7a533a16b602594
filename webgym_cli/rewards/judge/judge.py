"""Judge: runs a protocol on a trajectory. It fails closed.

Unreadable answers after all retries give `judge_failed`, which is neither a success nor a failure.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

from pydantic import ValidationError

from webgym_cli.agent.client.chat import ChatError, describe_error
from webgym_cli.config.judge import JudgeSettings
from webgym_cli.errors import StoreError
from webgym_cli.records.base import describe_invalid
from webgym_cli.records.failure import FailureKind
from webgym_cli.records.judgement import Judgement, Verdict
from webgym_cli.records.trajectory import Trajectory
from webgym_cli.rewards.judge.client import JudgeClient, JudgeContext, settings_for
from webgym_cli.rewards.judge.protocol import PROTOCOLS
from webgym_cli.rewards.judge.question import QuestionKind
from webgym_cli.rewards.judge.session import JudgeSession
from webgym_cli.store.buffer import append_judgement
from webgym_cli.store.run import RunDir, now
from webgym_cli.store.screenshots import ScreenshotStore
from webgym_cli.tasks.encryption import NOT_STORED, is_encrypted
from webgym_cli.util.json_values import digest_json
from webgym_cli.util.optional import map_known, when


class Judge:
    """A judge with its connections; call `close` at the end."""

    def __init__(self, settings: JudgeSettings, run: RunDir) -> None:
        """`run` holds the screenshots, and gets what cancelled judgements spent.

        Raises `SettingsError` without a usable judge, `UsageError` for an unknown protocol.
        """
        self._settings = fill_in_images(settings)
        self._run = run
        self._protocol = PROTOCOLS.find(settings.protocol)
        self._client = JudgeClient(settings)
        self._digest = compute_settings_digest(settings)

    async def judge(self, trajectory: Trajectory) -> Judgement:
        """Return the judgement of a trajectory without failure. Failures of the judge are returned, not raised.

        A missing screenshot gives `judge_failed` too. Cancellation propagates.
        """
        context = JudgeContext(images=ScreenshotStore(self._run.screenshots).get)
        session = JudgeSession(trajectory, self._settings, self._client, context)
        start = time.monotonic()
        try:
            session.fields.update(await self._run_protocol(session))
        except asyncio.CancelledError:  # by Ctrl-C: the requests that were answered are paid for
            if context.calls:
                session.fields.update(_make_failure("interrupted", unavailable=True))
                judgement = self._make_judgement(session, start)
                append_judgement(self._run, trajectory.split, trajectory.iteration, judgement)
            raise
        return self._make_judgement(session, start)

    def _make_judgement(self, session: JudgeSession, start: float) -> Judgement:
        models = name_models(self._settings)
        facts = {
            "trajectory": session.trajectory.id,
            "models": models,
            "settings_digest": self._digest,
            "calls": session.context.calls,
            "tokens": session.context.tokens,
            "tokens_by_model": when(len({*models.values()}) > 1, dict(session.context.tokens_by_model)),
            "seconds": round(time.monotonic() - start, 3),
            "judged_at": now(),
        }
        try:
            judgement = Judgement.model_validate({**facts, **session.fields})
        except (ValidationError, TypeError) as error:  # a user's protocol may return or store anything
            reason = describe_invalid(error)
            judgement = Judgement.model_validate({**facts, **_make_failure(f"the protocol's result: {reason}")})
        return _remove_texts(judgement) if is_encrypted(session.trajectory.task) else judgement

    async def _run_protocol(self, session: JudgeSession) -> dict[str, Any]:
        unavailable = False
        try:
            success = await self._protocol.run(session)
            if success is not None or session.fields.get("failure") is not None:
                return {"success": success}
            detail = "the protocol returned neither a verdict nor a failure"
        except (ChatError, StoreError) as error:
            unavailable = isinstance(error, ChatError) and error.unavailable
            detail = str(error)
        except Exception as error:  # noqa: BLE001 - a user's protocol may raise anything
            detail = f"{type(error).__name__}: {describe_error(error)}"
        return _make_failure(detail, unavailable=unavailable)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def _make_failure(detail: str, *, unavailable: bool = False) -> dict[str, Any]:
    return {"success": None, "failure": FailureKind.JUDGE_FAILED, "failure_detail": detail, "unavailable": unavailable}


def _remove_texts(judgement: Judgement) -> Judgement:
    """Return a judgement without the texts that may quote the judge: of an encrypted task, they may hold its answer."""
    without_reason = partial(Verdict.model_copy, update={"reason": ""})
    removed = {
        "blocked_reason": "",
        "failure_detail": when(judgement.failure, NOT_STORED),
        "claims": map_known(without_reason, judgement.claims),
        "facts": tuple(map(without_reason, judgement.facts)),
        "reference": map_known(without_reason, judgement.reference),
    }
    return judgement.model_copy(update=removed)


def name_models(settings: JudgeSettings) -> dict[str, str]:
    """Return the model of each job."""
    jobs = {"key_points": QuestionKind.KEY_POINT, "blocking": QuestionKind.BLOCKING, "verdict": QuestionKind.FACT}
    answered = settings.as_answered()  # a plan and its execution name the same models
    return {name: settings_for(answered, job).model for name, job in jobs.items()}


def fill_in_images(settings: JudgeSettings) -> JudgeSettings:
    """Return the settings with the protocol's own number of screenshots where they name none."""
    most = settings.max_images or PROTOCOLS.find(settings.protocol).max_images
    return settings.model_copy(update={"max_images": most})


def compute_settings_digest(settings: JudgeSettings) -> str:
    """Return the SHA-256 of all settings that affect judgements: models, votes, limits, answer format, prompts.

    Address, key, timeouts and retries are excluded.
    """
    settings = fill_in_images(settings)
    deciding = ("structured_output", "temperature", "votes", "max_images", "max_blocking_images")
    content = {
        "models": name_models(settings),
        "prompts": PROTOCOLS.find(settings.protocol).digest,
        "check_claims": settings.check_claims,
        "max_tokens": settings.max_new_tokens,
        **{name: getattr(settings, name) for name in deciding},
    }
    # judgements that are stored lack the keys of what came later
    later, usual = ("protocol", "top_p", "extra_body", "image_detail"), JudgeSettings()
    content |= {name: value for name in later if (value := getattr(settings, name)) != getattr(usual, name)}
    sampling = ("temperature", "max_new_tokens", "top_p", "structured_output", "extra_body")
    jobs = settings.as_answered().jobs
    of_jobs = {name: job.model_dump(include=set(sampling), exclude_unset=True) for name, job in jobs.items()}
    if any(of_jobs.values()):
        content["jobs"] = of_jobs
    return digest_json(content)
