"""Asks a Service for one short completion after the other until its input ends. Tells how often
each answer came, what went wrong among them, and the longest wait.

``keep``: on one connection for as long as the server keeps it, as pools of clients do."""

import collections
import http.client
import json
import sys
import threading
import time

told = json.loads(sys.stdin.readline())
ended = threading.Event()


def wait_for_the_end() -> None:
    sys.stdin.read()
    ended.set()


connection = http.client.HTTPConnection(told["service"], 8000, timeout=120)


def ask() -> str:
    try:
        body = json.dumps(told["body"])
        headers = {"content-type": "application/json"}
        connection.request("POST", "/v1/completions", body, headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        if answer.status == 200:
            text = json.loads(text)["choices"][0]["text"]
        return f"{answer.status} {text}"
    except (OSError, http.client.HTTPException) as error:
        return f"{type(error).__name__} {error}"
    finally:
        if not told["keep"]:
            connection.close()


threading.Thread(target=wait_for_the_end, daemon=True).start()
answers: collections.Counter[str] = collections.Counter()
longest = 0.0
while not ended.is_set():
    started = time.monotonic()
    answers[ask()] += 1
    longest = max(longest, time.monotonic() - started)
    time.sleep(told["pause"])
print(json.dumps({"answers": answers, "longest": longest}))
