"""Which addresses take a connection: tried all at once, since silence takes its time."""

import json
import socket
import sys
from concurrent.futures import ThreadPoolExecutor

told = json.loads(sys.stdin.readline())


def outcome(target: tuple[str, int]) -> str:
    try:
        with socket.create_connection((target[0], target[1]), timeout=told["seconds"]):
            return "open"
    except TimeoutError:
        return "silence"
    except OSError:
        return "refused"


with ThreadPoolExecutor(64) as pool:
    print(json.dumps(list(pool.map(outcome, told["targets"]))))
