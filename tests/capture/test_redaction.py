"""A redacted file holds nothing that was planted in it, and its diagnosis is the one before."""

import gzip
import json
import lzma
import pickle
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from benchmarks.redaction import disguised
from benchmarks.redaction.__main__ import Kind, kinds, planted, survivors
from benchmarks.redaction.same import difference
from benchmarks.redaction.unseen import outcome
from hypothesis import given
from hypothesis import strategies as st

from timesink.capture.errors import CaptureError
from timesink.capture.redaction import default_target, proof, redact
from timesink.capture.redaction.cleaner import Cleaner
from timesink.capture.redaction.proof import stays_as
from timesink.knowledge import nsys_tables

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "tests/data"
TRACE = DATA / "capture/compiled/torch/rank0.json.gz"


def one_of_each_place() -> list[Kind]:
    """The first kind of every place that is not set aside."""
    chosen: dict[tuple[type, str], Kind] = {}
    for kind in kinds():
        if not kind.is_set_aside:
            chosen.setdefault((kind.document, kind.place), kind)
    return [*chosen.values()]


def test_nothing_that_was_planted_survives_and_a_second_redaction_finds_nothing(tmp_path: Path) -> None:
    chosen = one_of_each_place()
    assert len(chosen) >= 60
    for content, file, held in planted(chosen, seed=1):
        assert survivors(content, file, held, tmp_path) == []
        once = tmp_path / f"out-{file}"
        assert proof(once).removed == ()
        assert redact(once, tmp_path / f"twice-{file}").path.read_bytes() == once.read_bytes()


def captures(folder: Path) -> list[Path]:
    """One small capture of each format."""
    reports = sorted((ROOT / "benchmarks/kernels/reports").glob("*.ncu-rep.xz"), key=lambda path: path.stat().st_size)
    packed = [
        (DATA / "capture/compiled/nsys/report.sqlite.xz", "report.sqlite"),
        (reports[0], "kernels.ncu-rep"),
        (min((DATA / "memory").glob("*.pickle.xz")), "snapshot.pickle"),
    ]
    for path, name in packed:
        (folder / name).write_bytes(lzma.decompress(path.read_bytes()))
    (folder / "rank0.json.gz").write_bytes(TRACE.read_bytes())
    logs = sorted((DATA / "compile").glob("item_break.*.log"))
    return [*sorted(folder.iterdir()), *logs]


@pytest.mark.slow
def test_the_diagnosis_of_a_redacted_capture_is_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for path in captures(tmp_path / "in"):
        assert difference(path, tmp_path) == "", path.name


def test_every_table_and_column_that_a_reader_takes_is_kept(tmp_path: Path) -> None:
    columns: dict[str, dict[str, str]] = {}
    for table in nsys_tables.DECLARED:
        columns.setdefault(table.name, {}).update(table.columns)
    with closing(sqlite3.connect(tmp_path / "all.sqlite")) as db:
        for name, kinds in columns.items():
            db.execute(f"CREATE TABLE {name} ({', '.join([*kinds, 'unknown'])})")
        db.commit()
    redact(tmp_path / "all.sqlite", tmp_path / "copy.sqlite")
    with closing(sqlite3.connect(tmp_path / "copy.sqlite")) as db:
        for name, kinds in columns.items():
            assert {row[1] for row in db.execute(f"PRAGMA table_info({name})")} == kinds.keys()


def test_a_trace_keeps_its_digits_its_kernels_and_the_names_of_known_operators(tmp_path: Path) -> None:
    kernel = "void at::native::vectorized_elementwise_kernel<4, at::native::AddFunctor<float>>(int)"
    events = [
        {"ph": "X", "cat": "kernel", "name": kernel, "ts": 1, "dur": 2, "pid": 0, "tid": 7},
        {"ph": "X", "cat": "cpu_op", "name": "aten::_local_scalar_dense", "ts": 3, "dur": 1, "pid": 1, "tid": 1},
        {"ph": "X", "cat": "python_function", "name": "/home/ann-smith/x-y/train.py(12): forward", "ts": 4, "dur": 1},
        {"ph": "X", "cat": "user_annotation", "name": "hunters of ann-smith", "ts": 5, "dur": 1},
        {"ph": "X", "cat": "user_annotation", "name": "forward hunters", "ts": 6, "dur": 1},
    ]
    text = json.dumps({"traceEvents": events, "hostName": "gpu-box-17"}).replace(
        '"ts": 1,', '"ts": 1790857026123456.789,'
    )
    source = tmp_path / "run.json"
    source.write_text(text)
    done = redact(source)
    assert done.path == tmp_path / "run.redacted.json"
    assert '"ts": 1790857026123456.789,' in done.path.read_text()
    names = [event["name"] for event in json.loads(done.path.read_text())["traceEvents"]]
    assert names[:3] == [kernel, "aten::_local_scalar_dense", "train.py(12): forward"]
    assert names[3] == "⟦1⟧ of ⟦2⟧-⟦3⟧"
    assert names[4] == "forward ⟦1⟧", "the same word, the same placeholder"
    assert "members of unknown names: 1" in done.removed


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    return data[:-6] + bytes([data[-6] ^ 1]) + data[-5:]


@pytest.mark.parametrize("harm", [cut, flipped])
def test_a_damaged_gzip_file_is_redacted_up_to_its_damage(tmp_path: Path, harm: Callable[[bytes], bytes]) -> None:
    source = tmp_path / "run.json.gz"
    source.write_bytes(harm(TRACE.read_bytes()))
    done = redact(source)
    assert any("damage" in text for text in done.removed)
    assert gzip.decompress(done.path.read_bytes()).startswith(b"{")


@pytest.mark.parametrize("name", ["run.log.gz", "settings.yaml.gz", "page.html.gz"])
def test_a_damaged_text_is_redacted_up_to_its_damage(tmp_path: Path, name: str) -> None:
    source, lines = tmp_path / name, "the kernel waits for the stream\n" * 2_000
    source.write_bytes(cut(gzip.compress(lines.encode())))
    done = redact(source)
    assert any("damage" in text for text in done.removed)
    assert gzip.decompress(done.path.read_bytes()).decode().startswith("the kernel waits for the stream")


STRINGS = "CREATE TABLE StringIds (id INTEGER, value TEXT); CREATE TABLE ThreadNames (nameId, x TEXT);"
STRINGS += "INSERT INTO ThreadNames VALUES (1, 'hunter2');"
CELLS = {
    "a setting named by a number": "CREATE TABLE META_DATA_CAPTURE (name, value);"
    "INSERT INTO META_DATA_CAPTURE VALUES (5, 'hunter2'), (x'484f5354', 'gpu-box-17'), (NULL, 1.5)",
    "a string that is a number": STRINGS
    + "INSERT INTO StringIds VALUES (1, 5), (2, 'hunter2'); INSERT INTO ThreadNames VALUES ('a', '')",
    "a string kept as bytes": STRINGS + "INSERT INTO StringIds VALUES (1, CAST('/home/hunter2/forward' AS BLOB))",
    "bytes that are no UTF-8": STRINGS + "INSERT INTO StringIds VALUES (1, CAST(x'e9' || 'hunter2 forward' AS TEXT))",
    "an environment in use": STRINGS + "INSERT INTO StringIds VALUES (1, 'A=1 TOKEN=hunter2 B=2 C=3 D=gpu-box-17')",
    "another table of settings": "CREATE TABLE META_DATA_CAPTURE (a); INSERT INTO META_DATA_CAPTURE VALUES ('hunter2')",
}


@pytest.mark.parametrize("script", CELLS.values(), ids=CELLS)
def test_cells_of_another_type_are_cleaned_as_texts(tmp_path: Path, script: str) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(script)
    content = redact(path, tmp_path / "out.sqlite", ["gpu-box-17"]).path.read_bytes()
    assert b"hunter2" not in content
    assert b"gpu-box-17" not in content
    assert (b"forward" in content) == ("forward" in script)


def test_an_export_that_cannot_be_redacted_says_so_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "report.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT)")
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE StringIds", b"CREATE TABL\xea StringIds"))
    with pytest.raises(CaptureError, match=r"cannot be redacted.*export the report again"):
        redact(path, tmp_path / "out.sqlite")
    assert [*tmp_path.iterdir()] == [path]


def test_a_pickle_that_asks_for_code_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle"
    for content in (pickle.dumps({"segments": Path("x")}), b"\x80\x04r\xff\xff\xff\x7fN.", b"\x80\x04N"):
        path.write_bytes(content)
        with pytest.raises(CaptureError, match="no memory snapshot"):
            redact(path)


def test_a_copy_in_which_a_secret_is_found_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cleaner, "words", lambda _, text: text)
    source = tmp_path / "a.txt"
    for text, kind in (("use ghp_abcdefghijklmnop", "a secret"), ("the model", "a name that was to go")):
        source.write_text(text)
        with pytest.raises(CaptureError, match=f"was not redacted: its copy would still hold {kind}"):
            redact(source, names=["model"])
        assert [*tmp_path.iterdir()] == [source]


def test_the_original_is_never_written_over(tmp_path: Path) -> None:
    source = tmp_path / "a.txt"
    source.write_text("x")
    with pytest.raises(CaptureError, match="would be overwritten"):
        redact(source, source)
    with pytest.raises(CaptureError, match="no kind of file"):
        redact(Path(__file__))
    with pytest.raises(CaptureError, match="nsys' own format"):
        report = tmp_path / "r.nsys-rep"
        report.write_bytes(b"\x00" * 20)
        redact(report)
    assert default_target(tmp_path / "step.rank0.json.gz") == tmp_path / "step.rank0.redacted.json.gz"
    torch = default_target(tmp_path / "johnsmith-ws.acme.com_4711.1694128201545.pt.trace.json")
    assert not [word for word in ("johnsmith", "acme", "1694128201545") if word in torch.name]


@given(st.sampled_from(["void f<T>(", "x ", "", "see ", "\x1b[0m"]), st.sampled_from([" end", "", ": 3", ")", "_x"]))
def test_a_planted_name_never_survives(before: str, after: str) -> None:
    cleaner = Cleaner(["gpu-box-17"])
    for planted_text in ("gpu-box-17", "/home/ann-smith/x.py", "torch of ann-smith", "ANNSMITH", "⟦smith⟧"):
        for clean in (cleaner.words, cleaner.symbol, cleaner.opcode):
            cleaned = clean(f"{before}{planted_text}{after}")
            assert "box" not in cleaned
            assert "smith" not in cleaned.lower()
            assert stays_as(cleaned)
            assert "/home" not in cleaned


def test_texts_of_any_length_are_read_once() -> None:
    cleaner = Cleaner()
    for text in ("a" * 300_000, "a." * 200_000, "ab/" * 100_000, "0:" * 150_000, "-I/" * 80_000, "a@" * 100_000):
        assert len(cleaner.words(f"forward {text}")) < 20
        assert len(cleaner.symbol(text)) < 20


def test_what_software_says_is_kept() -> None:
    cleaner = Cleaner()
    for text in (
        "void at::native::elementwise_kernel<128, 4>(int)",
        "layer1/conv/weight",
        "1/2/3",
        "aten::div",
        "12.5 %",
    ):
        assert cleaner.words(text) == text
    assert cleaner.symbol("void ann::gemm<4>(int)") == "void ⟦1⟧::gemm<4>(int)"
    assert cleaner.words("sm__inst_executed.sum") == "sm__inst_executed.sum"
    assert cleaner.words("gemm of ann") == "gemm of ⟦1⟧", "the same word, the same placeholder"
    assert cleaner.opcode("LDG.E.128") == "LDG.E.128"
    assert "JSMITH" not in cleaner.opcode("JSMITH") + cleaner.opcode("LDG.JSMITH") + cleaner.words("JSMITH")


@pytest.mark.parametrize("place", ["words", "symbol", "opcode"])
@given(st.text(st.characters(codec="utf-8") | st.sampled_from(" ⟦⟧0123456789.:-/_\\%&#()<>x"), max_size=60))
def test_whatever_a_text_is_its_copy_is_proven_and_stays_as_it_is(place: str, text: str) -> None:
    once = getattr(Cleaner(), place)(text)
    assert stays_as(once) or not once, "an honest copy is never refused"
    assert getattr(Cleaner(), place)(once) == once


HIDDEN = {
    "a digest in words": ("words", "loading from {}", "ad5ff67"),
    "a digest in a part of a word": ("words", "kernel_{}_0", "a1fc9e7"),
    "a digest in a kernel": ("symbol", "triton_poi_fused_{}_0", "ab8f9b7"),
    "a number as a kernel": ("symbol", "{}", "353732"),
    "an address in a template": ("symbol", "void at::native::f<{}>(int)", "fe80::b656:3d0a"),
    "an address before a colon": ("symbol", "{}: forward", "fe80::7484:a7c1"),
    "an address between underscores": ("symbol", "triton_poi_fused_{}_0", "10.90.150.29"),
    "an address in words": ("words", "add_{}_x", "10.90.150.29"),
    "a longer identifier than there is": ("symbol", "_ZN2at6native8{}EPv", "0xa0873aa556ffc35b4606fef0b8b21f38c5"),
    "a name in a mangled one": ("symbol", "_ZN2at6native8{}EPv", "KABC1234"),
    "a digest behind a word": ("words", "use {} here", "1.4.2+git9c2417ab"),
    "a digest behind a letter": ("words", "at {}", "v9c2417ab"),
    "a digest whose letters are words": ("words", "at {}", "gcc1c58fb"),
    "a number behind a word of a kernel": ("symbol", "{}", "name7897"),
    "a date as a step": ("words", "ProfilerStep#{}", "1934-07-12"),
    "letters with digits": ("words", "seat {}", "h9 r2 l9 p9 c9"),
    "pairs of letters": ("words", "code {}", "hs re lt pu sc"),
    "letters between lines": ("symbol", "gemm_{}", "p_q_j_y_z_w"),
    "digits by bars": ("words", "at {}", "39|82|59|79"),
    "decimal bytes": ("words", "at {}", "104 115 114 101"),
    "decimal bytes behind a kernel": ("symbol", "gemm<4> {}", "104, 115, 114, 101"),
    "quoted-printable": ("words", "use {} here", "=6B=61=7A=6F=6C=75"),
    "bytes with blanks": ("words", "dump: {}", "6b 61 7a 6f 6c 75"),
    "bytes with prefixes": ("words", "dump: {}", "0x6b, 0x61, 0x7a, 0x6f"),
    "bytes in braces": ("words", "dump: {}", "{6b}{61}{7a}{6f"),
    "a serial number": ("words", "--- {}", "9C73-MS0L-P1M3"),
    "a serial number with dots": ("words", "key={}", "9c73.ms0l.p1m3"),
    "words behind one that binds": (
        "words", "step 3 of {}", "call index float step base front load scale code split chunk state"),
}  # fmt: skip


@pytest.mark.parametrize("text", ["NVIDIA A100-SXM4-80GB", "NVIDIA A100-PG509-200", "2.13.0+cu130", "f16.f32.f16",
                                  "16, 32", "12.5 ms of 34 ms", "1,234,567.5 ms", "add 4 of 16"])  # fmt: skip
def test_what_looks_like_a_serial_number_and_is_none_stays(text: str) -> None:
    assert Cleaner().words(text) == text


def test_secrets_that_look_like_what_is_kept_go(tmp_path: Path) -> None:
    pairs = [
        (document, place, kind)
        for document, places in disguised.PLACES.items()
        for place in places
        for kind in disguised.KINDS
        if not disguised.is_set_aside(place, kind)
    ]
    for document, place, kind in pairs[::20]:
        put, make = disguised.PLACES[document][place], disguised.KINDS[kind]
        assert outcome(document, put, make, f"{place}/{kind}", tmp_path) != "survives", (place, kind)


@pytest.mark.parametrize(("place", "form", "secret"), HIDDEN.values(), ids=HIDDEN)
def test_what_hid_in_a_grammar_that_was_too_wide_goes(place: str, form: str, secret: str) -> None:
    cleaned = getattr(Cleaner(), place)(form.format(secret))
    assert secret.lower() not in cleaned.lower() and "\u27e6" in cleaned, cleaned


@pytest.mark.parametrize("name", [
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EEEEviT0_T1_",
    "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb0ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
    "_ZZN2at6native54_GLOBAL__N__4bcb2a9b_21_DistributionNormal_cu_0c5b6e847reduce_EiENKUlvE1_clEv",
    "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel",
])  # fmt: skip
def test_names_that_compilers_mangle_stay_whole(name: str) -> None:
    assert Cleaner().symbol(name) == name


HEADS = '"ID","Process ID","Process Name","{}"\n"0","7",""'
PLACES_OF_NUMBERS = {
    "a code as a block": ("page.csv", HEADS.format("Block Size") + ',"{}"\n', "232007"),
    "a code as a stream": ("page.csv", HEADS.format("Stream") + ',"{}"\n', "232007"),
    "a code as a unit": ("page.csv", HEADS.format("Metric Unit") + ',"{}"\n', "232007"),
    "a card as a move": ("page.html", '<path transform="{}"></path>', "4074 1512 9759 0236"),
    "a digest as corners": ("page.html", '<path points="{}"></path>', "a58ec27"),
    "a card as a window": ("page.html", '<svg viewBox="{}"></svg>', "4074 1512 9759 0236"),
    "digits of other scripts as a counter": (
        "page.csv",
        HEADS.format("sm__cycles_active.avg") + ',"{}"\n',
        "\u0667\u0660\u0669\u0660",
    ),
    "digits of other scripts as a setting": ("job.yaml", "limits: {}\n", "\u0667\u0660\u0669\u0660\u0662\u0668"),
    "bits as a limit": ("job.yaml", "limits: {}\n", "101011001100010000100000"),
    "a secret behind our library": ("page.html", "<script>/*! uPlot */ var {} = 3</script><p>zorbax</p>", "hunter2"),
    "a picture that is none": ("page.html", "<template>{}</template><p>zorbax</p>", "hunter2"),
    "an address as a setting": ("job.yaml", "nodes:\n  - {}\n", "fe80::e32a:e442"),
}


@pytest.mark.parametrize(("name", "form", "secret"), PLACES_OF_NUMBERS.values(), ids=PLACES_OF_NUMBERS)
def test_a_place_of_figures_takes_figures_of_its_own_form(tmp_path: Path, name: str, form: str, secret: str) -> None:
    (tmp_path / name).write_text(form.format(secret))
    copy = redact(tmp_path / name).path.read_text()
    assert secret not in copy and "\u27e6" in copy


RECORD = 'V1120 13:01:04.742000 83 torch/nn.py:1] {"artifact": {"name": "a"}}\n'
HONEST = {
    "a page of doubles": ("page.csv", HEADS.format("sm__cycles_active.avg") + ',"31.98148862321635"\n'),
    "a page of large doubles": ("page.csv", HEADS.format("dram__bytes.sum") + ',"1021852.000000"\n'),
    "a limit of many bytes": ("job.yaml", "resources:\n  memory_bytes: 171798691840\n"),
    "a list of texts below a record": ("a.log", RECORD + '\t["the zorbax of 4094",\n\t"index 0"]\n'),
    "a page of nothing packed": ("page.html", "<p>the step</p><template></template>"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "text"), HONEST.values(), ids=HONEST)
def test_an_honest_file_is_not_refused_and_loses_nothing(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    kept = redact(tmp_path / name).path.read_text()
    assert "\u27e6" not in kept.replace("\\u27e6", "") and "zorbax" not in kept
    assert all(figure in kept for figure in ("31.98148862321635", "1021852", "171798691840") if figure in text)


def test_shapes_processes_and_devices_of_a_trace_stay(tmp_path: Path) -> None:
    """What a diagnosis needs, as texts too, as older profilers write them."""
    event = {"ph": "X", "cat": "ac2g", "name": "aten::mm", "pid": "25738", "tid": "140322", "ts": 1, "dur": 2}
    event["args"] = {
        "Concrete Inputs": ["[8, 512, 32000]", "", "4096, 1"],
        "Input Dims": [[8, 512], []],
        "grid": "[1, 2, 65535]",
    }
    devices = [
        {"id": 0, "name": name, "regsPerBlock": 65536} for name in ("Tesla V100-DGXS-32GB", "NVIDIA H100 80GB HBM3")
    ]
    text = json.dumps({"deviceProperties": devices, "traceEvents": [event]})
    (tmp_path / "a.json").write_text(text)
    assert json.loads(redact(tmp_path / "a.json").path.read_text()) == json.loads(text)
    event["args"] |= {"block": "483824", "grid": "398,259,791"}
    (tmp_path / "b.json").write_text(json.dumps({"traceEvents": [event | {"id": "8682628493734"}]}))
    left = redact(tmp_path / "b.json").path.read_text()
    assert not [secret for secret in ("483824", "398,259", "8682628493734") if secret in left]


def test_the_command_checks_and_says_what_it_removed(command_line: Callable[..., object], tmp_path: Path) -> None:
    source = tmp_path / "log.txt"
    source.write_text("/home/ann-smith/train.py\n")
    done = command_line("capture", "--redact", source, "--proof")
    assert done.returncode == 1  # type: ignore[attr-defined]
    assert [*tmp_path.iterdir()] == [source]
    done = command_line("capture", "--redact", source)
    assert done.returncode == 0  # type: ignore[attr-defined]
    assert "folders: 1" in done.stdout  # type: ignore[attr-defined]
    assert (tmp_path / "log.redacted.txt").read_text() == "train.py\n"
    assert command_line("capture", "--redact", tmp_path / "absent").returncode == 2  # type: ignore[attr-defined]


def test_what_stays_is_listed_with_the_class_that_lets_it_stay(tmp_path: Path) -> None:
    source = tmp_path / "run.json"
    kernel = {"ph": "X", "cat": "kernel", "name": "fused_kernel", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    label = {"ph": "X", "cat": "cpu_op", "name": "aten::add of ann-smith", "ts": 1, "dur": 1, "pid": 0, "tid": 7}
    source.write_text(json.dumps({"traceEvents": [kernel, label]}))
    stayed = {text: means for means, text in proof(source).stayed}
    assert stayed["fused_kernel"] == "words of software"
    assert stayed["aten::add of ⟦1⟧-⟦2⟧"] == "words of software, placeholders"
    assert stayed["traceEvents"] == "key or column that a reader takes"
    assert [*tmp_path.iterdir()] == [source]


def test_a_text_that_no_class_lets_stay_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cleaner, "words", lambda _, text: text)
    for name, text in (("a.json", '{"name": "zorbax"}'), ("a.txt", "of zorbax"), ("a.html", "<p>zorbax</p>")):
        (tmp_path / name).write_text(text)
        with pytest.raises(CaptureError, match="no list lets stay"):
            redact(tmp_path / name)


JSON_IN_TEXT = (
    '{"note": "loss\\nhunter2 \\thunter2"}',
    'step 3: {"note": {"inner": ["a\\\\nhunter2"], "x": 1795179664.600534}} took 3 ms',
    '{"password": "softmax\\n", "host": "python"} and {"note": "\\u0068unter2"}',
    'cut off {"note": "loss\\nhunter2 \\u0068unter2',
    '{"note": "{\\"note\\": \\"a\\\\nhunter2\\"}"}',
    '{"note": "C:\\\\new\\\\hunter2\\bhunter2"} {"',
)


@pytest.mark.parametrize("text", JSON_IN_TEXT)
@pytest.mark.parametrize("name", ["a.log", "a.txt", "a.yaml", "a.html", "a.json", "a.sqlite"])
def test_json_in_a_text_is_cleaned_by_what_it_spells(tmp_path: Path, name: str, text: str) -> None:
    source = tmp_path / name
    if name == "a.sqlite":
        with sqlite3.connect(source) as made:
            made.executescript("CREATE TABLE NVTX_EVENTS (start INTEGER, text TEXT);" + STRINGS)
            made.execute("INSERT INTO NVTX_EVENTS VALUES (1, ?)", (text,))
    elif name == "a.json":
        source.write_text(json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": text}]}))
    else:
        source.write_text(f"<p>{text}</p>\n" if name == "a.html" else f"{text}\n")
    done = redact(source)
    assert b"hunter2" not in (data := done.path.read_bytes())
    assert b"0068" not in data
    assert b"softmax" not in data
    assert proof(done.path).removed == ()


@pytest.mark.parametrize("escape", ["\\j", "\\#", "\\u12", "\\ud800", "\\x41", "\\u00zz", "\x01"])
@pytest.mark.parametrize("name", ["a.json", "a.log", "a.jsonl"])
def test_a_damaged_string_of_json_is_proven_as_it_stands(tmp_path: Path, name: str, escape: str) -> None:
    """What spells nothing is read by its letters: what it hides is still met."""
    source = tmp_path / name
    source.write_text('{"name": "of hunter2%s mul"}\n' % escape)  # noqa: UP031
    assert "hunter2" not in redact(source).path.read_text()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("job.yaml", "password: |\n  zorbax\nenv:\n  USER: zorbax\nname: zorbax"),
        ("job.toml", "[run]\napi_key = 'zorbax'\njob_id = 90417\nnote = \"zorbax\""),
        ("all.ranks", "https://zorbax.example.com/rank0.json.gz?sig=90417\n/home/zorbax/rank1.json"),
        ("page.html", "<p title='zorbax'>zorbax</p><script>var zorbax = 90417</script><!-- zorbax -->"),
        (
            "log.txt",
            "job 90417 of zorbax, +1 (555) 010-4477, 078-05-1120, BD-08-16-AA-BB-01, ::bd:08:16:aa:bb:01",
        ),
    ],
)
def test_files_around_a_job_are_taken(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    left = redact(tmp_path / name).path.read_text().lower()
    for secret in ("zorbax", "90417", "555", "1120", "08:16", "08-16", "9041"):
        assert secret not in left


@pytest.mark.parametrize(
    "text",
    [
        "aten::mm by zorbax",
        "at::native::foo<int> for zorbax",
        "torch::jit (a) zorbax",
        "std::vector<int> x zorbax",
        "void cub::A<1>() zorbax",
    ],
)
def test_words_behind_a_function_of_a_library_are_replaced(text: str) -> None:
    assert "zorbax" not in Cleaner().words(text)


@pytest.mark.parametrize(
    "text",
    [
        "aten::add_",
        "void at::native::fill<4, at::native::AddFunctor<float>, std::array<char*, 3> >(int, std::array<char*, 3>)",
        "at::native::(anonymous namespace)::add(c10::ArrayRef<long> const&) const",
        "c10::cuda::Stream::query() [clone .cold]",
    ],
)
def test_a_function_of_a_library_stays_whole(text: str) -> None:
    assert Cleaner().words(text) == text


@pytest.mark.parametrize(
    "key",
    [
        "PGPASS",
        "passcode",
        "x-api-key",
        "api-key",
        "licenseKey",
        "AWS_ACCESS_KEY_ID",
        "user_id",
        "userId",
        "user-name",
        "uid",
        "PWD",
        "ip",
        "ipAddress",
        "ip_addr",
        "author",
        "created_by",
        "db_url",
        "args_list",
    ],
)
@pytest.mark.parametrize("value", ["python", "model", "12345678", ["python", "train.py"], {"name": "python"}])
def test_a_private_key_in_any_spelling_hands_on_nothing(key: str, value: object) -> None:
    assert Cleaner().value({key: value}).get(key) != value


OWNERS = (
    "node",
    "machineName",
    "PROJECT",
    "team",
    "sessionName",
    "card",
    "address",
    "cluster-name",
    "workspaces",
    "branch",
)


@pytest.mark.parametrize("key", OWNERS)
@pytest.mark.parametrize("value", ["softmax", "python model", ["gpu", "kernel"], {"name": "train"}, [{"title": "gpu"}]])
def test_words_of_software_that_name_what_is_somebodys_go(key: str, value: object, tmp_path: Path) -> None:
    clean = Cleaner()
    held = {word for word in ("softmax", "model", "gpu", "kernel", "train") if word in json.dumps(value)}
    assert held and not [word for word in held if word in json.dumps(clean.value({key: value}))]
    assert clean.value({key: 3, "inner": {key: "4"}}) == {key: 3, "inner": {key: "4"}}
    source = tmp_path / "job.yaml"
    source.write_text(f"{key}: softmax\nouter:\n  {key}:\n    name: softmax\n  x: 3\nsoftmax: 1\n")
    assert redact(source).path.read_text().count("softmax") == 1


@pytest.mark.parametrize("name", ["copy", "copy.out", "copy.json", "copy.csv", "copy.sqlite", "copy.html"])
@pytest.mark.parametrize("source", ["a.json", "a.htm", "a.log", "a.yaml"])
def test_a_copy_may_have_any_name(tmp_path: Path, source: str, name: str) -> None:
    texts = {
        "a.json": json.dumps({"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 1, "dur": 1}]}),
        "a.htm": "<!doctype html><p title='zorbax'>aten::mm by zorbax",
        "a.log": "V0101 00:00:00.000000 1 torch/x.py:1] zorbax",
        "a.yaml": "user: zorbax\n",
    }
    (tmp_path / source).write_text(texts[source])
    (tmp_path / "copies").mkdir()
    copy = redact(tmp_path / source, tmp_path / "copies" / name).path
    assert "zorbax" not in copy.read_text()


def test_a_folder_is_copied_file_by_file_in_the_words_of_one_cleaner(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for name in ("zorbax-17_1.json", "rank1.json"):
        (tmp_path / "job" / name).write_text(json.dumps({"name": "forward zorbax-17"}))
    (tmp_path / "job" / "notes.py").write_text("zorbax")
    (tmp_path / "job" / "rank2.json").write_text(json.dumps({"hostName": "zorbax-17", "traceEvents": []}))
    done = redact(tmp_path / "job")
    files = sorted(done.path.iterdir())
    assert len(files) == 3
    assert "zorbax" not in "".join(path.name + path.read_text() for path in files)
    assert "files of kinds that are not taken: 1" in done.removed


@pytest.mark.parametrize("name", ["SubTensorOpWithScalar1d", "nvjet_sm90_tst_256x128_64x4_2x1_v_bz_TNT"])
def test_kernels_named_by_words_of_software_are_no_keys(name: str) -> None:
    assert Cleaner().symbol(name) == name
