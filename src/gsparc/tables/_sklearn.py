"""The scikit-learn transformers behind a preprocessor: how they are fitted, and what is read out of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gsparc.exceptions import FeatureError
from gsparc.tables._words import TOKEN, tokens

__all__ = ["fit_places", "fit_scales", "fit_words", "read_places", "read_scales", "read_words"]

_FLOAT: Any = np.float32  # scikit-learn's own hints say float64 only
_QUANTILES = 100
_ROWS = 200_000  # rows that scales are taken from
_ENOUGH = 50  # rows from which a word must be in two of them


def fit_words(
    texts: dict[str, list[str]], values: dict[str, NDArray[np.object_]], kept: list[list[str]], max_words: int
) -> Any:
    """A ColumnTransformer over an array of objects: columns of texts, then columns of categories; None without any."""
    from sklearn.compose import ColumnTransformer
    from sklearn.preprocessing import OneHotEncoder

    if not texts and not values:
        return None
    firsts = [*(text[:1] for text in texts.values()), *(found[:1].tolist() for found in values.values())]
    parts: list[Any] = [
        (f"text{place}", _vectorizer(text, name, max_words), place) for place, (name, text) in enumerate(texts.items())
    ]
    if values:
        known: Any = [np.array(values, dtype=object) for values in kept]
        encoder = OneHotEncoder(categories=known, handle_unknown="ignore", dtype=_FLOAT)
        parts.append(("categories", encoder, list(range(len(texts), len(firsts)))))
    # vocabularies and categories are chosen already: one row is enough for the rest
    fitted = ColumnTransformer(parts, sparse_threshold=1.0).fit(np.array(firsts, dtype=object).T)
    for place in range(len(texts)):
        vectorizer = fitted.named_transformers_[f"text{place}"]
        vectorizer.vocabulary_ = {str(word): int(column) for word, column in vectorizer.vocabulary_.items()}
        vectorizer.vocabulary = None  # one copy is enough
        fitted.transformers[place][1].vocabulary = None
        vars(vectorizer).pop("_stop_words_id", None)  # a place in memory: another number in each process
    return fitted


def _vectorizer(texts: list[str], name: str, max_words: int) -> Any:
    """A vectorizer of the words that most texts have, two texts at least."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(set(tokens(text)))
    if not counts:
        raise FeatureError(f"column {name!r} holds no words, so it is no text. Leave it out with --ignore {name}.")
    once = 1 if len(texts) >= _ENOUGH and max(counts.values()) > 1 else 0
    ranked = sorted((word for word, count in counts.items() if count > once), key=lambda word: (-counts[word], word))
    return TfidfVectorizer(
        sublinear_tf=True,
        use_idf=False,
        token_pattern=TOKEN,
        vocabulary=sorted(ranked[:max_words]),
        dtype=_FLOAT,
    )


def read_words(fitted: Any, texts: int, values: int) -> tuple[list[dict[str, int]], list[list[str]]]:
    """Vocabularies and categories of what :func:`fit_words` made; ValueError where they are not sound."""
    if fitted is None:
        _must(not texts and not values, "no words were saved")
        return [], []
    vocabularies = [fitted.named_transformers_[f"text{place}"].vocabulary_ for place in range(texts)]
    for vocabulary in vocabularies:
        _must(isinstance(vocabulary, dict) and len(vocabulary) > 0, "a vocabulary is empty")
        _must(all(isinstance(word, str) for word in vocabulary), "a word is no string")
        _must(all(type(column) is int for column in vocabulary.values()), "a word has no place")
        _must(sorted(vocabulary.values()) == list(range(len(vocabulary))), "words do not have a place each")
    if not values:
        return vocabularies, []
    kept = [np.asarray(known).tolist() for known in fitted.named_transformers_["categories"].categories_]
    _must(len(kept) == values, f"categories of {len(kept)} columns, expected {values}")
    _must(all(known and all(isinstance(value, str) for value in known) for known in kept), "a category is no string")
    return vocabularies, kept


def fit_scales(values: NDArray[np.float32]) -> Any:
    """Missing numbers as means, then mean zero and variance one: what is missing is zero."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    steps = [("missing", SimpleImputer(strategy="mean", keep_empty_features=True)), ("scale", StandardScaler())]
    return Pipeline(steps).fit(_sample(values))


def read_scales(fitted: Any, width: int) -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.float32]]:
    """What missing numbers become, means and factors; a column that does not vary has the factor 0."""
    fill = _numbers(fitted.named_steps["missing"].statistics_, (width,))
    mean = _numbers(fitted.named_steps["scale"].mean_, (width,))
    scale = _numbers(fitted.named_steps["scale"].scale_, (width,))
    spread = np.sqrt(_numbers(fitted.named_steps["scale"].var_, (width,)))
    _must(bool((scale > 0).all()), "a scale is not positive")
    # as the models that come after say it: what varies by rounding only does not vary
    factor = np.where(spread <= 1e-6 * np.maximum(np.abs(mean), 1e-30), 0.0, 1.0 / scale)
    return fill.astype(np.float32), mean.astype(np.float32), factor.astype(np.float32)


def fit_places(values: NDArray[np.float32]) -> Any:
    """Missing numbers as medians, then the place of each among all."""
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import QuantileTransformer

    places = QuantileTransformer(n_quantiles=min(_QUANTILES, len(values)), subsample=100_000, random_state=0)
    steps = [("missing", SimpleImputer(strategy="median", keep_empty_features=True)), ("place", places)]
    return Pipeline(steps).fit(_sample(values))


def read_places(fitted: Any, width: int) -> tuple[NDArray[np.float32], NDArray[np.float64]]:
    """Medians, and the quantiles ``[q, width]``."""
    median = _numbers(fitted.named_steps["missing"].statistics_, (width,))
    quantiles = np.asarray(fitted.named_steps["place"].quantiles_)
    quantiles = _numbers(quantiles, (len(quantiles), width))
    _must(len(quantiles) > 0 and bool((np.diff(quantiles, axis=0) >= 0).all()), "quantiles do not rise")
    return median.astype(np.float32), quantiles


def _sample(values: NDArray[np.float32]) -> NDArray[np.float64]:
    """Rows over the whole length, as many as a scale needs."""
    return values[:: max(1, -(-len(values) // _ROWS))].astype(np.float64)


def _numbers(values: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    array = np.asarray(values)
    _must(array.shape == shape, f"numbers of shape {array.shape}, expected {shape}")
    _must(array.dtype.kind == "f" and bool(np.isfinite(array).all()), "numbers that are not finite")
    return array.astype(np.float64)


def _must(condition: bool, problem: str) -> None:
    if not condition:
        raise ValueError(problem)
