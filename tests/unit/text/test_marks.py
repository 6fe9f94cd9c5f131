"""A mark is found when it is certain, wherever a text was cut."""

from octavo.text.marks import Found, Marks


def test_the_first_mark_is_found_and_its_beginning_is_held():
    marks = Marks("<call>", "</call>", "[x]")

    assert marks.find("a <call> [x]", 0) == Found(2, "<call>")
    assert marks.find("a <call> [x]", 3) == Found(9, "[x]")
    assert marks.find("a <cal", 0) == Found(2, "")
    assert marks.find("a <b", 0) == Found(4, "")
    assert marks.find("<", 0) == Found(0, "")
    assert marks.find("", 0) == Found(0, "")


def test_a_mark_within_what_may_become_a_longer_one_is_not_certain():
    marks = Marks("abcd", "bc")

    assert marks.find("xabc", 0) == Found(1, "")
    assert marks.find("xabcd", 0) == Found(1, "abcd")
    assert marks.find("xabce", 0) == Found(2, "bc")
