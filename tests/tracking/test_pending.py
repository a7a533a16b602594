"""What is still to be handed over."""

from tests.tracking.conftest import happened
from webgym_cli.store.metrics import append_event
from webgym_cli.tracking.execute import has_pending, mark_sent, read_pending


def test_what_was_sent_is_not_pending_again(run):
    assert not has_pending(run, "a")
    happened(run, 0)
    pending_events = read_pending(run, "a")
    assert [event["event"] for event in pending_events.events] == ["evaluation", "rollout", "prepare", "judge", "train"]
    mark_sent(run, "a", pending_events.end)
    assert not has_pending(run, "a")
    assert read_pending(run, "a").events == ()
    append_event(run, {"event": "judge", "judged": 1})
    assert has_pending(run, "a")
    later = read_pending(run, "a")
    assert [event["judged"] for event in later.events] == [1]
    assert later.iteration == 0


def test_each_destination_gets_everything(run):
    happened(run, 4)
    mark_sent(run, "a", read_pending(run, "a").end)
    assert len(read_pending(run, "b").events) == 5
    assert has_pending(run, "b")
    mark_sent(run, "b", read_pending(run, "b").end)
    assert not has_pending(run, "a") and not has_pending(run, "b")


def test_a_torn_line_waits_until_it_is_closed(run):
    append_event(run, {"event": "judge", "judged": 1})
    with run.metrics.open("ab") as file:
        file.write(b'{"event": "judge", "judg')
    pending_events = read_pending(run, "a")
    assert [event["judged"] for event in pending_events.events] == [1]
    mark_sent(run, "a", pending_events.end)
    append_event(run, {"event": "judge", "judged": 2})
    assert [event["judged"] for event in read_pending(run, "a").events] == [2]


def test_a_damaged_mark_or_a_shorter_file_means_that_nothing_was_sent(run):
    happened(run, 0)
    run.tracking.write_text("{")
    assert len(read_pending(run, "a").events) == 5
    mark_sent(run, "a", 10**6)
    assert len(read_pending(run, "a").events) == 5
