"""Find out before a model is loaded whether it is of the right kind and fits into memory."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from lmpolicy.models.errors import ModelError, in_words

WEIGHTS = (("model.safetensors", "*.safetensors"), ("pytorch_model.bin", "*.bin"))
"""Files of weights: the one that Transformers reads, beside which an index may list several, and any others of its
kind. Where there are files of both kinds, only the first kind is read."""
MEMORY_INFO = Path("/proc/meminfo")


def model_class(config: Any) -> Any:
    """Return the class of Transformers that loads a model: for encoder-decoder models, or for causal LMs.

    :param config: config of the model.
    """
    from transformers import AutoModelForCausalLM, AutoModelForSeq2SeqLM

    return AutoModelForSeq2SeqLM if config.is_encoder_decoder else AutoModelForCausalLM


def check_causal(name: str, config: Any) -> None:
    """Refuse a model that does not predict the next token of a text.

    :param name: name of the model in the message.
    :param config: config of the model.
    :raises ModelError: for a model of another kind, such as one that reads images.
    """
    from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, AutoModelForSeq2SeqLM

    classes = getattr(config, "architectures", None) or []
    images = getattr(config, "vision_config", None) is not None
    if config.is_encoder_decoder and type(config) in AutoModelForSeq2SeqLM._model_mapping and not images:
        return
    own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    causal = type(config) in AutoModelForCausalLM._model_mapping or own_code
    # Families such as BERT have a causal variant, but each token of theirs sees the later ones unless told otherwise.
    encoder = type(config) in AutoModelForMaskedLM._model_mapping and not getattr(config, "is_decoder", False)
    if causal and not config.is_encoder_decoder and not encoder and not any("ForMaskedLM" in one for one in classes):
        return
    if images:
        kind = "is a vision-language model"
    elif config.is_encoder_decoder:
        kind = "does not encode a text and decode another"
    else:
        kind = "does not predict the next token of a text"
    raise ModelError(
        f"{name} ({', '.join(classes) or type(config).__name__}) {kind}. A policy needs a causal or "
        "encoder-decoder language model of text alone, such as those of lmpolicy.models.named_models(), or "
        "smollm2-135m-instruct to begin with."
    )


def check_memory(name: str, needed: float | None) -> None:
    """Refuse a model whose weights do not fit into memory, before the system ends the process.

    :param name: name of the model in the message.
    :param needed: bytes of the weights; ``None`` if they are not known.
    :raises ModelError: if less is available; the message says how much.
    """
    available = available_memory()
    if needed is not None and available is not None and needed > available:
        raise ModelError(
            f"{name} needs {in_words(needed)} of memory for its weights alone, and {in_words(available)} are "
            'available. Take a smaller model, or half precision (dtype="bfloat16"), or end other programs.'
        )


def available_memory() -> int | None:
    """Return the bytes of memory that programs can still get; ``None`` where the system does not tell."""
    try:
        import psutil

        return int(psutil.virtual_memory().available)
    except ImportError:
        pass
    try:
        lines = MEMORY_INFO.read_text().splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found) * 1024


def weight_bytes(path: str, config: Any, dtype: Any = None) -> float | None:
    """Estimate the size of a model's weights in memory.

    It is that of the files; or that of the weights that the config asks for, where no file is here yet.

    :param path: folder or hub id.
    :param config: config of the model.
    :param dtype: torch dtype that the weights are cast to. ``None``: as they are stored.
    :return: bytes, or ``None`` if neither is known.
    """
    stored = config.dtype if config.dtype is not None else _float32()
    size = _file_bytes(Path(path)) if Path(path).is_dir() else _count(config) * stored.itemsize
    if size is None or dtype is None or getattr(config, "quantization_config", None) is not None:
        return size
    return size * max(1.0, dtype.itemsize / stored.itemsize)  # while they are cast, they are there as stored, too


def _file_bytes(folder: Path) -> int | None:
    """Add up the files of weights that Transformers reads. Other files often hold the same weights once more."""
    files = [*(_read_files(folder, whole) for whole, _ in WEIGHTS), *(list(folder.glob(one)) for _, one in WEIGHTS)]
    return next((sum(file.stat().st_size for file in found) for found in files if found), None)


def _read_files(folder: Path, whole: str) -> list[Path]:
    """Return the files that hold the weights as one or as several parts; none if a part or the index is missing.

    :param folder: folder of the model.
    :param whole: name of the file of all weights.
    """
    names, index = {whole}, folder / f"{whole}.index.json"
    if not (folder / whole).is_file() and index.is_file():
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    files = [folder / name for name in names]
    return files if all(map(Path.is_file, files)) else []


def _count(config: Any) -> int:
    """Count the parameters of a model that is made without memory for them."""
    import torch as th

    with th.random.fork_rng(devices=[]), th.device("meta"):
        model = model_class(config).from_config(config)
    return sum(math.prod(parameter.shape) for parameter in model.parameters())


def _float32() -> Any:
    import torch as th

    return th.float32
