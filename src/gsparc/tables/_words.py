"""Words of texts: what a word is in any script, and how often a vocabulary's words occur in each text."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import scipy.sparse as sp

__all__ = ["TOKEN", "Words", "tokens"]

# Scripts that are written without spaces between words (Thai, Lao, Myanmar, Khmer, kana, Han): overlapping pairs of
# characters serve as words, the usual choice where there is no dictionary.
_UNSPACED = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
# Signs that Python does not count to the letters though they are parts of words: accents, vowels of Semitic and Indic
# scripts. (The two Indic full stops lie between them and are left out.)
_MARKS = (
    r"\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06e8\u0711\u0730-\u074a\u0900-\u0963\u0966-\u0dff\u0f71-\u0f84"
)
_LETTER = rf"[^\W_{_UNSPACED}]"
_WORD = rf"{_LETTER}+(?:[{_MARKS}]+{_LETTER}*)*(?:\+\+|\#)?"  # c++ and c# end in their signs
_PAIR = rf"[{_UNSPACED}][{_UNSPACED}]?"
# A look ahead takes the word or the pair, then the word or one character is passed: so pairs overlap.
TOKEN = rf"(?u)(?=({_WORD}|{_PAIR}))(?:{_WORD}|[{_UNSPACED}])"
_find = re.compile(TOKEN).findall
_find_spaced = re.compile(rf"(?u){_WORD}").findall  # the same for texts without such scripts, in half the time
_find_ascii = re.compile(r"[a-z0-9]+(?:\+\+|#)?").findall  # and for plain English in half of that
_unspaced = re.compile(rf"[{_UNSPACED}]").search


def tokens(text: str) -> list[str]:
    """Words of a text in small letters.

    Examples
    --------
    >>> tokens("GNU C++ and x86-64 for 東京都 हिन्दी")
    ['gnu', 'c++', 'and', 'x86', '64', 'for', '東京', '京都', '都', 'हिन्दी']
    """
    text = text.lower()
    if text.isascii():
        return _find_ascii(text)
    return _find(text) if _unspaced(text) else _find_spaced(text)


class Words:
    """Logarithms of word counts, each text scaled to length one.

    As scikit-learn's ``TfidfVectorizer(sublinear_tf=True, use_idf=False)``, without its checks of each call.
    """

    def __init__(self, vocabulary: dict[str, int]) -> None:
        self.vocabulary = vocabulary
        self.width = len(vocabulary)

    def rows(self, texts: list[str]) -> tuple[Any, np.ndarray, np.ndarray]:
        """CSR ``[rows, words]``, and of each text how many words are known and how many there are."""
        lookup = self.vocabulary.get
        columns: list[int] = []
        known = np.zeros(len(texts), np.int64)
        total = np.zeros(len(texts), np.int64)
        for row, text in enumerate(texts):
            words = tokens(text)
            found = [column for column in map(lookup, words) if column is not None]
            columns += found
            known[row], total[row] = len(found), len(words)
        return self._weighed(np.array(columns, np.int32), known), known, total

    def _weighed(self, columns: np.ndarray, lengths: np.ndarray) -> Any:
        pointers = np.concatenate([[0], np.cumsum(lengths)])
        ones = np.ones(len(columns), np.float32)
        counts = sp.csr_array((ones, columns, pointers), shape=(len(lengths), self.width))
        counts.sum_duplicates()
        counts.data = 1 + np.log(counts.data)
        row = np.repeat(np.arange(len(lengths)), np.diff(counts.indptr))
        norm = np.sqrt(np.bincount(row, counts.data.astype(np.float64) ** 2, minlength=len(lengths)))
        counts.data = (counts.data / norm[row]).astype(np.float32)
        return counts
