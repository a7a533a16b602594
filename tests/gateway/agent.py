"""An agent without a browser: fetches the start page through its proxy, asks the policy, and writes its answer.

Its first argument is how it behaves (`by-page`: the query of its start page tells), the others begin its questions.
"""

import base64
import io
import json
import os
import signal
import sys
import urllib.error
import urllib.request
from pathlib import Path


def ask(number):
    text = " ".join([f"{number}.", *sys.argv[2:], PAGE[:100]])
    names = {"misnamed": "gpt-4o"} | ({"helped": "helper-page"} if number == 1 else {})
    model = names.get(mode, os.environ["OPENAI_MODEL"])
    content = [{"type": "text", "text": text}, *([{"type": "image_url", "image_url": {"url": SHOT}}] if SHOT else [])]
    body = {"model": model, "messages": [{"role": "user", "content": content}]}
    return json.loads(post(f"{os.environ['OPENAI_BASE_URL']}/chat/completions", body))


def post(url, body):
    headers = {"Authorization": f"Bearer {os.environ['OPENAI_API_KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()


def fetch(url):
    state = json.loads(Path(os.environ["AGENT_STORAGE_STATE"]).read_text())
    host = url.split("/")[2]
    cookies = "; ".join(f"{one['name']}={one['value']}" for one in state["cookies"] if one["domain"] == host)
    proxies = {"http": os.environ["AGENT_PROXY"]}
    return urllib.request.build_opener(urllib.request.ProxyHandler(proxies)).open(
        urllib.request.Request(url, headers={"Cookie": cookies})
    )


def draw():
    from PIL import Image

    Image.new("RGB", (64, 64)).save(file := io.BytesIO(), "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


mode = sys.argv[1]
if mode == "by-page":
    mode = os.environ["AGENT_START_URL"].partition("?")[2]
SHOT = draw() if mode == "seeing" else ""
try:
    PAGE = fetch(os.environ["AGENT_START_URL"]).read().decode()
except urllib.error.HTTPError:
    if mode != "blind":
        raise
    PAGE = ""
if mode == "crash":
    sys.exit("I break")
if mode == "hang":
    ask(0)
    import time

    time.sleep(600)
if mode == "stray":  # where an agent must not get: a judge's key, a private address, and its own reward
    sys.stdout.write(f"key {os.environ.get('JUDGE_KEY')}\n")
    for tried in (
        lambda: fetch(f"{os.environ['OPENAI_BASE_URL']}/models"),
        lambda: post(os.environ["OPENAI_BASE_URL"].replace("/v1", "/sessions"), {}),
    ):
        try:
            tried()
        except urllib.error.HTTPError as error:
            sys.stdout.write(f"refused {error.code}\n")
if mode.startswith("cut"):  # an agent that can't go on with an answer that was cut off
    if ask(0)["choices"][0]["finish_reason"] != "length":
        sys.exit("not cut off")
    if mode == "cut-killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if mode == "cut-helper":
        mode = "helped"
        ask(1)
    sys.exit("cut off")
for number in range({"idle": 0, "long": 3, "helped": 3}.get(mode, 2)):
    try:
        content = ask(number)["choices"][0]["message"]["content"]
    except urllib.error.HTTPError:
        if mode != "deaf":
            raise
if mode == "fifo":
    os.mkfifo(os.environ["AGENT_ANSWER_FILE"])
elif mode != "idle":
    encoding = "utf-8-sig" if mode == "bom" else "utf-8"
    Path(os.environ["AGENT_ANSWER_FILE"]).write_text(content, encoding)
