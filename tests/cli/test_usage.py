"""Help, version, wrong usage and bad input: the exit status and one sentence, never a traceback."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest
import typer

from gsparc._version import __version__
from gsparc.cli import main
from gsparc.cli.common import command, plain


def fails(done: subprocess.CompletedProcess[str], pattern: str, status: int = 1) -> None:
    """The process failed as a user should see it."""
    assert done.returncode == status, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert re.search(pattern, done.stderr), done.stderr
    if status == 1:
        (line,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert re.search(pattern, line)


COMMANDS = (
    *("demo", "fit", "predict", "evaluate", "grow", "serve", "export"),
    *("embed", "links", "cluster", "reproduce", "datasets", "info"),
)


def test_version(gsparc) -> None:
    done = gsparc("--version")
    assert (done.returncode, done.stdout.strip()) == (0, f"gsparc {__version__}")


def test_help_is_quick_and_lists_the_commands(gsparc) -> None:
    start = time.perf_counter()
    done = gsparc("--help")
    assert time.perf_counter() - start < 3.0  # 0.2 s on an idle machine; torch alone would take longer
    assert done.returncode == 0
    assert all(name in done.stdout for name in COMMANDS)
    assert "Exit status: 0 success" in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_shows_an_example(inside, name: str) -> None:
    done = inside(name, "--help")
    assert done.returncode == 0
    assert f"gsparc {name}" in " ".join(done.stdout.split()).partition("Example: ")[2]
    assert "--json" in done.stdout or name == "serve"  # which answers over HTTP


@pytest.mark.parametrize(
    ("arguments", "pattern"),
    [
        (["embde"], "No such command"),
        (["embed"], "DATA is missing"),
        (["embed", "x.npz", "-o", "coords.txt"], r"\.parquet"),
        (["embed", "x.npz", "--components", "0"], "components"),
        (["embed", "x.npz", "--model", "a", "--model-out", "b"], "not both"),
        (["links", "x.npz", "--new", "y.npz"], "-o"),
        (["links", "x.npz", "--model", "m"], "needs --new"),
        (["demo", "--seed", "-1"], "seed"),
        (["links", "x.npz", "-k", "0"], "-k"),
    ],
)
def test_wrong_usage_is_status_2(inside, arguments: list[str], pattern: str) -> None:
    fails(inside(*arguments), pattern, status=2)


def test_unknown_data_set_offers_the_nearest(gsparc, tmp_path: Path) -> None:
    fails(gsparc("embed", "debain", "-o", tmp_path / "c.parquet"), "Did you mean 'debian'")


def test_missing_file(inside, tmp_path: Path) -> None:
    fails(inside("info", tmp_path / "nowhere.npz"), "there is no file .*nowhere.npz")


def test_output_under_a_file_is_refused_before_the_fit(gsparc, small: Path) -> None:
    done = gsparc("embed", small, "-o", small / "coords.parquet")
    fails(done, "cannot write .*coords.parquet")
    assert "fitting" not in done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_read_only_folder(gsparc, small: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    fails(gsparc("demo", "--dataset", small, "-o", tmp_path / "out"), "cannot write .*Permission denied")


def test_width_of_new_nodes_is_checked_before_the_fit(inside, small: Path, tmp_path: Path) -> None:
    done = inside("links", small, "--new", small.with_name("narrow.npz"), "-o", tmp_path / "links.csv", "--json")
    fails(done, r"narrow\.npz has 3 features but small has 8")
    assert "fitting" not in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["embed", "links", "info"])
def test_a_file_is_no_data_set(inside, tmp_path: Path, command: str) -> None:
    options = [] if command == "info" else ["-o", tmp_path / "out.csv"]
    fails(inside(command, "graph.csv", *options), r"there is no file graph\.csv.*\.npz.*nodes\.parquet")


def test_new_nodes_of_a_kind_that_is_not_read(inside, small: Path, tmp_path: Path) -> None:
    (tmp_path / "new.csv").write_text("id,u\na,1\n")
    output = tmp_path / "links.csv"
    fails(inside("links", small, "--new", tmp_path / "new.csv", "-o", output), r"new\.csv is of a kind.*Parquet table")
    fails(inside("links", small, "--new", "gone.csv", "-o", output), r"there is no file gone\.csv.*Parquet table")


@pytest.mark.parametrize("command", ["embed", "links"])
def test_a_model_folder_that_holds_something_else(inside, small: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("")
    new, output = small.with_name("new.npz"), tmp_path / "out.csv"
    done = inside(command, small, "--new", new, "-o", output, "--model-out", tmp_path / "precious")
    fails(done, "precious.* is not a gsparc model")
    assert "fitting" not in done.stderr
    done = inside(command, small, "--new", new, "-o", output, "--model-out", small / "model")
    fails(done, "cannot write")
    assert "fitting" not in done.stderr


@pytest.mark.parametrize("name", ["classifier", "links"])
def test_demo_checks_its_model_folders_first(inside, small: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "thesis.txt").write_text("")
    done = inside("demo", "--dataset", small, "-o", tmp_path)
    fails(done, f"{name}.* is not a gsparc model")
    assert "loading" not in done.stderr


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_new_features_that_are_not_finite(inside, small: Path, tmp_path: Path, value: float) -> None:
    import numpy as np

    x = np.ones((4, 8), np.float32)
    x[2, 5] = value
    np.savez(tmp_path / "bad.npz", x=x, node_ids=np.array(["a", "b", "c", "d"]))
    done = inside("embed", small, "--new", tmp_path / "bad.npz", "-o", tmp_path / "c.csv")
    fails(done, rf"bad\.npz: the feature in row 3 \(id c\), column 6 is {value}")
    assert "fitting" not in done.stderr


def test_label_is_for_fitting(inside, small: Path, tmp_path: Path) -> None:
    fails(inside("embed", small, "--model", "m", "--label", "kind"), "--label is for fitting", status=2)
    fails(inside("embed", small, "--label", "kind", "-o", tmp_path / "c.csv"), "names a column of nodes.parquet")


@pytest.mark.parametrize(("kind", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_an_interrupt_leaves_nothing(small: Path, tmp_path: Path, kind: int, status: int) -> None:
    output = tmp_path / "coords.parquet"
    arguments = ["embed", small, "-o", output, "--max-steps", "1000000", "--components", "4"]
    process = subprocess.Popen(
        [sys.executable, "-m", "gsparc", *map(str, arguments)], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "fitting" in process.stderr.readline()
    process.send_signal(kind)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == status
    assert "error: interrupted" in errors
    assert "Traceback" not in errors
    assert list(tmp_path.iterdir()) == []


def test_sigterm_leaves_no_temporary_folder(tmp_path: Path) -> None:
    (temporary := tmp_path / "temporary").mkdir()
    process = subprocess.Popen(
        [sys.executable, "-m", "gsparc", "reproduce", "links", "--smoke", "-q", "-o", str(tmp_path / "out")],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(temporary)},
    )
    end = time.monotonic() + 120
    while not list(temporary.glob("gsparc-*")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 143
    assert "error: interrupted" in errors
    assert list(temporary.iterdir()) == []


def test_the_command_line_within_another_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["gsparc", "--version"])
    before, left = signal.getsignal(signal.SIGTERM), []

    def run() -> None:
        with pytest.raises(SystemExit) as end:
            main()
        left.append(end.value.code)

    for thread in (threading.Thread(target=run), None):
        if thread is None:
            run()
        else:
            thread.start()
            thread.join()
    assert left == [0, 0]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="signals end a process at once there")
@pytest.mark.parametrize(("apart", "status"), [(0.0, 7), (0.3, -signal.SIGTERM)], ids=["at once", "later"])
def test_a_second_sigterm(apart: float, status: int) -> None:
    code = f"""
import os, signal, sys, time
import gsparc.cli.app
app = sys.modules["gsparc.cli.app"]
app._SAME_WISH = 0.1
with app._interrupted_by_sigterm():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
    except KeyboardInterrupt:
        time.sleep({apart})
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.1)
        sys.exit(7)
"""
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == status


def test_an_unexpected_error_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    @command
    def broken() -> None:
        raise RuntimeError("two\nlines")

    with pytest.raises(typer.Exit) as left:
        broken()
    assert left.value.exit_code == 1
    assert capsys.readouterr().err.startswith("error: unexpected RuntimeError: two lines (GSPARC_DEBUG=1")


def test_debugging_shows_where_an_error_arose(monkeypatch: pytest.MonkeyPatch) -> None:
    @command
    def broken() -> None:
        raise RuntimeError("here")

    monkeypatch.setenv("GSPARC_DEBUG", "1")
    with pytest.raises(RuntimeError, match="here"):
        broken()


def test_json_never_holds_nan() -> None:
    import numpy as np

    value = {"a": np.float32(0.5), "b": [float("nan"), np.array([1, 2])], 3: Path("x"), "c": np.bool_(True)}
    expected = {"a": 0.5, "b": [None, [1, 2]], "3": "x", "c": True}
    assert json.loads(json.dumps(plain(value), allow_nan=False)) == expected


def test_warnings_are_notes_and_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    @command
    def warns() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            for _ in range(2):
                warnings.warn("this is\nodd", UserWarning, stacklevel=1)

    warns()
    assert capsys.readouterr().err == "note: this is odd\n"
