"""The circuit breaker: what opens it, for how long, and what closes it."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from webgym_cli.agent.circuit_breaker import BreakerState, CircuitBreaker


@pytest.fixture
def breaker():
    return CircuitBreaker(limit=3, first_pause=5, longest_pause=12)


def fail(breaker, times=1):
    for _ in range(times):
        breaker.finish_request(breaker.start_request(), worked=False)


def test_so_many_failures_in_a_row_open_it(breaker):
    fail(breaker, 2)
    breaker.finish_request(breaker.start_request(), worked=True)
    fail(breaker, 2)
    assert (breaker.state, breaker.admits) == (BreakerState.CLOSED, True)
    fail(breaker)
    assert (breaker.state, breaker.admits, breaker.times_opened, breaker.pause) == (BreakerState.OPEN, False, 1, 5)


def test_what_we_gave_up_says_nothing(breaker):
    fail(breaker, 2)
    breaker.finish_request(breaker.start_request(), worked=None)
    fail(breaker)
    assert breaker.state is BreakerState.OPEN


def test_requests_from_before_it_opened_say_nothing(breaker):
    before = [breaker.start_request() for _ in range(9)]
    for term in before[:3]:
        breaker.finish_request(term, worked=False)
    for term in before[3:6]:
        breaker.finish_request(term, worked=False)
    assert (breaker.times_opened, breaker.pause) == (1, 5)
    breaker.finish_request(before[6], worked=True)
    assert breaker.state is BreakerState.OPEN
    breaker.record_probe(healthy=True)
    breaker.finish_request(before[7], worked=True)
    breaker.finish_request(before[8], worked=False)
    assert (breaker.state, breaker.admits) == (BreakerState.HALF_OPEN, True)


def test_half_open_it_admits_one_request_which_decides(breaker):
    fail(breaker, 3)
    breaker.record_probe(healthy=True)
    trial = breaker.start_request()
    assert not breaker.admits
    breaker.finish_request(trial, worked=True)
    assert (breaker.state, breaker.admits) == (BreakerState.CLOSED, True)
    fail(breaker, 2)
    assert breaker.state is BreakerState.CLOSED


def test_a_trial_that_we_gave_up_gives_its_place_to_another(breaker):
    fail(breaker, 3)
    breaker.record_probe(healthy=True)
    breaker.finish_request(breaker.start_request(), worked=None)
    assert (breaker.state, breaker.admits) == (BreakerState.HALF_OPEN, True)


def test_the_pause_doubles_up_to_the_limit_until_the_server_has_worked(breaker):
    fail(breaker, 3)
    pauses = [breaker.pause]
    breaker.record_probe(healthy=False)
    pauses.append(breaker.pause)
    breaker.record_probe(healthy=True)
    fail(breaker)
    pauses.append(breaker.pause)
    assert (pauses, breaker.times_opened) == ([5, 10, 12], 2)
    breaker.record_probe(healthy=True)
    breaker.finish_request(breaker.start_request(), worked=True)
    fail(breaker, 3)
    assert breaker.pause == 5


def test_the_first_pause_is_no_longer_than_the_longest():
    breaker = CircuitBreaker(limit=1, first_pause=60, longest_pause=12)
    fail(breaker)
    assert breaker.pause == 12


class Life(RuleBasedStateMachine):
    """Requests that overlap, and probes, beside a model that keeps the whole history of the present state."""

    LIMIT, PAUSE, LONGEST = 3, 2.0, 9.0

    @initialize()
    def begin(self):
        self.breaker = CircuitBreaker(self.LIMIT, self.PAUSE, self.LONGEST)
        self.flying = []
        """Requests under way: what `enter` gave, and in which state's life they began."""
        self.life = 0
        self.state = BreakerState.CLOSED
        self.results = []
        """How requests of this life ended."""
        self.pauses = []
        """The pauses since the server has worked."""

    def become(self, state):
        self.state, self.results, self.life = state, [], self.life + 1

    def shut(self):
        self.pauses.append(min(self.LONGEST, self.PAUSE * 2 ** len(self.pauses)))
        self.become(BreakerState.OPEN)

    @property
    def mine(self):
        return [life for _, life in self.flying if life == self.life]

    @precondition(lambda self: self.breaker.admits)
    @rule()
    def send(self):
        self.flying.append((self.breaker.start_request(), self.life))

    @precondition(lambda self: self.flying)
    @rule(data=st.data(), worked=st.sampled_from([True, False, None]))
    def end(self, data, worked):
        term, life = self.flying.pop(data.draw(st.integers(0, len(self.flying) - 1)))
        self.breaker.finish_request(term, worked=worked)
        if life != self.life or worked is None:
            return
        self.results.append(worked)
        if self.state is BreakerState.HALF_OPEN and worked:
            self.pauses = []
            self.become(BreakerState.CLOSED)
        elif self.state is BreakerState.HALF_OPEN or self.results[-self.LIMIT :] == [False] * self.LIMIT:
            self.shut()

    @precondition(lambda self: self.state is BreakerState.OPEN)
    @rule(healthy=st.booleans())
    def probe(self, healthy):
        self.breaker.record_probe(healthy=healthy)
        if healthy:
            self.become(BreakerState.HALF_OPEN)
        else:
            self.shut()

    @invariant()
    def it_is_as_the_history_says(self):
        assert self.breaker.state is self.state
        assert self.breaker.admits == (
            self.state is BreakerState.CLOSED or (self.state is BreakerState.HALF_OPEN and not self.mine)
        )
        assert self.state is not BreakerState.HALF_OPEN or len(self.mine) <= 1
        assert self.breaker.pause == (self.pauses[-1] if self.pauses else 0.0)


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
