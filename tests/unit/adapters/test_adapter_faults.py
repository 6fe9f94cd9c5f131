"""Lines that tell what is wrong with an adapter's tensors."""

from __future__ import annotations

from octavo.adapter_faults import TensorFault, fault_lines


def test_layers_come_in_the_order_of_their_numbers_and_share_a_line():
    faults = [TensorFault(f"m.{i}.q", "too wide", f"did you mean {i}?") for i in (10, 9, 2)]
    assert fault_lines([*faults, TensorFault("m.1.q", "too deep")]) == [
        "m.1.q: too deep",
        "m.2.q (and 2 like it): too wide; did you mean 2?",
    ]


def test_what_is_left_out_is_counted_by_tensors():
    faults = [TensorFault(f"{c}.{i}", "bad") for c in "abcdefghij" for i in range(3)]
    lines = fault_lines(faults)
    assert lines[0] == "a.0 (and 2 like it): bad"
    assert lines[8:] == ["and 6 more faults"]


def test_nothing_wrong_is_no_line():
    assert fault_lines([]) == []
