"""What `make cluster-demo` shows: operator, replica, stream, sleep, and the request that wakes it.

    cluster_demo.py OPERATOR-IMAGE RUNTIME-IMAGE MODEL-IMAGE

Talks to whatever cluster kubectl and helm are set to. May be repeated.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

from cluster_kit import CLIENT, RESIDENT, client_pod, install_flags

SPACE = "torpor-demo"
NAME = "demo"
PROMPT = "The hummingbird sleeps at night because"

# Runs in a pod of the cluster, so that the request goes through the Service.
REQUEST = """
import http.client, json, sys, time
begin = time.monotonic()
connection = http.client.HTTPConnection(sys.argv[1], 8000, timeout=600)
connection.request("POST", "/v1/completions", sys.argv[2], {"content-type": "application/json"})
answer = connection.getresponse()
if answer.status != 200:
    sys.exit(f"status {answer.status}: {answer.read().decode()}")
first = None
for line in answer:
    line = line.decode().strip()
    if line.startswith("data: {"):
        for choice in json.loads(line[6:])["choices"]:
            if choice["text"] and first is None:
                first = time.monotonic() - begin
            print(choice["text"], end="", flush=True)
print(f"\\n  (first token after {first:.1f} s)")
"""


def run(*command: str, text: str = "") -> str:
    """Standard output; a failure ends the demo with what the program said."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(command[:4])} failed: {done.stderr.strip()}")
    return done.stdout


def kubectl(*arguments: str, text: str = "") -> str:
    return run("kubectl", "--namespace", SPACE, *arguments, text=text)


def say(text: str) -> None:
    print(f"== {text}", flush=True)


def deployment(model: str) -> str:
    # One thread each: three pods without a limit would each take all cores of the node.
    one_thread = [{"name": "OMP_NUM_THREADS", "value": "1"}]
    worker = {"accelerator": "none", "ranksPerPod": 1, "kvCacheMemory": "192Mi", "env": one_thread}
    spec = {
        "replicas": 1,
        "model": {"source": f"oci://{model}", "dtype": "float32", "servedNames": [NAME]},
        "parallelism": {"tensor": 3},
        "worker": worker,
        "engine": {"maxNumSeqs": 8, "maxNumBatchedTokens": 256},
    }
    kind = {"apiVersion": "torpor.dev/v1alpha1", "kind": "InferenceDeployment"}
    return json.dumps({**kind, "metadata": {"name": NAME}, "spec": spec})


def request() -> None:
    body = {"model": NAME, "prompt": PROMPT, "max_tokens": 40, "temperature": 0, "stream": True}
    command = ["kubectl", "--namespace", SPACE, "exec", CLIENT, "--", "python", "-c", REQUEST]
    print(f"{PROMPT} ...", flush=True)
    subprocess.run([*command, NAME, json.dumps(body)], check=True)


def memory() -> str:
    pods = kubectl(
        "get",
        "pods",
        "-l",
        f"torpor.dev/deployment={NAME},torpor.dev/role=worker",
        "-o",
        "jsonpath={.items[*].metadata.name}",
    ).split()
    used = {pod: int(kubectl("exec", pod, "--", "python", "-c", RESIDENT)) for pod in pods}
    return ", ".join(f"{pod} {size / 2**20:.0f} MiB" for pod, size in used.items())


def wait_reason(reason: str) -> float:
    begin = time.monotonic()
    path = "{.status.conditions[?(@.type=='Ready')].reason}"
    while kubectl("get", "infd", NAME, "-o", f"jsonpath={path}") != reason:
        if time.monotonic() - begin > 300:
            sys.exit(
                f"error: {NAME} is not {reason}:\n{kubectl('get', 'infd', NAME, '-o', 'yaml')}"
            )
        time.sleep(0.5)
    return time.monotonic() - begin


def main(operator: str, runtime: str, model: str) -> None:
    say("install the operator")
    run("helm", *install_flags(operator, runtime, 300))
    subprocess.run(["kubectl", "create", "namespace", SPACE], capture_output=True, check=False)
    kubectl("apply", "-f", "-", text=json.dumps(client_pod(runtime)))
    say("kubectl apply: tensor parallel over three worker pods")
    begin = time.monotonic()
    kubectl("apply", "-f", "-", text=deployment(model))
    kubectl("scale", "infd", NAME, "--replicas=1")
    kubectl("wait", "infd", NAME, "--for=condition=Ready", "--timeout=900s")
    print(f"Ready after {time.monotonic() - begin:.1f} s")
    print(kubectl("get", "infd,pods", "-o", "wide"))
    kubectl("wait", "pod", CLIENT, "--for=condition=Ready", "--timeout=600s")
    say("a completion through the Service")
    request()
    say("kubectl scale --replicas=0")
    print(f"before: {memory()}")
    kubectl("scale", "infd", NAME, "--replicas=0")
    print(f"asleep after {wait_reason('Asleep'):.1f} s: {memory()}")
    say("a request wakes it")
    request()
    print(kubectl("get", "infd"))


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit((__doc__ or "").strip())
    main(*sys.argv[1:])
