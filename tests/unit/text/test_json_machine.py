"""What is followed is valid JSON to the last character, in any pieces."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.text.json_machine import JsonMachine

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)  # fmt: skip


def follow(text, size=1):
    """Return what is valid of a text that comes in pieces, how much was read, and the machine."""
    machine, parts, num_read = JsonMachine(), [], 0
    for at in range(0, len(text), size):
        piece = text[at : at + size]
        valid, end = machine.run(piece, 0)
        parts.append(valid)
        num_read += end
        if machine.is_complete or machine.is_broken:
            break
    return "".join(parts), num_read, machine


@given(VALUES, st.sampled_from([None, 2]), st.booleans(), st.integers(1, 5))
@settings(max_examples=200, deadline=None)
def test_any_value_is_followed_to_its_end(value, indent, ascii_only, size):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)

    valid, num_read, machine = follow(text + ", x", size)

    assert machine.is_complete
    assert valid.strip() == text
    assert num_read in {len(text), len(text) + 1} or not isinstance(value, int | float | None)
    assert num_read == len(text)


@pytest.mark.parametrize(
    ("text", "num_valid"),
    [
        ('{"a": 1,}', 8), ("{'a'", 1), ('{"a" 1}', 5), ('{"a": tru}', 9), ('{"a": 01}', 7),
        ('{"a": 1.}', 8), ('{"a": +1}', 6), ('{"a": nul l}', 9), ("[1 2]", 3), ("[,", 1),
        ('["\\x"]', 3), ('["\\u12g4"]', 6), ("[1}", 2), ('{"a": 1]', 7), ("NaN", 0), ("]", 0),
        ("{1: 2}", 1), ("[" * 101, 100), ("[" + "1" * 401 + "]", 401), ("[--1]", 2), ("[.5]", 1),
    ],
)  # fmt: skip
def test_what_is_no_json_is_told_where_it_breaks(text, num_valid):
    for size in (1, 3, len(text)):
        valid, num_read, machine = follow(text, size)

        assert (machine.is_broken, num_read, len(valid)) == (True, num_valid, num_valid)
        assert not machine.is_complete


def test_control_characters_in_strings_become_escapes():
    valid, num_read, machine = follow('{\n"a\tb": "c\nd\x00"}')

    assert (valid, machine.is_complete) == ('{\n"a\\tb": "c\\nd\\u0000"}', True)
    assert num_read == len('{\n"a\tb": "c\nd\x00"}')
    assert json.loads(valid) == {"a\tb": "c\nd\x00"}


def test_a_value_without_brackets_ends_before_what_is_not_its_own():
    valid, num_read, machine = follow("-12.5e3}", 8)

    assert (valid, num_read, machine.is_complete) == ("-12.5e3", 7, True)
