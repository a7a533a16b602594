"""Why an episode ended: normally (`Stop`) or because of an infrastructure failure (`FailureKind`)."""

from __future__ import annotations

from enum import StrEnum


class Stop(StrEnum):
    """Normal end of an episode."""

    ANSWERED = "answered"
    """The policy answered."""
    TERMINATED = "terminated"
    """The environment ended the episode."""
    STEP_LIMIT = "step_limit"
    """The policy used all allowed steps."""
    STUCK = "stuck"
    """The policy repeated one action, or sent unparseable responses, as often as the settings allow."""


class FailureKind(StrEnum):
    """Infrastructure failures; none of them is ever a reward of 0."""

    BROWSER_CRASHED = "browser_crashed"
    """The browser process or the page died."""
    NAVIGATION_FAILED = "navigation_failed"
    """The start page could not be reached, or stayed blank."""
    START_PAGE_FAILED = "start_page_failed"
    """The start page is permanently unusable: an error status, an endless redirect, a download, a forbidden address."""
    AUTHENTICATION_REQUIRED = "authentication_required"
    """The start page requires HTTP authentication, or rejected the credentials (`browser.http_credentials`)."""
    SITE_BLOCKED = "site_blocked"
    """The site blocked the browser (captcha, access denied); its domain is added to the blocklist."""
    PAGE_TIMEOUT = "page_timeout"
    """A browser call exceeded its timeout."""
    POLICY_UNAVAILABLE = "policy_unavailable"
    """The policy server did not answer, or answered with a server error."""
    POLICY_REFUSED = "policy_refused"
    """The policy server rejected the request itself (for example a prompt over its context length)."""
    PAGE_ERROR = "page_error"
    """The page can't be observed, because its scripts replace what a browser offers. Only this page is concerned."""
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
        """Whether the episode used one of its attempts; a cancelled one did not."""
        return self is not FailureKind.CANCELLED

    @property
    def may_recur(self) -> bool:
        """Whether other episodes may fail for the same reason: not if one site, the judge or a stop caused it."""
        return self not in (
            FailureKind.CANCELLED,
            FailureKind.SITE_BLOCKED,
            FailureKind.JUDGE_FAILED,
            FailureKind.PAGE_ERROR,
        )

    @property
    def retryable(self) -> bool:
        """Whether another attempt may succeed."""
        final = (FailureKind.START_PAGE_FAILED, FailureKind.AUTHENTICATION_REQUIRED)
        return self.may_recur and self not in final


def is_rolled_out(failure: FailureKind | None) -> bool:
    """Whether an episode with this failure (or None) ran to its end; a failed judge does not change that."""
    return failure in (None, FailureKind.JUDGE_FAILED)
