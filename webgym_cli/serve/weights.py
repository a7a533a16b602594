"""Validation and digests of model folders."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path

from webgym_cli.config.model_families import HUB_ADDRESS, find_model_folder
from webgym_cli.errors import SettingsError
from webgym_cli.store.weights import read_header
from webgym_cli.util.files import digest_content
from webgym_cli.util.proxies import describe_proxy

WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
# Prefix of the digest of a hub model.
HUB = "hub:"
_NAME = "name a folder with config.json and weights, or webgym init-model tiny DIR makes a small one"
# Number of files read concurrently.
READERS = 4
# Timeout of a hub request, in seconds.
HUB_TIMEOUT = 5.0


def check_model(model: str) -> str:
    """Return a model's folder as an absolute path; a hub id is returned unchecked.

    Raises `SettingsError` for a folder that vLLM can't load.
    """
    folder = Path(model)
    if not folder.is_dir():
        if folder.exists() or looks_local(model):
            raise SettingsError(f"{model}: there is no such model folder", hint=_NAME)
        return model
    has_config = (folder / "config.json").is_file()
    if not has_config or not weight_files(folder):
        lacking = f"it has no weights ({', '.join(WEIGHTS)})" if has_config else "config.json is missing"
        # a run's folder, or its checkpoints', holds models
        inner = next((str(file.parent) for file in sorted(folder.glob("*/config.json"))), "")
        raise SettingsError(f"{model}: not a model folder: {lacking}", hint=f"the model {inner}" if inner else _NAME)
    return str(folder.absolute())


def require_model(model: str, *, served: bool) -> None:
    """Raise `SettingsError` for an invalid model name, with checks that take only seconds.

    `served`: the model is needed at once, so an uncached hub id must exist on the reachable hub.
    """
    if Path(model).is_dir():
        if served:
            check_model(model)
    elif looks_local(model):
        raise _no_model(model, "")
    elif find_model_folder(model) is None:
        if not served:
            if _nearest(model):
                raise _no_model(model, "")
        elif not (known := _is_on_hub(model)):
            why = (
                f"the hub can't be reached{describe_proxy(HUB_ADDRESS)}"
                if known is None
                else "no such model is on the hub"
            )
            raise _no_model(model, f", and {why}")


def _is_on_hub(model: str) -> bool | None:
    """Whether a model exists on the hub; None if the hub can't be reached."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().model_info(model, timeout=HUB_TIMEOUT)
    except GatedRepoError:
        return True
    except (RepositoryNotFoundError, HFValidationError):
        return False
    except Exception:  # noqa: BLE001 - the client raises its HTTP library's errors, which vary by version
        return None
    return True


def _no_model(model: str, more: str) -> SettingsError:
    near = _nearest(model)
    hint = f"-s policy_config.base_model={near}" if near else _NAME
    return SettingsError(f"policy_config.base_model: no folder {model}{more}", hint=hint)


def _nearest(model: str) -> str:
    """Return the local model folder with the most similar name; empty if there is none."""
    models = (file.parent for file in Path(model).parent.glob("*/tokenizer*.json"))
    return next(iter(difflib.get_close_matches(model, {str(path) for path in models}, n=1)), "")


def looks_local(model: str) -> bool:
    """Whether a name can only be a path: a hub id is `name` or `owner/name`."""
    return model.startswith(("/", "./", "../", "~")) or model.count("/") > 1


def weight_files(folder: Path) -> list[Path]:
    """Return a folder's weight files, of the first format in `WEIGHTS` that it contains."""
    by_format = (sorted(filter(Path.is_file, folder.glob(pattern))) for pattern in WEIGHTS)
    return next(filter(None, by_format), [])


def digest(model: str) -> str:
    """Return the SHA-256 of a folder's weights; for a hub id, `hub:` and the id. Reads all files: use a thread."""
    folder = Path(model)
    if not folder.is_dir():
        return f"{HUB}{model}"
    files = weight_files(folder)
    with ThreadPoolExecutor(READERS) as readers:
        parts = [
            f"{file.name} {digest_of_file}"
            for file, digest_of_file in zip(files, readers.map(digest_content, files), strict=True)
        ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Digests:
    """Cache of model digests, shared by several servers. Use within one event loop."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], str] = {}
        self._lock = asyncio.Lock()

    async def of(self, model: str) -> str:
        """Return the `digest` of a model's current files."""
        key = await asyncio.to_thread(_stamp, model)
        async with self._lock:
            if key not in self._known:
                self._known[key] = await asyncio.to_thread(digest, model)
            return self._known[key]


def tied_embeddings(model: str) -> bool:
    """Whether a model folder ties input embeddings and output layer; true if unknown."""
    folder = Path(model)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    values = (config.get("tie_word_embeddings"), config.get("text_config", {}).get("tie_word_embeddings"))
    names = chain.from_iterable(map(read_header, folder.glob("*.safetensors")))
    return True in values or not any("lm_head" in name for name in names)


def _stamp(model: str) -> tuple[str, ...]:
    """Return a cache key of a model that changes whenever its weights are rewritten."""
    stats = ((file.name, file.stat()) for file in weight_files(Path(model)))
    return (model, *(f"{name} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats))
