"""A judge protocol as a user writes one: one question, whose answer is the verdict."""

from webgym_cli.rewards.judge.protocol import PROTOCOLS, JudgeProtocol
from webgym_cli.rewards.judge.question import JudgeQuestion

RULES = ("Question: does `answer` name a turn?", '"yes": it does. "no": it does not.')


async def judge_turns(session):
    turns = [call.name for step in session.trajectory.steps if step.action for call in step.action.calls or ()]
    verdict = await session.vote(JudgeQuestion("turned", RULES, {"answer": " ".join(turns)}), "the dial was turned")
    session.fields["facts"] = (verdict,)
    return verdict.passed


PROTOCOLS.register("dial_turned", JudgeProtocol(judge_turns, RULES))
