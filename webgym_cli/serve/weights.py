"""A folder of weights: is it one, and is it the same as another."""

from __future__ import annotations

import asyncio
import difflib
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from webgym_cli.config.model_families import find_model_folder
from webgym_cli.errors import SettingsError
from webgym_cli.store.weights import read_header

WEIGHTS = ("*.safetensors", "*.bin", "*.pt")
HUB = "hub:"
# Files that are read at once.
READERS = 4
# Seconds.
HUB_TIMEOUT = 5.0


def check_model(model: str) -> str:
    """Return a model's folder as an absolute path; a hub id is taken on trust.

    Raises `SettingsError` for a folder that vLLM can't load.
    """
    folder = Path(model)
    if not folder.is_dir():
        if folder.exists() or looks_local(model):
            raise SettingsError(
                f"{model}: there is no such model folder", hint="name one with -s policy_config.base_model=DIR"
            )
        return model
    if not (folder / "config.json").is_file():
        raise SettingsError(f"{model}: not a model folder: config.json is missing")
    if not weight_files(folder):
        raise SettingsError(f"{model}: not a model folder: it has no weights (*.safetensors)")
    return str(folder.absolute())


def require_model(model: str, *, served: bool) -> None:
    """Raise `SettingsError` for a name that is no model's, as far as can be told within seconds.

    `served`: it is needed at once, so that the hub is asked, and has to answer.
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
            why = "the hub can't be reached" if known is None else "no such model is on the hub"
            raise _no_model(model, f", and {why}")


def _is_on_hub(model: str) -> bool | None:
    """Whether the hub has a model; None where it can't be asked."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError

    try:
        HfApi().model_info(model, timeout=HUB_TIMEOUT)
    except GatedRepoError:
        return True
    except (RepositoryNotFoundError, HFValidationError):
        return False
    except Exception:  # noqa: BLE001 - its clients raise what their HTTP library raises, which changes with versions
        return None
    return True


def _no_model(model: str, more: str) -> SettingsError:
    near = _nearest(model)
    hint = f"-s policy_config.base_model={near}" if near else "webgym init-model tiny DIR makes a small one"
    return SettingsError(f"policy_config.base_model: no folder {model}{more}", hint=hint)


def _nearest(model: str) -> str:
    """Return the model folder that was meant; empty where none has a name like it."""
    models = (file.parent for file in Path(model).parent.glob("*/tokenizer*.json"))
    return next(iter(difflib.get_close_matches(model, {str(path) for path in models}, n=1)), "")


def looks_local(model: str) -> bool:
    """Whether a name can only be a path: a hub id is `name` or `owner/name`."""
    return model.startswith(("/", "./", "../", "~")) or model.count("/") > 1


def weight_files(folder: Path) -> list[Path]:
    """Return the files of the first kind of weights that a folder has."""
    return next((files for pattern in WEIGHTS if (files := sorted(folder.glob(pattern)))), [])


def digest(model: str) -> str:
    """Return the SHA-256 of a folder's weights; for a hub id, its name. Reads every byte: use a thread."""
    folder = Path(model)
    if not folder.is_dir():
        return f"{HUB}{model}"
    files = weight_files(folder)
    with ThreadPoolExecutor(READERS) as readers:
        parts = [
            f"{file.name} {digest_of_file}"
            for file, digest_of_file in zip(files, readers.map(_sha256, files), strict=True)
        ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


class Digests:
    """Digests of models, each read once however many servers ask. Lives in one event loop."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, ...], str] = {}
        self._lock = asyncio.Lock()

    async def of(self, model: str) -> str:
        """Return the `digest` of a model as its files are now."""
        key = await asyncio.to_thread(_stamp, model)
        async with self._lock:
            if key not in self._known:
                self._known[key] = await asyncio.to_thread(digest, model)
            return self._known[key]


def is_hub_id(name: str) -> bool:
    """Whether a digest is that of a model on the hub."""
    return name.startswith(HUB)


def tied_embeddings(model: str) -> bool:
    """Whether a folder's model uses its input embeddings as output layer; also when that can't be told."""
    folder = Path(model)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    values = (config.get("tie_word_embeddings"), config.get("text_config", {}).get("tie_word_embeddings"))
    names = (name for file in folder.glob("*.safetensors") for name in read_header(file))
    return True in values or not any("lm_head" in name for name in names)


def _stamp(model: str) -> tuple[str, ...]:
    """Return what changes whenever a folder's weights are written anew."""
    stats = ((file.name, file.stat()) for file in weight_files(Path(model)))
    return (model, *(f"{name} {stat.st_ino} {stat.st_size} {stat.st_mtime_ns}" for name, stat in stats))


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
