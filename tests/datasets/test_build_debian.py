"""The script that rebuilds the embedded graph, on four packages written out here."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

PACKAGES = """\
Package: ed
Section: editors
Depends: libc6 (>= 2.34), mail-agent | nothing
Description-md5: 1

Package: libc6
Source: glibc (2.36)
Section: libs
Provides: libc-virtual (= 1)
Description-md5: 2

Package: libc6-doc
Source: glibc
Section: non-free/doc
Description-md5: 3

Package: mta
Section: mail
Provides: mail-agent
Recommends: missing | libc-virtual:any, mta
Description-md5: 4

Package: mta2
Section: mail
Provides: mail-agent
Description: a mail server
Description-md5: 5
"""
DESCRIPTIONS = """\
Package: ed
Description-md5: 1
Description-en: line editor
 The ed editor.
 .
 Shared words.

Package: libc6
Description-md5: 2
Description-en: standard library
 Shared words.

Package: libc6-doc
Description-md5: 3
Description-en: manual
 Shared words.
"""


@pytest.fixture(scope="module")
def script(project):
    spec = importlib.util.spec_from_file_location("build_debian", project / "scripts" / "build_debian.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def lists(tmp_path):
    (tmp_path / "packages").write_text(PACKAGES)
    (tmp_path / "descriptions").write_text(DESCRIPTIONS)
    return tmp_path / "packages", tmp_path / "descriptions"


def test_build(script, lists, monkeypatch):
    monkeypatch.setattr(script, "MIN_CLASS", 1)
    monkeypatch.setattr(script, "MIN_DF", 1)
    monkeypatch.setattr(script, "MAX_DF_SHARE", 1.0)
    arrays = script.build(*lists)
    assert arrays["node_ids"].tolist() == ["ed", "glibc", "mta", "mta2"]
    # ed needs libc6, mta the virtual name that glibc alone provides; mail-agent has two providers
    assert arrays["edges"].tolist() == [[0, 1], [1, 2]]
    assert arrays["class_names"].tolist() == ["editors", "libs", "mail"]
    assert arrays["y"].tolist() == [0, 1, 2, 2]
    counts = np.zeros(arrays["x_shape"])
    rows = np.repeat(np.arange(4), np.diff(arrays["x_indptr"]))
    counts[rows, arrays["x_indices"]] = arrays["x_data"]
    column = dict(zip(arrays["feature_names"].tolist(), counts.T.tolist(), strict=True))
    assert column["editor"] == [2, 0, 0, 0]
    assert column["words"] == [1, 1, 0, 0]  # a paragraph of two binaries of one source counts once
    assert column["server"] == [0, 0, 0, 1]  # without a long description the short one serves
    assert "the" not in column


def test_small_and_packaging_sections_are_unlabelled(script):
    y, names = script.label_sections(["games"] * 30 + ["news"] * 29 + ["metapackages"] * 40)
    assert names == ["games"]
    assert np.bincount(y + 1).tolist() == [69, 30]


def test_dependency_names(script):
    found = list(script.dependency_names("a (>= 1) | b:any, c [amd64],d(<< 2)"))
    assert found == [["a", "b"], ["c"], ["d"]]
    assert list(script.dependency_names("")) == []


def test_siblings_share_a_group(script):
    import scipy.sparse as sp

    x = sp.csr_matrix(np.array([[1, 1, 0], [2, 2, 0], [1, 0, 0], [5, 3, 0], [0, 0, 1.0]]))
    groups = script.group_siblings(x, ["one", "two", "gcc-11", "gcc-12", "other"])
    # one = two in direction; gcc-12 is near both (0.97), and near gcc-11 (0.86, one name but for digits)
    assert len(set(groups[:4].tolist())) == 1
    assert groups[4] != groups[0]
