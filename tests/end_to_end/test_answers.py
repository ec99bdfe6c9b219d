"""An answer that is kept is given again only while everything it came from is as it was."""

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from timesink.cli import answers

DEMO = Path(__file__).parents[2] / "src" / "timesink" / "cli" / "demo" / "gpt_before.json.gz"
OLD_NS = 10**18  # 2001: what was written long before it is read

# A command that tells what it came from, and counts its runs: what takes a second in `diagnose` takes none here.
PROGRAM = """
import os, sys
from timesink.cli.answers import answered
sys.path.insert(0, sys.argv[1])
with open(os.path.join(sys.argv[1], "..", "first")) as first:
    exec(first.read())

def run(words):
    os.write(int(os.environ["RUNS"]), b"x")
    import helper
    for name in ("first.json", "second.json", "a/b/third.json"):
        if os.path.exists(name):
            with open(name) as file:
                print(name, file.read())
    print(helper.SAYS, sorted(os.listdir("folder")), os.environ.get("TIMESINK_BUDGET"), os.getcwd())
    sys.stderr.write("a note\\n")
    exec(os.environ.get("AND", ""))
    return int(os.environ.get("CODE", "0"))

code = answered(sys.argv[2:], run)
sys.stdout.flush()
sys.exit(code)
"""


class Asked:
    """The program in a folder of its own, asked again and again. `runs`: how often it had to answer itself."""

    def __init__(self, folder: Path) -> None:
        self.work, self.modules, self.cache = folder / "work", folder / "modules", folder / "cache"
        (self.work / "folder").mkdir(parents=True)
        self.modules.mkdir()
        self.python = [sys.executable]
        self.racy_ns = 0  # nothing sets the time of a change back: files of a test are never old
        self.words, self.environment, self.counted = ["diagnose", "first.json"], dict[str, str](), folder / "runs"
        self.counted.touch()
        self.write("first", "")
        self.write("work/first.json", "old")
        self.write("modules/helper.py", "SAYS = 'old'")
        for path in (self.work / "folder", self.work, self.modules, folder):
            os.utime(path, ns=(OLD_NS, OLD_NS))

    def write(self, name: str, text: str) -> Path:
        path = self.cache.parent / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, ns=(OLD_NS, OLD_NS))
        return path

    @property
    def entries(self) -> list[Path]:
        return sorted((self.cache / "answers").glob("*"))

    @property
    def runs(self) -> int:
        return self.counted.stat().st_size

    def first(self, statement: str) -> None:
        """What the program does before it looks for an answer; no answer comes from the file in which this stands."""
        self.write("first", statement)

    def __call__(self, cwd: Path | None = None, **streams: Any) -> tuple[int, bytes, bytes]:
        program = f"import timesink.cli.answers as a; a._RACY_NS = {self.racy_ns}\n{PROGRAM}"
        given = {**os.environ, "TIMESINK_CACHE_DIR": str(self.cache), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.counted.open("ab") as counter:
            environment = {**given, **self.environment, "RUNS": str(counter.fileno())}
            command = [*self.python, "-c", program, str(self.modules), *self.words]
            done = subprocess.run(
                command,
                cwd=cwd or self.work,
                env=environment,
                **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams},
                pass_fds=[counter.fileno()],
                check=False,
            )
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def asked(tmp_path: Path) -> Asked:
    return Asked(tmp_path)


def test_an_answer_is_given_again_byte_for_byte(asked: Asked) -> None:
    first = asked()
    assert asked() == first == asked()
    assert asked.runs == 1
    assert first[0] == 0 and b"first.json old" in first[1] and first[2] == b"a note\n"
    (entry,) = asked.entries
    assert entry.parent.stat().st_mode & 0o777 == 0o700


def replaced(asked: Asked) -> None:
    asked.write("work/other.json", "new").replace(asked.work / "first.json")
    os.utime(asked.work / "first.json", ns=(OLD_NS, OLD_NS))


def in_place(asked: Asked) -> None:
    asked.write("work/first.json", "new")


def gone(asked: Asked) -> None:
    (asked.work / "first.json").unlink()


def turned_link(asked: Asked) -> None:
    link = asked.work / "second.json"
    link.unlink()
    link.symlink_to(asked.write("elsewhere", "new"))


CHANGES: dict[str, Callable[[Asked], object]] = {
    "replaced by one of the same size and time": replaced,
    "written in place, its time set back": in_place,
    "deleted": gone,
    "a file where there was none": lambda asked: asked.write("work/second.json", "new"),
    "a file in a folder that was not there": lambda asked: asked.write("work/a/b/third.json", "new"),
    "a folder has a file more": lambda asked: asked.write("work/folder/more", ""),
    "a folder has a file less": lambda asked: (asked.work / "folder" / "one").unlink(),
    "a link leads elsewhere": turned_link,
    "a module is edited": lambda asked: asked.write("modules/helper.py", "SAYS = 'new'"),
    "a module stands before another": lambda asked: asked.write("modules/helper/__init__.py", "SAYS = 'new'"),
    "a file may no longer be read by all": lambda asked: (asked.work / "first.json").chmod(0o600),
    "the environment": lambda asked: asked.environment.update(TIMESINK_BUDGET="2"),
    "the width": lambda asked: asked.environment.update(COLUMNS="61"),
    "the time zone": lambda asked: asked.environment.update(TZ="Asia/Tokyo"),
    "the locale": lambda asked: asked.environment.update(LC_ALL="POSIX"),
    "the encoding": lambda asked: asked.environment.update(PYTHONIOENCODING="latin-1"),
    "how Python runs": lambda asked: asked.environment.update(PYTHONOPTIMIZE="1"),
    "a flag": lambda asked: asked.python.append("-O"),
    "the words": lambda asked: asked.words.append("--verbose"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_answer_outlives_what_it_came_from(asked: Asked, change: str) -> None:
    (asked.work / "second.json").symlink_to(asked.write("pointed", "old")) if "link" in change else None
    asked.write("work/folder/one", "") if "less" in change else None
    before = asked()
    assert asked() == before and asked.runs == 1
    CHANGES[change](asked)
    after = asked()
    assert asked.runs == 2
    asked.environment["TIMESINK_CACHE_BYTES"] = "0"
    assert asked() == after


def test_a_module_that_stands_before_one_imported_before_ends_an_answer(asked: Asked) -> None:
    asked.first("import helper")
    asked()
    asked.write("modules/helper/__init__.py", "SAYS = 'new'")
    assert b"new" in asked()[1] and asked.runs == 2


def test_another_folder_has_its_own_answers(asked: Asked) -> None:
    """Also where all that is found there is the same: the folder's name may be part of an answer."""
    asked()
    other = asked.cache.parent / "other"
    other.mkdir()
    for name in ("first.json", "folder"):
        (other / name).symlink_to(asked.work / name)
    assert str(other).encode() in asked(other)[1]
    assert asked.runs == 2


def test_each_fact_about_a_file_tells_it_from_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "module.py").touch()
    path, facts = str(tmp_path / "module.py"), (tmp_path / "module.py").stat()
    before = answers._state(path)
    for field in ("st_dev", "st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns"):
        names = ("st_dev", "st_ino", "st_mode", "st_size", "st_mtime_ns", "st_ctime_ns")
        other = SimpleNamespace(**{name: getattr(facts, name) + (name == field) for name in names})
        with monkeypatch.context() as patch:
            patch.setattr(os, "stat", lambda _, told=other: told)
            assert answers._state(path) != before
    assert answers._state(path) == before


def on_terminal(asked: Asked, columns: int) -> bytes:
    """What the program writes to a terminal so wide."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    try:
        asked(stdout=theirs)
        return os.read(ours, 10_000)
    finally:
        os.close(ours)
        os.close(theirs)


def test_terminals_of_other_widths_and_what_is_no_terminal_have_their_own_answers(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    first = on_terminal(asked, 80)
    assert on_terminal(asked, 80) == first and b"first.json old" in first and asked.runs == 1
    on_terminal(asked, 81)
    assert asked.runs == 2
    asked()
    assert asked.runs == 3


@pytest.mark.parametrize(
    "first",
    [
        "sys.stdout.reconfigure(encoding='latin-1', errors=sys.stdout.errors)",
        "sys.stdout.reconfigure(errors='replace')",
        "sys.stdout.isatty = lambda: True; os.get_terminal_size = lambda _: (80, 24)",
        "sys.stderr.isatty = lambda: True; os.get_terminal_size = lambda _: (80, 24)",
        "os.cpu_count = lambda: 1001",
        "os.uname = lambda: ('Linux', 'elsewhere')",
        "sys.version += '1'",
        "sys.path.append('/nowhere')",
        "sys.warnoptions.append('error')",
        "sys.argv[0] = 'other'",
    ],
)
def test_what_no_file_tells_stands_in_the_name_of_an_answer(asked: Asked, first: str) -> None:
    asked()
    asked.first(first)
    asked()
    assert asked.runs == 2
    asked()
    assert asked.runs == 2


def test_an_answer_whose_reader_left_is_not_kept(asked: Asked) -> None:
    asked.environment["AND"] = (
        "try:\n print('x' * 100_000, flush=True)\n"
        "except BrokenPipeError:\n os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())"
    )
    reading, writing = os.pipe()
    os.close(reading)
    asked(stdout=writing)
    os.close(writing)
    assert not asked.entries


@pytest.mark.parametrize(
    "act",
    [
        "open('out.json', 'w').close()",
        "os.makedirs('made', exist_ok=True); os.rmdir('made')",
        "import subprocess; subprocess.run(['true'])",
        "os.posix_spawn('/bin/true', ['true'], {}); os.wait()",
        "import ctypes; ctypes.CDLL(None).system(b'true')",  # of which Python hears nothing
        "import _socket; _socket.socket()",
        "sys.stdout.buffer.write(b'unheard')",
        "os.write(sys.stdout.fileno(), b'unheard')",
        "open('first.json').read(); os.utime('first.json')",
        "open('/dev/null').close()",
        "os.listdir(os.open('folder', os.O_RDONLY))",
        "print('x' * 5_000_000)",
        "os.environ['CODE'] = '1'",
        "os.stat('first.json', dir_fd=os.open('.', os.O_RDONLY))",
    ],
)
def test_what_does_more_than_answer_from_files_is_not_kept(asked: Asked, act: str) -> None:
    asked.environment["AND"] = act
    first, again = asked(), asked()
    assert first[0] == again[0] and b"Traceback" not in first[2]
    assert asked.runs == 2 and not asked.entries


def test_bytes_that_a_stream_of_text_refuses_are_no_part_of_an_answer(asked: Asked) -> None:
    """By which Click asks whether it is one, before it prints a help."""
    asked.environment["AND"] = "try: sys.stdout.write(b'')\nexcept TypeError: print('of text')"
    first = asked()
    assert asked() == first and first[0] == 0 and first[1].endswith(b"of text\n")
    assert asked.runs == 1


def test_what_is_written_is_written_again(asked: Asked) -> None:
    asked.environment["AND"] = "open('out.json', 'w').write('x')"
    for _ in range(2):
        asked()
        (asked.work / "out.json").unlink()  # there again, or this fails


def test_a_file_that_changes_while_it_is_read_is_not_kept(asked: Asked) -> None:
    asked.environment["AND"] = "import ctypes; ctypes.CDLL(None).truncate(b'first.json', 1)"
    asked()
    assert not asked.entries


def test_a_file_written_less_than_two_seconds_before_is_not_kept(asked: Asked) -> None:
    asked.racy_ns = 2_000_000_000
    asked()
    assert not asked.entries


@pytest.mark.parametrize("words", [["--no-cache", "first.json"], ["explain", "x"], ["capture", "x"], []])
def test_who_asks_for_no_cache_or_for_no_answer_from_files_has_none(asked: Asked, words: list[str]) -> None:
    asked.words = ["diagnose", *words] if words[:1] == ["--no-cache"] else words
    asked()
    asked()
    assert asked.runs == 2 and not asked.cache.exists()


def test_no_room_is_no_cache(asked: Asked) -> None:
    asked.environment["TIMESINK_CACHE_BYTES"] = "0"
    asked()
    assert not asked.cache.exists()


def spoil_cut(entry: Path) -> None:
    entry.write_bytes(entry.read_bytes()[:-20])


def spoil_flip(entry: Path) -> None:
    content = bytearray(entry.read_bytes())
    content[content.index(b"old")] ^= 1
    entry.write_bytes(content)


def spoil_link(entry: Path) -> None:
    entry.rename(entry.with_name("elsewhere"))
    entry.symlink_to(entry.with_name("elsewhere"))


def spoil_pipe(entry: Path) -> None:
    entry.unlink()
    os.mkfifo(entry, 0o600)


def spoil_nested(entry: Path) -> None:
    from hashlib import sha256

    body = b"[" * 100_000
    entry.write_bytes(sha256(body).hexdigest().encode() + b"\n" + body)


SPOILT: dict[str, Callable[[Path], object]] = {
    "cut off": spoil_cut,
    "emptied": lambda entry: entry.write_bytes(b""),
    "a bit": spoil_flip,
    "a link": spoil_link,
    "a pipe": spoil_pipe,
    "nested": spoil_nested,
    "in a folder that others may look into": lambda entry: entry.parent.chmod(0o750),
    "in a folder of another user": lambda entry: os.chown(entry.parent, 12345, -1),
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_an_entry_that_is_not_whole_or_not_ones_own_is_not_heeded(asked: Asked, spoilt: str) -> None:
    if "user" in spoilt and os.geteuid():
        pytest.skip("only root can hand a file over")
    first = asked()
    SPOILT[spoilt](asked.entries[0])
    assert asked() == first
    assert asked.runs == 2


def test_more_than_there_is_room_for_is_kept_from_anew(asked: Asked) -> None:
    asked()
    room = asked.environment["TIMESINK_CACHE_BYTES"] = str(4 * asked.entries[0].stat().st_size)
    for name in "abcdefgh":
        asked.words = ["diagnose", "first.json", f"--{name}"]
        asked()
        assert sum(entry.stat().st_size for entry in asked.entries) <= int(room)
    runs = asked.runs
    asked()
    assert asked.runs == runs


def test_nothing_is_kept_where_others_may_write(asked: Asked) -> None:
    (asked.cache / "answers").mkdir(parents=True)
    (asked.cache / "answers").chmod(0o777)
    asked()
    assert not asked.entries


def test_what_was_asked_for_without_following_links_counts(asked: Asked) -> None:
    asked.environment["AND"] = "print(os.path.lexists('../late'))"
    asked()
    (asked.cache.parent / "late").symlink_to("first")
    assert b"True" in asked()[1] and asked.runs == 2


def test_a_folder_that_was_only_asked_for_may_get_more_files(asked: Asked) -> None:
    asked.environment["AND"] = "os.path.isdir('..')"
    asked()
    asked.write("more", "")
    asked()
    assert asked.runs == 1


def test_a_folder_that_nobody_may_write_to_costs_nothing_but_the_cache(asked: Asked) -> None:
    asked.environment["TIMESINK_CACHE_DIR"] = "/proc/self/none"
    assert asked()[0] == 0


def test_a_diagnosis_is_kept_and_a_configuration_beside_it_ends_that(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json.gz"
    trace.write_bytes(DEMO.read_bytes())
    program = "import timesink.cli.answers as a; a._RACY_NS = 0; from timesink.cli.app import main; main()"
    environment = {**os.environ, "TIMESINK_CACHE_DIR": str(tmp_path / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}

    def ask(*more: str) -> bytes:
        command = [sys.executable, "-c", program, "diagnose", trace.name, "--format", "json", *more]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=True).stdout

    def entries() -> int:
        return len([*(tmp_path / "cache" / "answers").glob("*")])

    first = ask()
    assert entries() == 1 and ask() == first
    code = first.decode().partition('"code": "')[2][:6]
    (tmp_path / "pyproject.toml").write_text(f'[tool.timesink]\nskip = ["{code}"]\n')
    without = ask()
    assert json.loads(without) != json.loads(first)
    assert ask() == without and entries() == 1
