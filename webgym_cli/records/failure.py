"""Why an episode ended: by itself (`Stop`) or because something around it broke (`FailureKind`)."""

from __future__ import annotations

from enum import StrEnum


class Stop(StrEnum):
    """How an episode that worked came to its end."""

    ANSWERED = "answered"
    """The policy gave its answer."""
    TERMINATED = "terminated"
    """The environment declared the episode over."""
    STEP_LIMIT = "step_limit"
    """The policy used all the steps it was given."""
    STUCK = "stuck"
    """The policy repeated one action, or gave replies that are none, as often as the settings allow."""


class FailureKind(StrEnum):
    """The closed list of infrastructure failures. None of them is ever a reward of 0."""

    BROWSER_CRASHED = "browser_crashed"
    """The browser process or the page died."""
    NAVIGATION_FAILED = "navigation_failed"
    """The start page could not be reached, or stayed blank."""
    START_PAGE_FAILED = "start_page_failed"
    """The start page is none for good: an error status, an endless redirect, a download or an address out of bounds."""
    AUTHENTICATION_REQUIRED = "authentication_required"
    """The start page asks for a user and a password (HTTP authentication), or refused ours
    (`browser.http_credentials`)."""
    SITE_BLOCKED = "site_blocked"
    """The site shut the browser out (captcha, access denied): its domain goes on the blocklist."""
    PAGE_TIMEOUT = "page_timeout"
    """A browser call passed its deadline."""
    POLICY_UNAVAILABLE = "policy_unavailable"
    """The policy server did not answer, or answered with a server error."""
    POLICY_REFUSED = "policy_refused"
    """The policy server rejected the request itself (for example a prompt over its context length)."""
    ENVIRONMENT_ERROR = "environment_error"
    """The environment's own code failed (its page threw, its reward can't be read)."""
    JUDGE_FAILED = "judge_failed"
    """The judge gave no readable verdict: neither a success nor a failure. `webgym judge` asks again."""
    EPISODE_TIMEOUT = "episode_timeout"
    """The whole episode passed its deadline."""
    CANCELLED = "cancelled"
    """The run was stopped while the episode ran."""

    @property
    def counts_as_attempt(self) -> bool:
        """Whether the episode used up one of its attempts: a cancelled one did not."""
        return self is not FailureKind.CANCELLED

    @property
    def may_recur(self) -> bool:
        """Whether the next episode may fail of the same cause: not where one site, the judge or we were it."""
        return self not in (FailureKind.CANCELLED, FailureKind.SITE_BLOCKED, FailureKind.JUDGE_FAILED)

    @property
    def retryable(self) -> bool:
        """Whether another attempt may fare better."""
        final = (FailureKind.START_PAGE_FAILED, FailureKind.AUTHENTICATION_REQUIRED)
        return self.may_recur and self not in final


def is_rolled_out(failure: FailureKind | None) -> bool:
    """Whether an episode with this failure, or none, came to its end: a judge that fails takes nothing of it back."""
    return failure in (None, FailureKind.JUDGE_FAILED)
