import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from tests.records.builders import png, shot, step
from webgym_cli.agent.client.chat_request import EncodedImages, build_request_body
from webgym_cli.agent.prompt import Prompt, render
from webgym_cli.records.sample import Message
from webgym_cli.records.trajectory import Observation, PromptSpec


class Loader:
    """Gives the images 0 to 9 and counts how often each was asked for."""

    def __init__(self):
        self.requests = []
        self.images = {shot(number).sha256: png(number) for number in range(10)}

    def __call__(self, sha256):
        self.requests.append(sha256)
        return self.images[sha256]


def decoded(part):
    url = json.loads(part)["image_url"]["url"]
    return base64.b64decode(url.removeprefix("data:image/png;base64,"), validate=True)


def test_an_image_is_read_once_for_all_prompts_that_show_it():
    loader, past = Loader(), []
    images = EncodedImages(loader)
    for number in range(10):
        current = Observation(url="http://a/", screenshot=shot(number))
        body = json.loads(build_request_body(render(PromptSpec(), "Do.", "", past, current), images, {}))
        shown = [
            part["image_url"]["url"]
            for message in body["messages"][1::2]
            for part in message["content"]
            if part["type"] == "image_url"
        ]
        assert len(shown) == min(number, 4) + 1
        past.append(step(number))
    assert loader.requests == [shot(number).sha256 for number in range(10)]


def test_what_was_not_used_for_longest_makes_room_and_an_image_beyond_the_limit_is_not_kept():
    loader = Loader()
    one = len(EncodedImages(loader).part(shot(0).sha256))
    for limit, asked_for, loaded in (
        (2 * one + one // 2, (0, 1, 0, 2, 0, 1), [0, 1, 2, 1]),  # 2 drives out 1, since 0 was used after it
        (10, (1, 1), [1, 1]),
    ):
        loader.requests.clear()
        images = EncodedImages(loader, limit=limit)
        for number in asked_for:
            assert decoded(images.part(shot(number).sha256)) == png(number)
        assert loader.requests == [shot(number).sha256 for number in loaded]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"])))
def test_the_body_is_json_whatever_the_texts_are(system, reply):
    texts = (Message(role="system", content=system), Message(role="assistant", content=reply))
    prompt = Prompt(messages=texts, images=("x",) * (system + reply).count("<image>"))
    body = json.loads(build_request_body(prompt, EncodedImages(lambda _: b"png"), {"model": "m", "top_p": 0.5}))
    assert (body["model"], body["top_p"]) == ("m", 0.5)
    whole = ["".join(part.get("text", "<image>") for part in content) if isinstance(content, list) else content
             for content in (message["content"] for message in body["messages"])]  # fmt: skip
    assert whole == [system, reply]
