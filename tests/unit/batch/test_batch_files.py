"""Files of a batch: read line by line, mended, in use by one run at a time."""

from pathlib import Path

import pytest

from octavo.batch.files import BatchInput, BatchOutput
from octavo.errors import ConfigError

LINE = b'{"id":"batch_req_%016x","custom_id":"a","response":null,"error":%b}\n'


def lines_of(path, max_line_bytes=1000):
    batch = BatchInput(path, max_line_bytes)
    try:
        return [(one.number, one.text, one.is_cut) for one in batch], batch.size_bytes
    finally:
        batch.close()


def test_blank_lines_are_no_requests_and_the_last_line_needs_no_end(tmp_path):
    path = tmp_path / "in"
    path.write_bytes(b"\xef\xbb\xbfone\r\n\n  \ntwo\nthree")

    assert lines_of(path) == ([(1, b"one", False), (4, b"two", False), (5, b"three", False)], 21)


def test_a_line_that_is_too_long_is_cut_and_what_follows_is_whole(tmp_path):
    path = tmp_path / "in"
    path.write_bytes(b"x" * 50 + b"\n" + b"y" * 10 + b"\n" + b"z" * 11)
    batch = BatchInput(path, 11)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("octavo.batch.files._PIECE_BYTES", 7)
        lines = list(batch)
    batch.close()

    assert [(one.number, one.text[:1], len(one.text), one.is_cut) for one in lines] == [
        (1, b"x", 11, True),
        (2, b"y", 10, False),
        (3, b"z", 11, False),
    ]
    assert sum(one.size_bytes for one in lines) == batch.size_bytes


def test_a_half_written_last_line_is_taken_away(tmp_path):
    path = tmp_path / "out"
    path.write_bytes(LINE % (1, b"null") + LINE % (2, b"{}") + (LINE % (3, b"null"))[:-1])
    with BatchOutput(path) as output:
        assert (output.done, output.num_failed) == ({1, 2}, 1)
        output.write(LINE % (4, b"null"))

    assert path.read_bytes() == LINE % (1, b"null") + LINE % (2, b"{}") + LINE % (4, b"null")


def test_what_another_program_wrote_is_left_as_it_is(tmp_path):
    path = tmp_path / "out"
    text = LINE % (1, b"null") + b"my notes\nhalf"
    path.write_bytes(text)

    with pytest.raises(ConfigError) as caught:
        BatchOutput(path)
    assert str(caught.value).startswith(f"line 2 of '{path}' is no answer of a batch\n")
    assert path.read_bytes() == text


def test_two_runs_do_not_write_to_one_file(tmp_path):
    path = tmp_path / "out"
    with BatchOutput(path), pytest.raises(ConfigError, match="another run writes to"):
        BatchOutput(path)
    BatchOutput(path).__exit__()


@pytest.mark.parametrize("path", ["/dev/null", "/nowhere/out", "/"])
def test_an_output_that_cannot_be_kept_is_refused(path):
    with pytest.raises(ConfigError):
        BatchOutput(Path(path))


def test_a_disk_that_is_full_is_told(tmp_path):
    path = tmp_path / "out"
    with BatchOutput(path) as output, Path("/dev/full").open("wb", buffering=0) as full:
        output._file.close()
        output._file = full
        with pytest.raises(ConfigError, match=r"cannot write to .*\n  No space left"):
            output.write(b"x\n")
