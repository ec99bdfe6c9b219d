"""Runs that lie elsewhere: a web server that asks for a password, an object store, memory; and no secret gets out.

The command runs in a process of its own, so that all it writes to either stream, and all it keeps, can be searched.
"""

import base64
import gzip
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.test_run import RANKS, kineto

from timesink.cluster import reason_of

fsspec = pytest.importorskip("fsspec", reason="URLs are an extra")
USER, PASSWORD, TOKEN = "worker", "pass-hunter2", "sig-hunter2"
SECRETS = (PASSWORD, TOKEN, base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode())


@pytest.fixture
def traces(tmp_path: Path) -> Path:
    folder = tmp_path / "served" / "job"
    folder.mkdir(parents=True)
    for rank in range(RANKS):
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(kineto(rank, late_us=5 * (rank == 2)).encode()))
    return folder


@dataclass(slots=True)
class Told:
    """What a run of the command said, and what it left behind."""

    code: int
    out: str
    err: str
    kept: list[bytes] = field(default_factory=list)

    def leaks(self) -> list[str]:
        """Secrets that can be found anywhere."""
        texts = [self.out.encode(), self.err.encode(), *self.kept]
        return [secret for secret in SECRETS if any(secret.encode() in text for text in texts)]


def ranks(cache: Path, *places: str, **variables: str) -> Told:
    command = [sys.executable, "-m", "timesink", "ranks", *places]
    own = {"TIMESINK_CACHE_DIR": str(cache), "NO_PROXY": "127.0.0.1", **variables}
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **own}, check=False)
    kept = [path.name.encode() + path.read_bytes() for path in cache.rglob("*") if path.is_file()]
    return Told(done.returncode, done.stdout, done.stderr, kept)


class Guarded(SimpleHTTPRequestHandler):
    """Files for those who show the password, or the signature in the query; everybody else is refused."""

    def do_GET(self) -> None:
        if self.allowed():
            super().do_GET()

    def do_HEAD(self) -> None:
        if f"head={TOKEN}" in self.path or self.allowed():
            super().do_HEAD()

    def allowed(self) -> bool:
        basic = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if self.headers.get("Authorization") == basic or f"sig={TOKEN}" in self.path:
            return True
        self.send_error(403, "no password, no trace")
        return False

    def log_message(self, *args: object) -> None: ...


@pytest.fixture
def server(traces: Path) -> Iterator[str]:
    """host:port of a web server of the folder above the traces."""
    pytest.importorskip("aiohttp", reason="http is an extra of fsspec")
    handler = partial(Guarded, directory=str(traces.parent))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as web:
        thread = threading.Thread(target=web.serve_forever, daemon=True)
        thread.start()
        yield f"127.0.0.1:{web.server_address[1]}"
        web.shutdown()
        thread.join()


def local(traces: Path, cache: Path) -> str:
    return ranks(cache, str(traces)).out


def tables(text: str) -> str:
    """The page without its notes, which name places."""
    return text.partition("note:")[0]


def test_a_folder_behind_a_password_gives_the_page_of_the_same_local_folder(
    server: str, traces: Path, tmp_path: Path
) -> None:
    found = ranks(tmp_path / "cache", f"http://{USER}:{PASSWORD}@{server}/job/")
    assert (found.code, found.err) == (0, "")
    assert tables(found.out) == tables(local(traces, tmp_path / "other"))
    assert not found.kept  # what came over a connection is not
    assert found.leaks() == []


def test_signed_urls_are_read_and_never_shown(server: str, traces: Path, tmp_path: Path) -> None:
    urls = [f"http://{server}/job/rank{rank}.json.gz?sig={TOKEN}" for rank in range(RANKS)]
    missing = ranks(tmp_path / "cache", *urls, f"http://{server}/job/rank9.json.gz?sig={TOKEN}")
    assert missing.code != 0
    assert f"http://{server}/job/rank9.json.gz" in missing.err
    assert missing.leaks() == []
    found = ranks(tmp_path / "cache", *urls)
    assert (found.code, found.leaks()) == (0, [])
    assert tables(found.out) == tables(local(traces, tmp_path / "other"))


def test_a_damaged_file_elsewhere_is_set_aside_by_its_place_alone(server: str, traces: Path, tmp_path: Path) -> None:
    (traces / "rank1.json.gz").write_bytes(b"\x1f\x8b" + bytes(40))
    found = ranks(tmp_path / "cache", f"http://{USER}:{PASSWORD}@{server}/job/")
    assert found.code == 2
    assert f"http://{server}/job/rank1.json.gz is left out" in found.out.replace("\n", " ").replace("  ", " ")
    assert found.leaks() == []


def test_a_wrong_password_is_an_error_that_does_not_repeat_it(server: str, tmp_path: Path) -> None:
    refused = ranks(tmp_path / "cache", f"http://{USER}:{PASSWORD}x@{server}/job/rank0.json.gz")
    assert refused.code != 0
    assert server in refused.err
    assert "Traceback" not in refused.err
    assert refused.leaks() == []


@pytest.fixture
def store(traces: Path) -> Iterator[dict[str, str]]:
    """The variables with which a local object store that holds the traces is reached."""
    pytest.importorskip("s3fs", reason="S3 is an extra of fsspec")
    moto = pytest.importorskip("moto.server", reason="a local object store is for development only")
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    reached = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}", "AWS_ACCESS_KEY_ID": "AKIA" + "X" * 16,
        "AWS_SECRET_ACCESS_KEY": PASSWORD, "AWS_SESSION_TOKEN": TOKEN, "AWS_DEFAULT_REGION": "us-east-1",
    }  # fmt: skip
    import boto3

    client: Any = boto3.client(
        "s3", endpoint_url=reached["AWS_ENDPOINT_URL"], aws_access_key_id="x", aws_secret_access_key="y",
        region_name="us-east-1",
    )  # fmt: skip
    client.create_bucket(Bucket="runs")
    for path in traces.iterdir():
        client.upload_file(str(path), "runs", f"job/{path.name}")
    yield reached
    server.stop()


SLOW_ENGINES = [pytest.param(engine, marks=pytest.mark.slow) for engine in ("processes", "dask")]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["threads", *SLOW_ENGINES])
def test_an_object_store_gives_the_page_of_the_same_local_folder_on_every_engine(
    engine: str, store: dict[str, str], traces: Path, tmp_path: Path
) -> None:
    if engine == "dask":
        pytest.importorskip("distributed", reason="Dask is an extra")
    place = "s3://runs/job/rank*.json.gz" if engine == "threads" else "s3://runs/job"
    found = ranks(tmp_path / "cache", place, "--engine", engine, **store)
    assert found.code == 0, found.err
    assert tables(found.out) == tables(local(traces, tmp_path / "other"))
    assert found.leaks() == []


def test_a_bucket_that_is_not_there_is_an_error_without_the_keys(store: dict[str, str], tmp_path: Path) -> None:
    found = ranks(tmp_path / "cache", "s3://nowhere/job", **store)
    assert found.code != 0
    assert "s3://nowhere/job" in found.err
    assert "Traceback" not in found.err
    assert found.leaks() == []


def test_a_file_that_is_refused_when_its_turn_comes_is_set_aside(server: str, tmp_path: Path) -> None:
    """The size is told to everybody, the content is not: the error comes from the web library, in a worker."""
    good = [f"http://{server}/job/rank{rank}.json.gz?sig={TOKEN}" for rank in (0, 1)]
    found = ranks(tmp_path / "cache", *good, f"http://{server}/job/rank2.json.gz?head={TOKEN}")
    assert found.code == 2, found.err
    assert "rank2.json.gz is left out: 403" in " ".join(found.out.split())
    assert found.leaks() == []


@pytest.mark.parametrize(
    "text",
    ["cannot reach http://me:pw%21@h/x?sig=abc", "401 for url='h/x?sig=abc'", "user me:pw%21 refused", "bad login pw!"],
)
def test_what_a_library_says_is_repeated_without_the_credentials(text: str) -> None:
    said = reason_of(OSError(text), "http://me:pw%21@h/x?sig=abc")
    assert not any(secret in said for secret in ("pw%21", "pw!", "sig=abc"))
