"""Why an episode ended: normally (`Stop`) or because of an infrastructure failure (`FailureKind`)."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Stop(StrEnum):
    """Normal end of an episode."""

    ANSWERED = "answered"
    """The policy answered."""
    TERMINATED = "terminated"
    """The environment ended the episode."""
    STEP_LIMIT = "step_limit"
    """The policy used all allowed steps."""
    STUCK = "stuck"
    """The policy repeated one action, or sent unparseable responses, as often as the settings or the agent allow."""

    @classmethod
    def of_answer(cls, answer: str | None) -> Stop:
        """Return the end of an episode that another system ran, with an answer or without one."""
        return cls.TERMINATED if answer is None else cls.ANSWERED


class FailureKind(StrEnum):
    """Infrastructure failures; none of them is ever a reward of 0."""

    BROWSER_CRASHED = "browser_crashed"
    """The browser process or the page died."""
    NAVIGATION_FAILED = "navigation_failed"
    """The start page could not be reached, or stayed blank."""
    NETWORK_UNAVAILABLE = "network_unavailable"
    """The browser could not reach the page, nor any other site: this machine's network or proxy is down."""
    START_PAGE_FAILED = "start_page_failed"
    """The start page is permanently unusable: an error status, an endless redirect, a download."""
    ADDRESS_REFUSED = "address_refused"
    """The settings forbid the start page's address (`browser.private_hosts`)."""
    AUTHENTICATION_REQUIRED = "authentication_required"
    """The start page requires HTTP authentication, or rejected the credentials (`browser.http_credentials`)."""
    SITE_BLOCKED = "site_blocked"
    """The site blocked the browser (captcha, access denied); its domain is added to the blocklist."""
    PAGE_TIMEOUT = "page_timeout"
    """A browser call exceeded its timeout."""
    POLICY_UNAVAILABLE = "policy_unavailable"
    """The policy server did not answer, answered with a server error, or refuses every request (key, model, path)."""
    POLICY_REFUSED = "policy_refused"
    """The policy server rejected the request itself (for example a prompt over its context length)."""
    PAGE_ERROR = "page_error"
    """The page can't be observed, because its scripts replace what a browser offers. Only this page is concerned."""
    ENVIRONMENT_UNAVAILABLE = "environment_unavailable"
    """The environment did not start: its reset, a login, a sandbox or a server failed; a WebArena site is down; or the
    judge of its own reward gave no readable verdict."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment's own code failed (its page did not start, its reward can't be read)."""
    INTERNAL_ERROR = "internal_error"
    """An unexpected exception of webgym or of a plug-in; the detail has its place."""
    JUDGE_FAILED = "judge_failed"
    """The judge gave no readable verdict: neither a success nor a failure. `webgym judge` repeats it."""
    EPISODE_TIMEOUT = "episode_timeout"
    """The episode exceeded its timeout."""
    CANCELLED = "cancelled"
    """The run was stopped while the episode ran."""

    @property
    def counts_as_attempt(self) -> bool:
        """Whether the episode used one of its attempts; not if its infrastructure or the settings are at fault."""
        return _RULES[self].counts_as_attempt

    @property
    def may_recur(self) -> bool:
        """Whether other episodes may fail for the same reason: not if one site, the judge or a stop caused it."""
        return _RULES[self].may_recur

    @property
    def retryable(self) -> bool:
        """Whether another attempt by the same command may succeed."""
        return _RULES[self].retryable


class _Rule(NamedTuple):
    """What follows from a failure; the fields are those properties of `FailureKind`."""

    counts_as_attempt: bool
    retryable: bool
    may_recur: bool = True


# An outage, or a wrong setting that is corrected later, must not use up the attempts of the episodes that it met: they
# would be given up for good, and the others would be a biased sample. A command still ends its retries
# (`rollout.max_attempts`); the episode stays pending for the next one.
_RULES = {
    FailureKind.BROWSER_CRASHED: _Rule(counts_as_attempt=False, retryable=True),
    FailureKind.NAVIGATION_FAILED: _Rule(counts_as_attempt=True, retryable=True),
    FailureKind.NETWORK_UNAVAILABLE: _Rule(counts_as_attempt=False, retryable=True),
    FailureKind.START_PAGE_FAILED: _Rule(counts_as_attempt=True, retryable=False),
    FailureKind.ADDRESS_REFUSED: _Rule(counts_as_attempt=False, retryable=False),
    FailureKind.AUTHENTICATION_REQUIRED: _Rule(counts_as_attempt=False, retryable=False),
    FailureKind.SITE_BLOCKED: _Rule(counts_as_attempt=True, retryable=False, may_recur=False),
    FailureKind.PAGE_TIMEOUT: _Rule(counts_as_attempt=True, retryable=True),
    FailureKind.POLICY_UNAVAILABLE: _Rule(counts_as_attempt=False, retryable=True),
    FailureKind.POLICY_REFUSED: _Rule(counts_as_attempt=True, retryable=True),
    FailureKind.ENVIRONMENT_UNAVAILABLE: _Rule(counts_as_attempt=False, retryable=True),
    FailureKind.ENVIRONMENT_ERROR: _Rule(counts_as_attempt=True, retryable=True),
    FailureKind.PAGE_ERROR: _Rule(counts_as_attempt=True, retryable=False, may_recur=False),
    FailureKind.INTERNAL_ERROR: _Rule(counts_as_attempt=False, retryable=True),
    FailureKind.JUDGE_FAILED: _Rule(counts_as_attempt=False, retryable=False, may_recur=False),
    FailureKind.EPISODE_TIMEOUT: _Rule(counts_as_attempt=True, retryable=True),
    FailureKind.CANCELLED: _Rule(counts_as_attempt=False, retryable=False, may_recur=False),
}


def is_rolled_out(failure: FailureKind | None) -> bool:
    """Whether an episode with this failure (or None) ran to its end; a failed judge does not change that."""
    return failure in (None, FailureKind.JUDGE_FAILED)
