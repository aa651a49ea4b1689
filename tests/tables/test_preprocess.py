"""Rows as features: equal to scikit-learn's own, balanced, fitted on seen rows only, and safe to read back."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import zipfile
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gsparc.exceptions import DamagedModelError, FeatureError, GsparcError, InputError
from gsparc.tables._encoders import HATS, OTHER
from gsparc.tables._words import TOKEN, tokens
from gsparc.tables.columns import Columns, guess_columns
from gsparc.tables.preprocess import Preprocessor, records_to_table
from gsparc.training.batches import Scaling

WORDS = ["red", "fish", "blue", "dog", "c++", "library", "x86", "été", "東京"]


def mixed(n: int = 120, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    sizes = [None if i % 11 == 0 else float(x) for i, x in enumerate(rng.lognormal(5, 3, n))]
    return pa.table(
        {
            "words": [None if i == 3 else " ".join(rng.choice(WORDS, 6)) for i in range(n)],
            "title": [" ".join(rng.choice(WORDS, 2)) for _ in range(n)],
            "size": pa.array(sizes, pa.float64()),
            "year": rng.integers(1990, 2024, n),
            "arch": rng.choice(["amd64", "i386", "arm"], n),
            "flag": rng.random(n) > 0.5,
            "v": [rng.normal(size=3).tolist() for _ in range(n)],
        }
    )


ALL = Columns(
    text=("words", "title"), numeric=("size", "year"), categorical=("arch", "flag"), vector=("v",), id=None, target=None
)
KINDS = [
    ALL,
    Columns(text=("words",)),
    Columns(numeric=("size", "year")),
    Columns(categorical=("arch", "flag")),
    Columns(vector=("v",)),
    Columns(numeric=("size",), categorical=("arch",), vector=("v",)),
    Columns(text=("words",), numeric=("size",)),
]


def dense(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else np.asarray(X)


@pytest.mark.parametrize("text", ["GNU C++, x86-64", "東京都 c#", "", "हिन्दी और ไทย", "naïve_text 3.14 f++x"])
def test_our_words_are_those_of_the_pattern(text: str) -> None:
    import re

    assert tokens(text) == re.findall(TOKEN, text.lower())


@settings(deadline=None, max_examples=200)
@given(st.text(max_size=60))
def test_our_words_are_those_of_the_pattern_for_any_text(text: str) -> None:
    import re

    assert tokens(text) == re.findall(TOKEN, text.lower())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The C++ and C# compilers", ["the", "c++", "and", "c#", "compilers"]),
        ("x86-64, mp3 v1.2", ["x86", "64", "mp3", "v1", "2"]),
        ("привет мир", ["привет", "мир"]),
        ("हिन्दी भाषा।", ["हिन्दी", "भाषा"]),
        ("العَرَبِيَّة", ["العَرَبِيَّة"]),
        ("東京都", ["東京", "京都", "都"]),
        ("한국어 사전", ["한국어", "사전"]),
        ("e\u0301te\u0301", ["e\u0301te\u0301"]),
    ],
)
def test_words_of_many_scripts(text: str, expected: list[str]) -> None:
    assert tokens(text) == expected


def test_words_and_categories_equal_the_column_transformer() -> None:
    table = mixed()
    columns = Columns(text=("words", "title"), categorical=("arch", "flag"))
    fitted = Preprocessor.fit(table, columns)
    X, bad = fitted.transform(table)
    objects = np.array(
        [
            [text or "" for text in table["words"].to_pylist()],
            table["title"].to_pylist(),
            table["arch"].to_pylist(),
            [str(flag).lower() for flag in table["flag"].to_pylist()],
        ],
        dtype=object,
    ).T
    expected = dense(fitted._state["words"].transform(objects))
    width = len(fitted._state["words"].named_transformers_["categories"].get_feature_names_out())
    expected[:, -width:] *= 0.5 / np.sqrt(2)  # all categories together weigh half a text
    np.testing.assert_allclose(dense(X), expected, rtol=1e-6)
    assert not bad


def test_scaled_numbers_equal_the_pipeline() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal(3, 2, (200, 3))
    values[::7, 1] = np.nan
    table = pa.table({f"x{i}": values[:, i] for i in range(3)})
    fitted = Preprocessor.fit(table, Columns(numeric=("x0", "x1", "x2")))
    X, _ = fitted.transform(table)
    np.testing.assert_allclose(X, fitted._state["numbers"].transform(values), atol=1e-5)
    np.testing.assert_allclose(X.mean(axis=0), 0, atol=1e-5)
    np.testing.assert_allclose(X[::7, 1], 0, atol=1e-6)  # what is missing is the mean
    assert not Scaling.fit(X).rows


def test_places_of_numbers_equal_quantile_and_spline_transformers() -> None:
    from sklearn.preprocessing import SplineTransformer

    table = mixed(300)
    fitted = Preprocessor.fit(table, Columns(text=("words",), numeric=("size", "year")))
    X, _ = fitted.transform(table)
    values = np.array([table["size"].to_pylist(), table["year"].to_pylist()], float).T.astype(np.float32)
    places = fitted._state["numbers"].transform(values.astype(np.float64))
    knots = np.linspace([0, 0], [1, 1], HATS)
    hats = SplineTransformer(degree=1, knots=knots).fit(places).transform(places)
    np.testing.assert_allclose(dense(X)[:, -2 * HATS :], hats * 0.5 / np.sqrt(2), atol=1e-6)


@pytest.mark.parametrize("columns", KINDS)
def test_bytes_bring_back_the_same_features(columns: Columns) -> None:
    table = mixed()
    fitted = Preprocessor.fit(table, columns)
    again = Preprocessor.from_bytes(fitted.to_bytes(), columns)
    new = mixed(40, seed=1)
    assert np.array_equal(dense(fitted.transform(new)[0]), dense(again.transform(new)[0]))
    assert type(again.transform(new)[0]) is type(fitted.transform(new)[0])
    assert again.feature_names.tolist() == fitted.feature_names.tolist()
    assert again.form() == fitted.form()
    X, _ = fitted.transform(new)
    assert X.shape == (40, fitted.n_features)
    assert X.dtype == np.float32
    assert len(set(fitted.feature_names)) == fitted.n_features


def test_rows_alone_and_together_are_the_same() -> None:
    table = mixed()
    fitted = Preprocessor.fit(table, ALL)
    X, _ = fitted.transform(table)
    for row in (0, 3, 11, 57):
        np.testing.assert_array_equal(dense(fitted.transform(table.slice(row, 1))[0])[0], dense(X)[row])
        record = records_to_table([table.slice(row, 1).to_pylist()[0]], ALL)
        np.testing.assert_allclose(dense(fitted.transform(record)[0])[0], dense(X)[row], atol=1e-6)
    assert fitted.transform(table.slice(0, 0))[0].shape == (0, fitted.n_features)


def test_strings_of_a_stream_and_typed_columns_are_the_same() -> None:
    table = mixed()
    fitted = Preprocessor.fit(table, ALL)
    records = table.to_pylist()
    strings = {
        name: [
            None if row[name] is None else json.dumps(row[name]) if name == "v" else str(row[name]) for row in records
        ]
        for name in table.column_names
    }
    X, bad = fitted.transform(pa.table(strings))
    assert bad == {}
    np.testing.assert_allclose(dense(X), dense(fitted.transform(table)[0]), atol=1e-6)


def test_sparse_rows_are_scaled_by_rows() -> None:
    X, _ = Preprocessor.fit(mixed(), ALL).transform(mixed())
    assert sp.issparse(X)
    assert X.data.min() >= 0
    assert Scaling.fit(X).rows


def accuracy_of_cosines(X: Any, y: np.ndarray) -> float:
    """Of the nearest other row by cosine."""
    rows = dense(X) / np.linalg.norm(dense(X), axis=1, keepdims=True)
    near = rows @ rows.T
    np.fill_diagonal(near, -1)
    return float((y[near.argmax(axis=1)] == y).mean())


@pytest.mark.parametrize("by", ["number", "words"])
def test_neither_numbers_nor_words_drown(by: str) -> None:
    """The class hangs on one of the two, the other is noise: a linear model finds it, whichever it is."""
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    n = 400
    y = rng.integers(0, 2, n)
    letters = [f"w{i}" for i in range(300)]
    texts = [" ".join(rng.choice(letters[: 150 + 150 * (by != "words")], 12)) for _ in range(n)]
    if by == "words":
        texts = [" ".join(rng.choice(letters[150 * c : 150 * c + 150], 12)) for c in y]
    sizes = 10 ** (4 + 2 * y + rng.normal(0, 0.3, n)) if by == "number" else 10 ** rng.normal(4, 2, n)
    table = pa.table({"words": texts, "size": sizes})
    X, _ = Preprocessor.fit(table.slice(0, 200), Columns(text=("words",), numeric=("size",))).transform(table)
    scale = np.sqrt(X.shape[1]) / np.sqrt(np.asarray(X.multiply(X).sum(axis=1))).ravel()
    rows = sp.csr_array(sp.diags_array(scale) @ X)  # as Scaling makes them
    model = LogisticRegression(max_iter=500).fit(rows[:200], y[:200])
    assert model.score(rows[200:], y[200:]) > 0.95
    assert accuracy_of_cosines(X, y) > 0.75


def test_blocks_have_the_lengths_that_are_promised() -> None:
    table = mixed()
    X, _ = Preprocessor.fit(table, ALL).transform(table)
    names = Preprocessor.fit(table, ALL).feature_names
    words = np.array([name.startswith("words:") for name in names])
    categories = np.array(["=" in name for name in names])
    numbers = np.array([f"/{HATS}" in name for name in names])
    vector = np.array([name.startswith("v[") for name in names])
    assert words.sum() + categories.sum() + numbers.sum() + vector.sum() < len(names)  # and the titles

    def length(block: np.ndarray) -> np.ndarray:
        return np.linalg.norm(dense(X)[:, block], axis=1)

    present = np.array([text is not None for text in table["words"].to_pylist()])
    np.testing.assert_allclose(length(words)[present], 1, rtol=1e-5)
    np.testing.assert_allclose(length(vector), 1, rtol=1e-5)
    np.testing.assert_allclose(length(categories), 0.5, rtol=1e-5)
    assert (length(numbers) <= 0.5001).all()
    assert (length(numbers) >= 0.353).all()


def test_counts_are_left_as_they_are() -> None:
    rng = np.random.default_rng(0)
    counts = (rng.random((50, 40)) < 0.1).astype(float)
    table = pa.table({f"word{i}": counts[:, i] for i in range(40)})
    X, _ = Preprocessor.fit(table, Columns(numeric=tuple(table.column_names))).transform(table)
    assert sp.issparse(X)
    assert np.array_equal(dense(X), counts)
    assert Scaling.fit(X).rows


def test_vectors_alone_pass_through() -> None:
    table = mixed()
    X, _ = Preprocessor.fit(table, Columns(vector=("v",))).transform(table)
    assert np.array_equal(X, np.array(table["v"].to_pylist(), np.float32))


def test_columns_of_many_sizes_are_taken_as_logarithms() -> None:
    sizes = 10.0 ** np.linspace(0, 6, 200)
    table = pa.table({"size": sizes, "plain": np.linspace(-1, 1, 200)})
    fitted = Preprocessor.fit(table, Columns(numeric=("size", "plain")))
    X, _ = fitted.transform(table)
    assert np.abs(X).max() < 4
    assert np.diff(X[:, 0]).min() > 0
    far, _ = fitted.transform(pa.table({"size": [-5.0, 1e25], "plain": [0.0, 1e9]}))
    assert np.isfinite(far).all()
    assert far[1].tolist() == [8.0, 8.0]
    middle, zero = (field["example"] for field in fitted.form())
    assert 1e3 < middle < 1e4
    assert zero == pytest.approx(0, abs=1e-6)


def test_values_that_are_not_what_they_should_be() -> None:
    table = mixed()
    fitted = Preprocessor.fit(table, ALL)
    good = {
        "words": "red",
        "title": "dog",
        "size": "1.5",
        "year": "2000",
        "arch": "arm",
        "flag": "true",
        "v": "[1, 2, 3]",
    }
    changes: list[tuple[dict[str, Any], str]] = [
        ({}, ""),
        ({"size": "abc"}, "size is 'abc', expected a number"),
        ({"size": "1,234"}, "size is '1,234', expected a number (write 1234.5, not 1,234.5 or 1234,5)"),
        ({"size": "1_000"}, "size is '1_000', expected a number"),
        ({"size": " 2e3 "}, ""),
        ({"size": "inf"}, "size is inf, expected a finite number, of at most 3.4e38"),
        ({"v": "[1, 1e39, 3]"}, "v[1] is 1e+39, expected a finite number, of at most 3.4e38"),
        ({"v": "[1, NaN, 3]"}, ""),
        ({"size": "NA"}, ""),
        ({"size": None, "words": None, "v": None, "arch": None}, ""),
        ({"v": "[1, 2]"}, "v is a list of 2, expected a list of 3 numbers"),
        ({"v": "x"}, "v is 'x', expected a list of 3 numbers"),
        ({"v": "[1, null, 3]"}, ""),
        ({"v": '[1, "a", 3]'}, "v is a list of 3, expected a list of 3 numbers"),
        ({"size": "abc", "v": "x"}, "size is 'abc', expected a number"),
        ({"arch": "x" * 100_000}, ""),
    ]
    rows = [good | change for change, _ in changes]
    X, bad = fitted.transform(pa.Table.from_pylist(rows))
    assert bad == {row: reason for row, (_, reason) in enumerate(changes) if reason}
    assert np.isfinite(dense(X)).all()
    lengths = np.linalg.norm(dense(X), axis=1)
    assert (lengths[list(bad)] == 0).all()
    assert (np.delete(lengths, list(bad)) > 0).all()


def test_infinite_numbers_of_every_type_are_named() -> None:
    fitted = Preprocessor.fit(mixed(), ALL)
    rows = mixed(4).drop_columns(["size", "year", "v"])
    rows = rows.append_column("size", pa.array([1.0, np.inf, np.nan, 1e300]))
    rows = rows.append_column("year", pa.array([-np.inf, None, 2000.0, 1e300]))
    rows = rows.append_column("v", pa.array([[1.0, 2.0, np.inf], [1.0, np.nan, 2.0], None, [1.0, 1.0, 1.0]]))
    _, bad = fitted.transform(rows)
    assert {row: reason.partition(",")[0] for row, reason in bad.items()} == {
        0: "year is -inf",
        1: "size is inf",
        3: "size is 1e+300",
    }
    _, bad = fitted.transform(rows.set_column(rows.column_names.index("year"), "year", pa.array([1.0] * 4)))
    assert bad[0].startswith("v[2] is inf")


def test_columns_of_a_wrong_kind() -> None:
    fitted = Preprocessor.fit(mixed(), ALL)
    rows = mixed(3).drop_columns(["words", "arch", "size", "v"])
    rows = rows.append_column("words", pa.array([["a"], None, ["b"]]))
    rows = rows.append_column("arch", pa.array([{"a": 1}, None, {"a": 2}]))
    rows = rows.append_column("size", pa.array([[1.0], None, [2.0]]))
    rows = rows.append_column("v", pa.array([1.0, None, 2.0]))
    _, bad = fitted.transform(rows)
    assert set(bad) == {0, 2}
    assert bad[0] == "words holds a list, expected text"
    for name, words in (("arch", "a record, expected one value"), ("size", "a list, expected a number")):
        only = mixed(3).drop_columns([name]).append_column(name, rows[name])
        assert fitted.transform(only)[1][0] == f"{name} holds {words}"
    only = mixed(3).drop_columns(["v"]).append_column("v", rows["v"])
    assert fitted.transform(only)[1][2] == "v holds values of type double, expected a list of 3 numbers"


def test_other_types_that_can_be_read() -> None:
    fitted = Preprocessor.fit(mixed(), ALL)
    table = pa.table(
        {
            "words": pa.array(["red fish"], pa.large_string()),
            "title": pa.array([5]),
            "size": pa.array([True]),
            "year": pa.array([1975], pa.decimal128(6, 1)),
            "arch": pa.array(["arm"]).dictionary_encode(),
            "flag": pa.array([None]),
            "v": pa.array([[1, 2, 3]], pa.list_(pa.int64(), 3)),
            "more": pa.array([b"not looked at"]),
        }
    )
    X, bad = fitted.transform(table)
    assert bad == {}
    assert X.nnz > 0


@pytest.mark.parametrize("value", [date(1975, 1, 1), pa.array([0], pa.timestamp("s", "Mars/Olympus")), "1975-01-01"])
def test_dates_are_no_numbers_where_the_fit_had_none(value: Any) -> None:
    rows = mixed(1).drop_columns(["year"]).append_column("year", value if isinstance(value, pa.Array) else [[value]])
    for fitted in (FITTED, Preprocessor.from_bytes(FITTED.to_bytes(), ALL)):
        _, bad = fitted.transform(rows)
        assert list(bad) == [0]
        assert bad[0].startswith("year ")
        assert bad[0].endswith("expected a number")


def test_dates_are_days() -> None:
    days = [date(2024, 1, 1 + i) for i in range(20)]
    table = pa.table({"day": days})
    columns = Columns(numeric=("day",))
    fitted = Preprocessor.fit(table, columns)
    X, _ = fitted.transform(table)
    assert np.allclose(np.diff(X[:, 0]), np.diff(X[:, 0])[0], atol=1e-3)
    strings, bad = fitted.transform(pa.table({"day": [*map(str, days[:2]), "2024-01-03T00:00:00Z", "2024-13-01"]}))
    np.testing.assert_allclose(strings[:3], X[:3], atol=1e-5)
    assert bad == {3: "day is '2024-13-01', expected a number"}
    zones = ["2024-01-01T01:00:00+01:00", "2024-01-01 22:30:00.123456789-01:30", "2024-01-03t00:00:00z"]
    np.testing.assert_allclose(fitted.transform(pa.table({"day": zones}))[0], X[:3], atol=1e-4)
    stamps = pa.array(days).cast(pa.timestamp("s")).cast(pa.int64()).cast(pa.timestamp("s", "Mars/Olympus"))
    np.testing.assert_allclose(fitted.transform(pa.table({"day": stamps}))[0], X, atol=1e-5)
    again = Preprocessor.from_bytes(Preprocessor.fit(pa.table({"day": [*map(str, days)]}), columns).to_bytes(), columns)
    np.testing.assert_allclose(again.transform(table)[0], X, atol=1e-5)  # dates as text, as a CSV has them


def test_whole_numbers_are_the_same_categories_in_every_type() -> None:
    columns = Columns(categorical=("code",))
    table = pa.table({"code": [123_456_789_012, 7, 0] * 20})
    fitted = Preprocessor.fit(table, columns)
    X, _ = fitted.transform(table)
    for kind in (pa.float64(), pa.string(), pa.decimal128(21, 2)):
        again, bad = fitted.transform(pa.table({"code": table["code"].cast(kind)}))
        assert bad == {}
        np.testing.assert_array_equal(again, X)


def test_missing_columns_are_named() -> None:
    fitted = Preprocessor.fit(mixed(), ALL)
    with pytest.raises(FeatureError, match=r"no column 'words', 'v', which the model needs. Its columns: title"):
        fitted.transform(mixed().drop_columns(["words", "v"]))
    with pytest.raises(FeatureError, match="'arch'"):
        fitted.known_share(mixed().drop_columns(["arch"]))
    with pytest.raises(FeatureError, match="'gone'"):
        Preprocessor.fit(mixed(), Columns(text=("gone",)))


def test_what_cannot_be_fitted() -> None:
    with pytest.raises(InputError, match="no row came"):
        Preprocessor.fit(mixed().slice(0, 0), ALL)
    with pytest.raises(FeatureError, match="no column is a feature"):
        Preprocessor.fit(mixed(), Columns())
    with pytest.raises(FeatureError, match="column 'x' holds no words"):
        Preprocessor.fit(pa.table({"x": ["", "...", None]}), Columns(text=("x",)))
    with pytest.raises(FeatureError, match="lists of one length"):
        Preprocessor.fit(pa.table({"x": [[1.0], [1.0, 2.0]]}), Columns(vector=("x",)))
    with pytest.raises(InputError, match="max_words=0 came"):
        Preprocessor.fit(mixed(), ALL, max_words=0)


def test_vocabulary_and_categories_are_capped() -> None:
    rng = np.random.default_rng(0)
    n = 500
    words = [f"common w{i} w{i // 2}" for i in range(n)]
    kinds = [f"k{int(k)}" for k in rng.zipf(1.5, n)]
    table = pa.table({"words": words, "kind": kinds})
    fitted = Preprocessor.fit(table, Columns(text=("words",), categorical=("kind",)), max_words=20, max_categories=10)
    names = fitted.feature_names.tolist()
    assert len(names) == 30
    assert "common" in names
    assert f"kind={OTHER}" in names
    assert "kind=k1" in names
    choices = fitted.form()[1]["choices"]
    assert len(choices) == 9
    assert choices[0] == "k1"
    assert OTHER not in choices
    row = pa.table({"words": ["common"], "kind": ["never seen"]})
    assert fitted.transform(row)[0].nnz == 2  # the word, and the feature of rare kinds


def test_a_category_for_each_row_stays_small() -> None:
    table = pa.table({"kind": [f"k{i}" for i in range(20_000)], "x": np.arange(20_000.0)})
    fitted = Preprocessor.fit(table, Columns(categorical=("kind",), numeric=("x",)))
    assert fitted.n_features == 2
    assert len(fitted.to_bytes()) < 200_000


def test_only_seen_rows_teach() -> None:
    table = mixed()
    fitted = Preprocessor.fit(table.slice(0, 60), ALL)
    other = pa.concat_tables([table.slice(0, 60), pa.Table.from_pylist([{"words": "new words only"}], table.schema)])
    assert "words: new" not in fitted.feature_names
    assert np.array_equal(dense(fitted.transform(table.slice(0, 60))[0]), dense(fitted.transform(other)[0])[:60])


def test_known_shares() -> None:
    table = pa.table({"words": ["red fish", "blue fish"] * 20, "kind": ["a", "b"] * 20})
    fitted = Preprocessor.fit(table, Columns(text=("words",), categorical=("kind",)))
    new = pa.table({"words": ["red cat", "cat", None, None], "kind": ["a", "c", "a", None]})
    assert fitted.known_share(new).tolist() == [pytest.approx(2 / 3), 0.0, 1.0, 1.0]
    assert fitted.transform_known(new)[2].tolist() == fitted.known_share(new).tolist()
    numbers = Preprocessor.fit(mixed(), Columns(numeric=("size",)))
    assert numbers.known_share(mixed(2)).tolist() == [1.0, 1.0]


def test_columns_that_are_missing_in_every_seen_row() -> None:
    table = pa.table({"x": pa.nulls(5), "y": pa.nulls(5, pa.float64()), "k": pa.nulls(5), "z": np.arange(5.0)})
    for columns in (Columns(numeric=("x", "y", "z")), Columns(numeric=("x", "z"), categorical=("k",))):
        fitted = Preprocessor.fit(table, columns)
        X, bad = fitted.transform(table)
        assert np.isfinite(X).all()
        assert not bad
    later, _ = fitted.transform(pa.table({"x": [5.0], "z": [1.0], "k": ["a"]}))
    assert np.isfinite(later).all()


def test_records_of_a_service() -> None:
    columns = Columns(id="name", text=("words",), numeric=("size",), target="label")
    table = records_to_table([{"name": 7, "words": "a", "more": {}}, {"size": "x", "label": None}], columns)
    assert table.to_pydict() == {"name": [7, None], "words": ["a", None], "size": [None, "x"], "label": [None, None]}
    with pytest.raises(InputError, match="record 1 is a list, expected an object"):
        records_to_table([{"words": "a"}, ["b"]], columns)  # type: ignore[list-item]
    with pytest.raises(FeatureError, match=r"no record has a column that the model knows. It needs: words, size"):
        records_to_table([{"wrods": "a"}], columns)
    with pytest.raises(InputError, match="lone surrogate"):
        records_to_table([{"words": "\ud800"}], columns)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["1", "NA", "[1]"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)
FITTED = Preprocessor.fit(mixed(), ALL)


@settings(deadline=None, max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.dictionaries(st.sampled_from(ALL.features), json_values), min_size=1, max_size=4))
def test_any_record_gives_features_or_a_reason(records: list[dict[str, Any]]) -> None:
    records[0] = dict.fromkeys(ALL.features) | records[0]
    try:
        table = records_to_table(records, ALL)
    except GsparcError:
        return
    X, bad = FITTED.transform(table)
    assert X.shape == (len(records), FITTED.n_features)
    assert np.isfinite(dense(X)).all()
    assert all(0 <= row < len(records) and reason for row, reason in bad.items())
    assert ((FITTED.known_share(table) >= 0) & (FITTED.known_share(table) <= 1)).all()


column_values = st.one_of(
    st.lists(st.one_of(st.none(), st.floats(width=32)), min_size=6, max_size=6),
    st.lists(st.one_of(st.none(), st.integers(-(2**40), 2**40)), min_size=6, max_size=6),
    st.lists(
        st.one_of(st.none(), st.text(max_size=10), st.sampled_from(["a b c d", "x", "1", ""])), min_size=6, max_size=6
    ),
    st.lists(st.one_of(st.none(), st.booleans()), min_size=6, max_size=6),
    st.lists(st.lists(st.floats(width=32), min_size=2, max_size=2), min_size=6, max_size=6),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(column_values, min_size=1, max_size=5))
def test_any_table_is_fitted_or_refused(columns: list[list[Any]]) -> None:
    table = pa.table({f"c{i}": values for i, values in enumerate(columns)})
    try:
        roles = guess_columns(table)
        fitted = Preprocessor.fit(table, roles)
    except GsparcError:
        return
    X, _ = fitted.transform(table)
    assert np.isfinite(dense(X)).all()
    again = Preprocessor.from_bytes(fitted.to_bytes(), Columns.from_json(json.loads(json.dumps(roles.to_json()))))
    assert np.array_equal(dense(again.transform(table)[0]), dense(X))
    assert json.loads(json.dumps(fitted.form(), allow_nan=False)) == fitted.form()


class Hostile:
    """What a pickle would run when it is opened."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch hostile-was-here",)


def schema_of(data: bytes) -> dict[str, Any]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return json.loads(archive.read("schema.json"))


def with_schema(data: bytes, schema: Any) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(out, "w") as changed:
        for name in archive.namelist():
            changed.writestr(name, json.dumps(schema) if name == "schema.json" else archive.read(name))
    return out.getvalue()


def test_a_hostile_file_executes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import skops.io

    monkeypatch.chdir(tmp_path)
    state = {**FITTED._state, "extra": Hostile()}
    with pytest.raises(DamagedModelError, match="which no model of gsparc has"):
        Preprocessor.from_bytes(skops.io.dumps(state), ALL)
    schema = schema_of(FITTED.to_bytes())
    for node in (
        {"__class__": "system", "__module__": "posix", "__loader__": "FunctionNode", "content": "posix.system"},
        {"__class__": "partial", "__module__": "functools", "__loader__": "PartialNode"},
        {"__class__": "dict", "__module__": "builtins", "__loader__": "ReduceNode"},
        {"__class__": "KMeans", "__module__": "sklearn.cluster", "__loader__": "ObjectNode"},  # harmless, but not ours
        {"__module__": "os"},
    ):
        with pytest.raises(DamagedModelError, match="which no model of gsparc has"):
            Preprocessor.from_bytes(
                with_schema(FITTED.to_bytes(), schema | {"content": schema["content"] | {"x": node}}), ALL
            )
    assert list(tmp_path.iterdir()) == []


def test_files_that_unpack_to_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gsparc.tables._skops._LARGEST", 1000)
    with pytest.raises(DamagedModelError, match="unpacks to more"):
        Preprocessor.from_bytes(FITTED.to_bytes(), ALL)


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"not a zip at all"])
def test_files_that_are_something_else(data: bytes) -> None:
    with pytest.raises(DamagedModelError, match=r"preprocess.skops.*cannot be read"):
        Preprocessor.from_bytes(data, ALL)


def changed_state(**changes: Any) -> bytes:
    import skops.io

    return skops.io.dumps({**FITTED._state, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 2},
        {"words": None},
        {"numbers": None},
        {"number_kind": "magic"},
        {"number_kind": "none"},
        {"units": np.zeros(1, np.float32)},
        {"units": np.full(2, np.nan, np.float32)},
        {"vector_widths": [2]},
        {"vector_widths": [-1]},
        {"vector_widths": [10**12]},
        {"vector_kind": "magic"},
        {"vector_fill": np.full(3, np.nan, np.float32)},
        {"vector_scales": np.zeros(0, np.float32)},
        {"examples": []},
    ],
)
def test_files_whose_parts_do_not_fit(changes: dict[str, Any]) -> None:
    with pytest.raises(DamagedModelError, match="do not fit together"):
        Preprocessor.from_bytes(changed_state(**changes), ALL)


def test_another_version_of_scikit_learn_is_no_reason_to_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sklearn.base.__version__", "99.0")
    assert Preprocessor.from_bytes(BYTES, ALL).n_features == FITTED.n_features


def test_files_of_other_columns() -> None:
    with pytest.raises(DamagedModelError, match="do not fit together"):
        Preprocessor.from_bytes(FITTED.to_bytes(), Columns(text=("words",)))
    with pytest.raises(DamagedModelError):
        Preprocessor.from_bytes(changed_state(words=[1]), ALL)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_damaged_bytes_are_refused_or_harmless(data: st.DataObject) -> None:
    content = bytearray(BYTES)
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    try:
        fitted = Preprocessor.from_bytes(bytes(content[: data.draw(st.integers(1, len(content)))]), ALL)
    except DamagedModelError:
        return
    assert np.isfinite(dense(fitted.transform(mixed(5))[0])).all()


BYTES = FITTED.to_bytes()


def test_the_bytes_do_not_depend_on_the_process() -> None:
    program = (
        "import hashlib, sys; junk = [object() for _ in range(int(sys.argv[1]))]\n"
        "import pyarrow as pa; from gsparc.tables.columns import Columns\n"
        "from gsparc.tables.preprocess import Preprocessor\n"
        "table = pa.table({'words': ['red fish', 'blue fish'], 'kind': ['a', 'b'], 'size': [1.0, 2.5]})\n"
        "columns = Columns(text=('words',), categorical=('kind',), numeric=('size',))\n"
        "data = Preprocessor.fit(table, columns).to_bytes(); print(hashlib.sha256(data).hexdigest())"
    )
    made = {
        subprocess.run([sys.executable, "-c", program, str(n)], capture_output=True, text=True, check=True).stdout
        for n in (0, 100_000)
    }
    assert len(made) == 1
    assert "_stop_words_id" not in json.dumps(schema_of(BYTES))


def test_equal_fits_are_equal_bytes() -> None:
    def made() -> bytes:
        table = pa.table({"words": ["file a file", "name __id__ file", "dog"], "size": [1.0, 2.0, None]})
        return Preprocessor.fit(table, Columns(text=("words",), numeric=("size",))).to_bytes()

    first = made()
    kept = [object() for _ in range(1000)]  # so that what comes lies elsewhere in memory
    assert made() == first
    assert len(kept) == 1000
    again = Preprocessor.from_bytes(first, Columns(text=("words",), numeric=("size",)))
    assert "file" in again.feature_names
