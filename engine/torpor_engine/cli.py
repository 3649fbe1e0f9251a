"""The command line. Wiring only: flags in, one sentence and an exit code out."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from torpor_engine.configure import Flags, resolve
from torpor_engine.pod import run_engine_pod
from torpor_engine.serve import ServeOptions, serve
from torpor_protocol.errors import TorporError
from torpor_protocol.logs import start_logging

app = typer.Typer(
    name="torpor",
    help="Large language models with replicas that sleep.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.callback()
def _torpor() -> None:
    """Large language models with replicas that sleep."""


@app.command("serve")
def serve_command(
    target: Annotated[
        str, typer.Argument(metavar="FILE|MODEL", help="A manifest (.yaml) or a model folder.")
    ],
    host: Annotated[str, typer.Option(help="Address of the client port.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Client port; 0 = any.")] = 8000,
    admin_port: Annotated[
        int, typer.Option(min=0, max=65535, help="Admin port, on loopback; 0 = any.")
    ] = 8001,
    tensor: Annotated[int | None, typer.Option(min=1, help="Ranks per layer.")] = None,
    pipeline: Annotated[int | None, typer.Option(min=1, help="Stages of layers.")] = None,
    dtype: Annotated[str | None, typer.Option(help="auto, float32, bfloat16 or float16.")] = None,
    max_model_len: Annotated[int | None, typer.Option(help="Longest context, in tokens.")] = None,
    kv_cache_memory: Annotated[
        str | None, typer.Option(help="KV cache of each rank, e.g. 512Mi or 2Gi.")
    ] = None,
    max_num_seqs: Annotated[
        int | None, typer.Option(min=1, help="Requests that run together.")
    ] = None,
    max_num_batched_tokens: Annotated[
        int | None, typer.Option(min=1, help="Tokens of one step.")
    ] = None,
    served_model_name: Annotated[
        list[str] | None, typer.Option(help="Name clients use; may be repeated.")
    ] = None,
    executor: Annotated[
        str | None, typer.Option(help="uni, mp or a path such as package.module:Class.")
    ] = None,
    runner: Annotated[str | None, typer.Option(help="v2 or reference.")] = None,
    platform: Annotated[str | None, typer.Option(help="cpu or cuda.")] = None,
    worker_transport: Annotated[str | None, typer.Option(help="ipc or tcp (with CURVE).")] = None,
) -> None:
    """Run one replica on this machine."""
    flags = Flags(
        tensor=tensor,
        pipeline=pipeline,
        dtype=dtype,
        max_model_len=max_model_len,
        kv_cache_memory=kv_cache_memory,
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        served_model_names=tuple(served_model_name or ()),
        executor=executor,
        runner=runner,
        platform=platform,
        worker_transport=worker_transport,
    )
    options = ServeOptions(host=host, port=port, admin_port=admin_port)
    raise typer.Exit(serve(resolve(target, flags), options))


@app.command("engine")
def engine_command() -> None:
    """Run the engine of one replica in a pod, as the operator's environment says."""
    raise typer.Exit(run_engine_pod(os.environ))


def main() -> None:
    """Entry point of ``torpor``: errors become two sentences and the exit code of their class."""
    try:
        start_logging()
        app()
    except TorporError as error:
        print(f"torpor: {error.cause}\n        {error.fix}".rstrip(), file=sys.stderr)
        sys.exit(error.exit_code)
