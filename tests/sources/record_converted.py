"""Records what llama.cpp's own converter makes of the folders of `hf_models.py`: metadata and table of the GGUF files.

    python -m tests.sources.record_converted LLAMA_CPP

LLAMA_CPP is the source of llama.cpp (b11549); PyTorch is needed. Writes `converted.json` beside this file.
"""

from __future__ import annotations

import json
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from tests.sources.hf_models import FOLDERS, VOCAB, write_folder

RECORDED = Path(__file__).with_name("converted.json")
_OTHERS = ("general.name", "general.basename", "general.size_label", "general.finetune", "general.version")
"""What the converter makes of the folder's name."""


def main() -> None:
    """Convert every folder, without a vocabulary."""
    source = Path(sys.argv[1])
    sys.path[:0] = [str(source), str(source / "gguf-py")]
    stub: Any = types.ModuleType("transformers")
    stub.AutoConfig = types.SimpleNamespace(from_pretrained=_no_transformers)
    sys.modules["transformers"] = stub
    found = {name: _converted(name) for name in FOLDERS}
    RECORDED.write_text(json.dumps(found, indent=0, sort_keys=True).replace("\n", "").replace('"}, "', '"},\n"') + "\n")


def _no_transformers(*args: object, **kwargs: object) -> object:
    raise OSError("the configuration is read as it is")


def _converted(name: str) -> dict[str, Any]:
    import conversion  # type: ignore[import-not-found]
    import gguf

    with tempfile.TemporaryDirectory() as folder:
        model = FOLDERS[name]()
        path = write_folder(Path(folder) / name, model)
        tokens = {"model": {"vocab": {str(i): i for i in range(VOCAB)}}, "added_tokens": []}
        (path / "tokenizer.json").write_text(json.dumps(tokens))
        kind = conversion.get_model_class(model.config["architectures"][0])
        kind.set_vocab = lambda self: None
        made = Path(folder) / "made.gguf"
        kind(path, gguf.LlamaFileType.GUESSED, made).write()
        reader = gguf.GGUFReader(made)
        values = {key: field.contents() for key, field in reader.fields.items() if not key.startswith("GGUF.")}
        return {
            "values": {key: value for key, value in values.items() if key not in _OTHERS},
            "tensors": {t.name: [t.tensor_type.name.lower(), *map(int, t.shape)] for t in reader.tensors},
        }


if __name__ == "__main__":
    main()
