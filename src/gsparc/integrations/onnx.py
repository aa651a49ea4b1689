"""ONNX: the spectral map and the networks on features as one file that runs without torch."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from gsparc._files import write_atomically
from gsparc._optional import import_optional
from gsparc._version import __version__
from gsparc.estimators._base import class_list
from gsparc.estimators.classifier import SparcClassifier
from gsparc.estimators.embedding import SpectralMap
from gsparc.exceptions import InputError
from gsparc.nn.mlp import FeatureMLP
from gsparc.nn.spectral_map import InputLayer, SpectralNet
from gsparc.training.batches import _FAR, _SHORTEST, Scaling

__all__ = ["export_onnx"]

_OPSET, _IR = 17, 8  # of 2022: what runtimes in use can read
_LARGEST = 2**31 - 2**20  # bytes of one protocol buffer


def export_onnx(model: SpectralMap | SparcClassifier, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Write a fitted model as ONNX: features in, spectral coordinates and class probabilities out.

    The file takes ``features``, dense float32 of any number of rows, as `transform` and `predict_proba` take them:
    scaling is inside, preprocessing of tables is not. It gives ``coordinates``, what :meth:`SpectralMap.transform`
    gives, and for a classifier ``probabilities``, columns as `classes_`, calibrated.

    Parameters
    ----------
    model : SpectralMap or SparcClassifier
        A classifier with ``backbone="mlp"`` is written whole. Of ``"auto"`` those networks are written that read
        features and coordinates, their weights divided by their sum: the others look for neighbours among all seen
        nodes, which such a file does not hold. Other backbones do too; of them the map, ``model.map_``, can be written.
    path : path
        Appears when it is complete.

    Returns
    -------
    dict
        What the file holds and what was left out; the same is in its metadata, with the names of features and classes.

    Examples
    --------
    >>> import tempfile
    >>> X = np.random.default_rng(0).normal(size=(40, 3))
    >>> fitted = SpectralMap(2, max_steps=5, random_state=0).fit(X)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     export_onnx(fitted, f"{folder}/map.onnx")["outputs"]
    ['coordinates']
    """
    onnx = import_optional("onnx", extra="onnx", purpose="Writing an ONNX file")
    if not isinstance(model, (SpectralMap, SparcClassifier)):
        raise InputError(
            f"a {type(model).__name__} came, expected a SpectralMap or a SparcClassifier. Of others the map can be "
            "written: export_onnx(model.map_, path), for links model.maps_[0]."
        )
    check_is_fitted(model)
    heads = _heads(model) if isinstance(model, SparcClassifier) else {}
    graph = _Graph(onnx)
    spectral = model.map_ if isinstance(model, SparcClassifier) else model
    scaled = _scaled(graph, "features", spectral._scaling, model.n_features_in_)
    coordinates = graph.named("coordinates", _coordinates(graph, scaled, spectral))
    widths = {"coordinates": spectral.n_components_}
    if isinstance(model, SparcClassifier):
        graph.named("probabilities", _probabilities(graph, scaled, coordinates, model, heads))
        widths["probabilities"] = len(model.classes_)
    facts = _facts(model, heads, list(widths))
    graph.write(Path(path), model.n_features_in_, widths, facts)
    return facts


def _heads(model: SparcClassifier) -> dict[str, float]:
    """Networks on features that take part, and their weights, summing to one."""
    weights = {name: model._mixture.weights[name] for name, head in model._heads.items() if head.kind == "mlp"}
    total = sum(weights.values())
    if not total:
        raise InputError(
            f"backbone={model._kind!r} looks for neighbours among all seen nodes to predict, which an ONNX file cannot "
            "do. Its spectral map can be written: export_onnx(model.map_, path). For probabilities fit backbone='mlp' "
            "or 'auto'."
        )
    return {name: weight / total for name, weight in weights.items() if weight}


def _facts(model: Any, heads: dict[str, float], outputs: list[str]) -> dict[str, Any]:
    names = getattr(model, "feature_names_in_", None)
    facts: dict[str, Any] = {
        "gsparc_version": __version__,
        "estimator": type(model).__name__,
        "outputs": outputs,
        "feature_names": [f"x{i}" for i in range(model.n_features_in_)] if names is None else [str(n) for n in names],
    }
    if not heads:
        return facts
    left = {name: weight for name, weight in model.weights_.items() if weight > 0 and name not in heads}
    facts |= {"classes": class_list(model.classes_)["values"], "heads": heads, "left_out": left}
    note = "probabilities are those of predict_proba"
    if left:
        share = 100 * sum(left.values())
        note = (
            f"probabilities are those of {len(heads)} of {len(heads) + len(left)} networks, weights renormalised; "
            f"{share:.0f} % of the weight was left out, networks that look for neighbours"
        )
    return facts | {"note": note}


def _scaled(graph: _Graph, x: str, scaling: Scaling, width: int) -> str:
    """As ``FeatureSource.rows`` scales dense rows."""
    if scaling.shift is None or scaling.factor is None:
        double = graph.op("Cast", x, to=graph.onnx.TensorProto.DOUBLE)  # squares may overflow in single precision
        length = graph.op("ReduceL2", double, axes=[1], keepdims=1)
        length = graph.op("Max", length, graph.constant(np.array(_SHORTEST)))
        factor = graph.op("Div", graph.constant(np.array(width**0.5)), length)
        return graph.op("Cast", graph.op("Mul", double, factor), to=graph.onnx.TensorProto.FLOAT)
    shifted = graph.op("Sub", x, graph.constant(scaling.shift))
    scaled = graph.op("Mul", shifted, graph.constant(scaling.factor))
    bounds = (graph.constant(np.float32(sign * _FAR)) for sign in (-1, 1))
    return graph.op("Clip", scaled, *bounds)


def _coordinates(graph: _Graph, x: str, spectral: SpectralMap) -> str:
    """As ``SpectralMap.transform`` gives them."""
    net = spectral.module_
    raw = _raw(graph, x, net)
    out = graph.op("MatMul", graph.op("Sub", raw, graph.constant(net.offset)), graph.constant(net.rotation))
    if spectral.diffusion_time:
        out = graph.op("Mul", out, graph.constant(spectral.diffusion_scale()))
    return out


def _raw(graph: _Graph, x: str, net: SpectralNet) -> str:
    first = _input(graph, x, net.input)
    if net.output is None:
        return first
    total = net.input.weight.shape[1]
    hidden, linear = first, None
    if net.linear_path:
        cut = (graph.constant(np.array([net.first_width, total - net.first_width])),)
        hidden, linear = graph.op("Split", first, *cut, outputs=2, axis=1)
    hidden = _gelu(graph, _norm(graph, hidden, net.norms[0]))
    for norm, layer in zip(list(net.norms)[1:], net.hidden, strict=True):
        hidden = _gelu(graph, _norm(graph, _linear(graph, hidden, layer), norm))
    out = _linear(graph, hidden, net.output)
    return out if linear is None else graph.op("Add", out, linear)


def _probabilities(graph: _Graph, x: str, coordinates: str, model: SparcClassifier, heads: dict[str, float]) -> str:
    """As ``predict_proba`` gives them where the heads are all there are."""
    values = graph.op("Mul", coordinates, graph.constant(_component_weights(model)))
    length = graph.op("Max", graph.op("ReduceL2", values, axes=[1], keepdims=1), graph.constant(np.float32(1e-30)))
    scale = np.float32(model.map_.n_components_**0.5)
    place = graph.op("Mul", graph.op("Div", values, length), graph.constant(scale))
    parts = []
    for name, weight in heads.items():
        head = model._heads[name]
        assert isinstance(head.module, FeatureMLP)
        logits = _mlp(graph, x, place, head.module)
        logits = graph.op("Mul", logits, graph.constant(np.float32(1.0 / head.temperature)))
        parts.append(graph.op("Mul", graph.op("Softmax", logits, axis=1), graph.constant(np.float32(weight))))
    mixed = graph.op("Sum", *parts)
    power = graph.constant(np.float32(1.0 / model._mixture.temperature))
    powered = graph.op("Pow", graph.op("Max", mixed, graph.constant(np.float32(1e-12))), power)
    axes = graph.constant(np.array([1]))
    return graph.op("Div", powered, graph.op("ReduceSum", powered, axes, keepdims=1))


def _component_weights(model: SparcClassifier) -> np.ndarray:
    return np.sqrt(np.clip(1 - model.map_.eigenvalues_, 0, None)).astype(np.float32)


def _mlp(graph: _Graph, x: str, place: str, net: FeatureMLP) -> str:
    hidden = _input(graph, x, net.input)
    if net.coordinates is not None:
        hidden = graph.op("Add", hidden, _linear(graph, place, net.coordinates))
    return _linear(graph, _gelu(graph, _norm(graph, hidden, net.norm)), net.output)


def _input(graph: _Graph, x: str, layer: InputLayer) -> str:
    return graph.op("Gemm", x, graph.constant(layer.weight), graph.constant(layer.bias))


def _linear(graph: _Graph, x: str, layer: Any) -> str:
    bias = () if layer.bias is None else (graph.constant(layer.bias),)
    return graph.op("Gemm", x, graph.constant(layer.weight), *bias, transB=1)


def _norm(graph: _Graph, x: str, norm: Any) -> str:
    return graph.op(
        "LayerNormalization", x, graph.constant(norm.weight), graph.constant(norm.bias), axis=-1, epsilon=norm.eps
    )


def _gelu(graph: _Graph, x: str) -> str:
    """``x (1 + erf(x / sqrt 2)) / 2``, in operators that older runtimes have."""
    half, one = graph.constant(np.float32(0.5)), graph.constant(np.float32(1.0))
    erf = graph.op("Erf", graph.op("Mul", x, graph.constant(np.float32(0.5**0.5))))
    return graph.op("Mul", graph.op("Mul", x, half), graph.op("Add", erf, one))


class _Graph:
    """Nodes and constants of the file that is being made."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self._nodes: list[Any] = []
        self._constants: list[Any] = []
        self._bytes = 0

    def constant(self, value: Any) -> str:
        """A number, an array or a tensor, as it is typed."""
        array = value.detach().cpu().numpy() if isinstance(value, Tensor) else np.asarray(value)
        name = f"c{len(self._constants)}"
        self._bytes += array.nbytes
        if self._bytes > _LARGEST:
            raise InputError(
                "the networks take more than 2 GB, which one ONNX file cannot hold. Reduce the number of features or "
                "the width of the layers."
            )
        self._constants.append(self.onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def op(self, kind: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """The name of what an operator gives; a list of names where it gives several."""
        names = [f"v{len(self._nodes)}_{i}" for i in range(outputs)]
        self._nodes.append(self.onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names[0] if outputs == 1 else names

    def named(self, name: str, value: str) -> str:
        """The same value under a name that is seen outside."""
        self._nodes.append(self.onnx.helper.make_node("Identity", [value], [name]))
        return name

    def write(self, path: Path, num_features: int, widths: dict[str, int], facts: dict[str, Any]) -> None:
        """Check the file and put it in its place."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto.FLOAT
        features = helper.make_tensor_value_info("features", kind, ["rows", num_features])
        outputs = [helper.make_tensor_value_info(name, kind, ["rows", width]) for name, width in widths.items()]
        graph = helper.make_graph(self._nodes, "gsparc", [features], outputs, self._constants)
        model = helper.make_model(
            graph,
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR,
            producer_name="gsparc",
            producer_version=__version__,
        )
        props = {name: value if isinstance(value, str) else json.dumps(value) for name, value in facts.items()}
        helper.set_model_props(model, props)
        self.onnx.checker.check_model(model, full_check=True)
        write_atomically(path, lambda file: file.write_bytes(model.SerializeToString()), "the ONNX file")
