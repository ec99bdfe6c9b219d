"""`timesink report --serve` answers its own page on this machine and nobody else, whatever is asked."""

import http.client
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from importlib.resources import as_file, files

import pytest

from timesink.cli.app import run
from timesink.cli.serve import HOST, Server
from timesink.readers import read
from timesink.untrusted.budget import ReadLimits
from timesink.views.timeline import whole_timeline
from timesink.views.timeline.tiles import Tiles

TOKEN = "a-token-of-43-characters-which-nobody-guesses"
PATIENCE_S = 300  # a busy machine
Ask = Callable[..., tuple[int, Mapping[str, str], bytes]]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        timeline = whole_timeline(read(path, cache=False))
    assert timeline is not None
    with Server(0, TOKEN, "<!doctype html>", Tiles(timeline)) as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def ask(server: Server) -> Ask:
    def asked(path: str, method: str = "GET", **headers: str) -> tuple[int, Mapping[str, str], bytes]:
        connection = http.client.HTTPConnection(HOST, server.server_port, timeout=20)
        given = {"Host": f"{HOST}:{server.server_port}"} | {name.replace("_", "-"): to for name, to in headers.items()}
        connection.putrequest(method, path, skip_host=True)
        for name, value in given.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, dict(answer.headers), content

    return asked


def test_its_page_and_its_answers(ask: Ask, server: Server) -> None:
    status, headers, page = ask(
        f"/{TOKEN}/", Sec_Fetch_Site="same-origin", Origin=f"http://localhost:{server.server_port}"
    )
    assert (status, page) == (200, b"<!doctype html>")
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert "Python" not in headers["Server"]
    status, _, tile = ask(f"/{TOKEN}/tile?rows=1.1,3.2&from=0&to=100000000&pixel=500")
    size = struct.unpack("<I", tile[:4])[0]
    head = json.loads(tile[4 : 4 + size])
    rows = sum(count for *_, count in head["rows"])
    assert (status, len(tile), (4 + size) % 8) == (200, 4 + size + rows * (4 * 8 + 5 * 4), 0)
    assert rows > 10
    assert set(head["texts"]) >= set(head["short"])
    assert ask(f"/{TOKEN}/ready")[2] == b"{}"
    hits = json.loads(ask(f"/{TOKEN}/search?text=nvjet")[2])
    assert all("nvjet" in hits["texts"][str(hit["name"])] for hit in hits["hits"])
    assert json.loads(ask(f"/{TOKEN}/budget?rank=0&device=0&from=0&to=100000000")[2])["times"]["compute"] > 0


def test_a_request_that_spends_too_much_is_ended(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("timesink.untrusted.spending.usual_limits", lambda: ReadLimits(base_cpu_s=0.2))
    monkeypatch.setattr(Tiles, "search", lambda *_: all(iter(lambda: 1, 2)))
    assert ask(f"/{TOKEN}/search?text=x")[0] == 503
    assert ask(f"/{TOKEN}/")[0] == 200


@pytest.mark.parametrize(
    ("path", "status"),
    [
        *((path, 404) for path in ("/", "//", "/tile", "/wrong/", "/wrong/tile?rows=1.1", f"/{TOKEN}")),
        *((f"/{TOKEN}/{path}", 404) for path in ("../etc/passwd", "..%2f..%2fetc%2fpasswd", "x", "tile/", "%00")),
        (f"/../{TOKEN}/", 404),
        (f"/{TOKEN[:-1]}/", 404),
        (f"http://elsewhere/{TOKEN}//etc/passwd", 404),
        (f"/{TOKEN}/tile?rows=" + "1.1," * 9000, 404),
        (f"/{TOKEN}/tile", 400),
        (f"/{TOKEN}/tile?rows=1.1&from=0&to=1&pixel=nan", 400),
        (f"/{TOKEN}/tile?rows=1.1&from=5&to=1&pixel=1", 400),
        (f"/{TOKEN}/tile?rows=1.1&from=0x1&to=1&pixel=1", 400),
        (f"/{TOKEN}/tile?rows=1.99999999&from=0&to=1&pixel=1", 400),
        (f"/{TOKEN}/tile?rows=1&from=0&to=1&pixel=1", 400),
        (f"/{TOKEN}/tile?rows=1.1&from=0&to=" + "9" * 40 + "&pixel=1", 400),
        (f"/{TOKEN}/budget?rank=0&device=0&from=0&to=²", 400),
        (f"/{TOKEN}/search?" + "&".join(["text=a"] * 20), 400),
        (f"/{TOKEN}/tile?rows=-1.1,999999.1&from=-999999999999999999&to=999999999999999999&pixel=0", 200),
        (f"/{TOKEN}/around?lane=-1&depth=7&start=999999999999999999", 200),
        (f"/{TOKEN}/budget?rank=-5&device=999999&from=0&to=999999999999999999", 200),
    ],
)  # fmt: skip
def test_hostile_paths_open_nothing(server: Server, ask: Ask, path: str, status: int) -> None:
    """As bytes of a request line, which may hold what no client sends."""
    found, _, content = ask(path.encode("utf-8").decode("latin-1") if path.isascii() else path.replace("²", "%C2%B2"))
    assert found == status
    assert b"root:" not in content
    assert len(content) < 20_000


def test_other_hosts_sites_and_methods_are_refused(server: Server, ask: Ask) -> None:
    page, port = f"/{TOKEN}/", server.server_port
    for host in ("evil.example", f"evil.example:{port}", HOST, f"{HOST}:{port + 1}", ""):
        assert ask(page, Host=host)[0] == 403
    for origin in ("https://evil.example", f"http://{HOST}:{port + 1}", f"https://{HOST}:{port}", "null"):
        assert ask(page, Origin=origin)[0] == 403
    assert ask(page, Sec_Fetch_Site="cross-site")[0] == 403
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "HEAD"):
        status, headers, _ = ask(page, method)
        assert status == 501
        assert not any(name.startswith("Access-Control") for name in headers)
    assert server.server_address[0] == "127.0.0.1"


def test_ctrl_c_ends_it_quietly(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(server: Server) -> None:
        def asked(path: str) -> str:
            return server.answer(path)[1].decode()

        pages.append(asked(f"/{server.token}/"))
        last = time.monotonic() + PATIENCE_S
        while not (ready := json.loads(asked(f"/{server.token}/ready"))):
            assert time.monotonic() < last
            time.sleep(0.05)
        pages.append(asked(ready["report"]))
        raise KeyboardInterrupt

    pages: list[str] = []
    monkeypatch.setattr(Server, "serve_forever", interrupted)
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        assert run(["report", "--serve", str(path), "--no-browser"]) == 0
    out, err = capsys.readouterr()
    link = out.splitlines()[0]
    assert link.startswith(f"http://{HOST}:")
    assert len(link.split("/")[3]) >= 43
    assert "Traceback" not in err
    assert all(part in page for part in ("connect-src", "data-live") for page in pages)
    assert ["Analyzing" in page for page in pages] == [True, False]
    assert ['id="finding-1"' in page for page in pages] == [False, True]


def test_a_port_that_is_taken_is_said(server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    with as_file(files("timesink.cli").joinpath("demo/gpt_before.json.xz")) as path:
        assert run(["report", "--serve", str(path), "--no-browser", "--port", str(server.server_port)]) == 2
    assert "--port" in capsys.readouterr().err
