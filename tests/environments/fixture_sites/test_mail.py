import pytest

from webgym_cli.environments.fixture_sites.mail import mailbox


async def test_nothing_is_shown_before_the_login(visit):
    visitor = visit("mail-unread", 1)
    for path in ("/", "/folder/inbox", "/message/1", "/contacts", "/search?q=a"):
        assert (await visitor.get(path)).location == "/login"
    assert (await visitor.post("/compose", to="a@b.example", subject="x", body="y")).location == "/login"
    wrong = await visitor.post("/login", user=visitor.values["user"], password="wrong")
    assert (wrong.status, visitor.state.logged_in) == (422, False)
    assert "User name or password is wrong." in wrong.text
    assert 'type="password" autocomplete' in wrong.body  # the password is not sent back
    await visitor.log_in()
    assert (await visitor.get("/")).location == "/folder/inbox"
    await visitor.post("/logout")
    assert (await visitor.get("/folder/inbox")).location == "/login"


async def test_the_unread_count_goes_down_as_messages_are_read(visit):
    visitor = visit("mail-unread", 1)
    await visitor.log_in()
    unread = sorted(mailbox(1).unread)
    assert f"Inbox ({len(unread)} unread)" in (await visitor.get("/folder/inbox")).text
    assert f"Inbox ({len(unread) - 1} unread)" in (await visitor.get(f"/message/{unread[0]}")).text
    await visitor.post("/bulk", do="archive", id=str(unread[1]), back="/folder/inbox")
    await visitor.post("/bulk", do="unread", id=str(unread[0]), back="/folder/inbox")
    assert f"Inbox ({len(unread) - 1} unread)" in (await visitor.get("/folder/archive")).text
    # The question was about the inbox as it was.
    assert visitor.score(f"{len(unread)} messages") == 1.0
    assert visitor.score(f"{len(unread) - 1}") == 0.0


async def test_folders_split_into_pages_without_loss_and_subjects_tell_messages_apart(visit):
    visitor = visit("mail-unread", 2)
    await visitor.log_in()
    shown = [(await visitor.get(f"/folder/inbox?page={number}")).text for number in (1, 2)]
    assert {sum(message.subject in text for text in shown) for message in mailbox(2).messages} == {1}
    for seed in range(60):
        messages = mailbox(seed).messages
        assert len({message.subject for message in messages}) == len(messages)
        assert [message.date for message in messages] == sorted((one.date for one in messages), reverse=True)


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ({"to": "Ada Abbot"}, "Please give one address"),
        ({"to": "a@b.example, c@d.example"}, "Please give one address"),
        ({"subject": ""}, "Please give a subject."),
        ({"body": "  "}, "The message is empty."),
        ({"body": "x" * 20_001}, "20000 characters at most"),
    ],
)
async def test_a_bad_message_is_not_sent_and_stays_in_the_form(visit, form, message):
    visitor = visit("mail-write", 1)
    await visitor.log_in()
    page = await visitor.post("/compose", **{"to": "a@b.example", "subject": "Keep <this>", "body": "y"} | form)
    assert (page.status, visitor.state.sent) == (422, [])
    assert message in page.text
    assert "subject" in form or 'value="Keep &lt;this&gt;"' in page.body


async def test_writing_to_a_contact(visit):
    right = visit("mail-write", 5).values
    message = {"to": right["email"], "subject": right["subject"], "body": right["text"]}
    for changes, score in (
        ({}, 1.0),
        ({"to": right["email"].upper()}, 1.0),
        ({"to": "x" + right["email"]}, 0.0),
        ({"subject": right["subject"] + " urgent"}, 0.0),
        ({"body": "Hello. " + right["text"]}, 0.0),
    ):
        visitor = visit("mail-write", 5)
        await visitor.log_in()
        assert (await visitor.post("/compose", **message | changes)).location == "/sent/0"
        assert visitor.score("done") == score
        assert "Your message was sent." in (await visitor.get("/sent/0")).text
    await visitor.post("/compose", **message)
    assert visitor.score("done") == 0.0  # two messages were sent
    assert (await visitor.get("/sent/7")).status == 404


async def test_archiving_a_sender(visit):
    visitor = visit("mail-archive", 3)
    await visitor.log_in()
    box = mailbox(3)
    issues = [str(one.id) for one in box.messages if one.sender == visitor.values["sender"]]
    assert len(issues) == 3
    moved = await visitor.post("/bulk", do="archive", id=issues[:2], back="/search?q=news")
    assert moved.location == "/search?q=news"
    assert visitor.score("done") == 0.0
    await visitor.post("/bulk", do="delete", id=issues[2])
    assert visitor.score("done") == 0.0
    await visitor.post(f"/message/{issues[2]}", do="archive")
    assert visitor.score("done") == 1.0
    other = next(str(one.id) for one in box.messages if str(one.id) not in issues)
    await visitor.post("/bulk", do="archive", id=other)
    assert visitor.live.score("done") == (0.0, "not met: No other message was moved.")
    await visitor.post("/bulk", do="inbox", id=other)
    assert visitor.score("done") == 1.0


async def test_the_way_back_never_leaves_the_site(visit):
    visitor = visit("mail-archive", 3)
    await visitor.log_in()
    for back in ("//other.test/", "http://other.test/", ""):
        assert (await visitor.post("/bulk", do="read", id="1", back=back)).location == "/folder/inbox"
    assert (await visitor.post("/bulk", do="nonsense", id=["1", "x", "999"], back="/")).location == "/"
    assert visitor.state.moved == {}


async def test_a_reply_must_answer_the_right_message(visit):
    def question(visitor):
        topic = visitor.values["topic"]
        return next(one for one in mailbox(2).of("question") if one.facts == (topic,))

    async def replied(body: str, *, as_reply: bool = True, to: str = "") -> float:
        visitor = visit("mail-reply", 2)
        await visitor.log_in()
        result = question(visitor)
        reply = str(result.id) if as_reply else ""
        await visitor.post("/compose", reply=reply, to=to or result.email, subject="Re", body=body)
        return visitor.score("done")

    right = visit("mail-reply", 2)
    room, time = right.values["room"], right.values["time"]
    await right.log_in()
    form = (await right.get(f"/compose?reply={question(right).id}")).body
    assert f'name="to" value="{question(right).email}"' in form
    assert f'value="Re: {question(right).subject}"' in form
    assert await replied(f"In {room} at {time}") == 1.0
    assert await replied(f"{time} o'clock, {room.lower()}!") == 1.0
    assert await replied(f"In {room}") == 0.0
    assert await replied(f"In {room}1 at {time}") == 0.0
    assert await replied(f"In {room} at {time}", as_reply=False) == 0.0
    assert await replied(f"In {room} at {time}", to="someone@post.example") == 0.0


async def test_forwarding_attaches_the_message_and_deleting_moves_it(visit):
    visitor = visit("mail-forward", 4)
    await visitor.log_in()
    values = visitor.values
    invoice = next(one for one in mailbox(4).of("invoice") if one.sender == values["firm"])
    assert "This message is attached:" in (await visitor.get(f"/compose?forward={invoice.id}")).text
    form = {"to": values["email"], "subject": "Fwd", "body": f"Due on {values['due']}", "forward": str(invoice.id)}
    await visitor.post("/compose", **form)
    assert visitor.score("done") == 0.0
    assert f"Attached: {invoice.subject}" in (await visitor.get("/sent/0")).text
    await visitor.post(f"/message/{invoice.id}", do="delete")
    assert visitor.score("done") == 1.0
    assert invoice.subject in (await visitor.get("/folder/trash")).text
    assert (await visitor.post(f"/message/{invoice.id}", do="burn")).status == 404


async def test_the_sum_of_the_invoices(visit):
    visitor = visit("mail-invoices", 6)
    await visitor.log_in()
    values = visitor.values
    firms = [values[f"firm{at}"] for at in range(3)]
    amounts = ", ".join(f"{firm}: {values[f'amount{at}']}" for at, firm in enumerate(firms))
    for one in mailbox(6).of("invoice"):
        if one.sender in firms:
            await visitor.post(f"/message/{one.id}", do="archive")
    form = {"to": values["email"], "subject": "Invoices"}
    await visitor.post("/compose", **form, body=f"{amounts}. Sum: {values['total']}")
    assert visitor.score("done") == 1.0
    visitor.state.sent.clear()
    await visitor.post("/compose", **form, body=amounts)
    score, reason = visitor.live.score("done")
    assert (score, reason) == (0.0, f"not met: It names the sum {values['total']}.")


async def test_messages_are_text_whatever_they_look_like(visit):
    visitor = visit("mail-unread", 0)
    await visitor.log_in()
    evil = next(one for one in mailbox(0).messages if "<script>" in one.body)
    page = await visitor.get(f"/message/{evil.id}")
    assert "&lt;script&gt;" in page.body
    assert "<script>" not in page.body and "<b>Sale" not in page.body
    assert 'href="http://' not in page.body
    assert "<b>Sale" not in (await visitor.get("/search?q=sale")).body
