"""Targets that threads import at the same time leave the process's output where it was."""

import sys
import threading
import time

from octavo.plugin.files import import_target


def test_output_is_where_it_was_when_threads_have_imported(tmp_path, capsys):
    for name in ("slow", "slower"):
        text = f"import time\nprint('{name}')\ntime.sleep(0.2)\nclass Thing: pass\n"
        (tmp_path / f"{name}.py").write_text(text)
    before = sys.stdout
    threads = []
    for name in ("slow", "slower"):
        target = f"{tmp_path / name}.py:Thing"
        threads.append(threading.Thread(target=import_target, args=(target,)))
        threads[-1].start()
        time.sleep(0.05)
    for thread in threads:
        thread.join()

    assert sys.stdout is before


def test_what_a_module_prints_is_no_output(tmp_path, capsys):
    (tmp_path / "loud.py").write_text("print('hello')\nclass Thing: pass\n")
    import_target(f"{tmp_path / 'loud'}.py:Thing")
    out, err = capsys.readouterr()
    assert (out, err) == ("", "hello\n")
