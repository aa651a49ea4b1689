"""Fitted scikit-learn objects as bytes: written with skops, read only if every type in them is one of ours."""

from __future__ import annotations

import io
import json
import warnings
import zipfile
from typing import Any

from gsparc.exceptions import DamagedModelError

__all__ = ["damaged", "dump_state", "load_state"]

_LARGEST = 1 << 30  # bytes that a file may unpack to
_SCHEMA = "schema.json"
# Module, class and reader of every node that our own files have. skops itself trusts far more than these.
_ALLOWED: frozenset[tuple[str, ...]] = frozenset(
    {
        ("builtins", "dict", "DictNode"),
        ("builtins", "list", "ListNode"),
        ("builtins", "slice", "SliceNode"),
        ("builtins", "str", "JsonNode"),
        ("builtins", "str", "TypeNode"),
        ("builtins", "tuple", "TupleNode"),
        ("numpy", "dtype", "DTypeNode"),
        ("numpy", "float32", "TypeNode"),
        ("numpy", "float64", "NdArrayNode"),
        ("numpy", "ndarray", "NdArrayNode"),
        ("sklearn.compose._column_transformer", "ColumnTransformer", "ObjectNode"),
        ("sklearn.feature_extraction.text", "TfidfTransformer", "ObjectNode"),
        ("sklearn.feature_extraction.text", "TfidfVectorizer", "ObjectNode"),
        ("sklearn.impute._base", "SimpleImputer", "ObjectNode"),
        ("sklearn.pipeline", "Pipeline", "ObjectNode"),
        ("sklearn.preprocessing._data", "QuantileTransformer", "ObjectNode"),
        ("sklearn.preprocessing._data", "StandardScaler", "ObjectNode"),
        ("sklearn.preprocessing._encoders", "OneHotEncoder", "ObjectNode"),
    }
)


def dump_state(state: dict[str, Any]) -> bytes:
    """A dictionary of plain values, arrays and fitted transformers."""
    import skops.io

    return _settled(skops.io.dumps(state))


def _settled(data: bytes) -> bytes:
    """The same file without what differs from run to run: times, and numbers that stand for places in memory."""
    numbers: dict[int, int] = {}

    def settle(node: Any) -> Any:
        if isinstance(node, list):
            return [settle(part) for part in node]
        if not isinstance(node, dict):
            return node
        out = {key: settle(part) for key, part in node.items()}
        if isinstance(node.get("__id__"), int):
            out["__id__"] = numbers.setdefault(node["__id__"], len(numbers))
        return out

    sink = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(sink, "w") as new:
        schema, names = settle(json.loads(old.read(_SCHEMA))), {}
        for entry in old.infolist():
            if entry.filename != _SCHEMA:
                names[entry.filename] = f"{len(names)}.npy"
                new.writestr(zipfile.ZipInfo(names[entry.filename]), old.read(entry))
        new.writestr(zipfile.ZipInfo(_SCHEMA), json.dumps(_renamed(schema, names)))
    return sink.getvalue()


def _renamed(node: Any, names: dict[str, str]) -> Any:
    if isinstance(node, list):
        return [_renamed(part, names) for part in node]
    if not isinstance(node, dict):
        return node
    out = {key: _renamed(part, names) for key, part in node.items()}
    file = node.get("file")  # of an array; it may also be a word of a vocabulary
    return out | {"file": names[file]} if isinstance(file, str) and file in names else out


def load_state(data: bytes) -> dict[str, Any]:
    """What :func:`dump_state` wrote; DamagedModelError for anything else, before anything of it is made."""
    import skops.io
    from sklearn.exceptions import InconsistentVersionWarning

    try:
        _check(data)
        with warnings.catch_warnings():
            # a file of another scikit-learn: only numbers and words are taken out of it, and all are checked
            warnings.simplefilter("ignore", InconsistentVersionWarning)
            state = skops.io.loads(data, trusted=["numpy.dtype"])
    except DamagedModelError:
        raise
    except Exception as error:  # a damaged file fails in as many ways as it can be damaged
        raise damaged(f"it cannot be read ({type(error).__name__}: {str(error)[:150]})") from error
    if not isinstance(state, dict):
        raise damaged(f"it holds a {type(state).__name__}")
    return state


def _check(data: bytes) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > _LARGEST:
            raise damaged(f"it unpacks to more than {_LARGEST >> 30} GB")
        schema = json.loads(archive.read(_SCHEMA))
    waiting = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            if "__loader__" in node or "__class__" in node or "__module__" in node:
                kind = tuple(str(node.get(key)) for key in ("__module__", "__class__", "__loader__"))
                if kind not in _ALLOWED:
                    raise damaged(f"it holds a {kind[0]}.{kind[1]}, which no model of gsparc has")
            waiting += node.values()


def damaged(reason: str) -> DamagedModelError:
    """The error for a file of fitted preprocessing that cannot be used."""
    return DamagedModelError(
        f"the model is damaged: preprocess.skops: {reason}. Restore the folder from a copy, or fit and save again."
    )
