"""Texts that a tokenizer may lose a part of: all planes, bytes, spaces and controls of Unicode.

Knows characters and their bytes. Does not know tokenizers.
"""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from itertools import product

from hypothesis import strategies as st

#: what people write; short, as they are also cut in all ways
TEXTS = (
    "Hello, world!",
    "  two spaces, and a\ttab\n\nand lines \n",
    "naïve café, Größe, Ærøskøbing",
    "日本語のテキスト 中文 한국어",
    "🙂🙃 flags 🇩🇰 and families 👨‍👩‍👧‍👦",
    "x = [1, 2.5e-3]; if (a != b) { return c->d; }",
    "ﷺ e\u0301 \u200bzero-width",
    "lines\r\nof\rothers \u00a0",
    "\U0010fffd, \U000e0041 and \U0003134a",
    "",
    " ",
)
_PLANES = range(17)
_PLANE = 0x10000
#: within a plane: the first and last bytes of three and of four, and some between
_PLACES = (0x0000, 0x0041, 0x0FFF, 0x1000, 0x3FFF, 0x4E2D, 0x7FFF, 0x8000, 0xBFFF, 0xC000, 0xFFFD)
_SURROGATES = range(0xD800, 0xE000)
#: whatever ends lines and words, in pairs
_PAIRED = " \t\n\r\v\f\u0085\u00a0\u2028\u3000"


@cache
def hard_texts() -> tuple[str, ...]:
    """Return texts with every space, control and byte of UTF-8, and with all planes."""
    unseen = _unseen()
    paired = [first + second for first, second in product(_PAIRED, repeat=2)]
    return (
        *(form.format(one) for one in (*unseen, *paired) for form in ("{}", "x{}", "{}x", "a{}b")),
        *("".join(map(chr, range(first, first + 64))) for first in range(0, 0x800, 64)),
        *(chr(first << 12 | place) for first in range(1, 16) for place in (0, 0x800, 0xFFD)
          if first << 12 | place not in _SURROGATES),
        *("".join(chr(plane * _PLANE + place) for place in _PLACES) for plane in _PLANES),
        *("x" * count + end for count in (63, 64, 255, 1000) for end in ("", " ", "\n")),
        *(one * count for one in " \n\ta0" for count in (2, 3, 7, 16, 17, 130)),
    )  # fmt: skip


def _unseen() -> list[str]:
    """Return all characters that separate, control or format."""
    every = map(chr, range(sys.maxunicode + 1))
    kinds = {"Cc", "Zs", "Zl", "Zp"}
    seldom = ("\u00ad", "\u200b", "\u200c", "\u200d", "\u200e", "\u2060", "\ufeff", "\U000e0001")
    return [one for one in every if unicodedata.category(one) in kinds] + list(seldom)


def texts() -> st.SearchStrategy[str]:
    """Return random texts: of all characters, of lines and words, and of planes by turns."""
    characters = st.characters(exclude_categories=["Cs"])
    of_planes = st.builds(
        lambda plane, place: chr(plane * _PLANE + place),
        st.integers(1, _PLANES[-1]),
        st.integers(0, 0xFFFF),
    )
    return st.one_of(
        st.text(characters, max_size=40),
        st.text(st.sampled_from(f"{_PAIRED}aZ0.,'-é中🙂"), max_size=40),
        st.lists(of_planes, max_size=12).map("".join),
    )
