"""Gzip in blocks (BGZF), many members one after the other, gives its text, its damage and the refusals of any gzip."""

import gc
import gzip
import lzma
import random
import struct
import weakref
import zlib
from pathlib import Path

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from timesink.errors import UnreadableTrace
from timesink.untrusted.budget import ReadLimits
from timesink.untrusted.unpack import UnpackedFile


def block(text: bytes) -> bytes:
    """One block of BGZF: a gzip member whose header says how long it is."""
    deflate = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = deflate.compress(text) + deflate.flush()
    size = 18 + len(body) + 8
    head = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff\x06\0BC\x02\0" + struct.pack("<H", size - 1)
    return head + body + struct.pack("<II", zlib.crc32(text), len(text))


def in_blocks(text: bytes, size: int) -> bytes:
    return b"".join(block(text[at : at + size]) for at in range(0, len(text), size)) + block(b"")


def said_of(path: Path, limits: ReadLimits | None = None) -> tuple[bytes, str]:
    file = UnpackedFile(path, limits or ReadLimits())
    return b"".join(map(bytes, file)), file.problem


def long_text(seed: int, length: int) -> bytes:
    chosen = random.Random(seed)
    words = [chosen.randbytes(chosen.randint(1, 40)) for _ in range(50)]
    text = b"".join(chosen.choices(words, k=length // 10))
    return text[:length]


files = st.builds(
    lambda seed, length, size: (seed, long_text(seed, length), size),
    st.integers(0, 99), st.integers(0, 400_000), st.sampled_from([900, 20_000, 65_280, 65_536]),
)  # fmt: skip


@given(files, st.sampled_from(["whole", "cut", "flipped", "followed", "plain member follows"]), st.floats(0, 1))
def test_many_members_give_their_text_or_what_came_before_the_damage(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[int, bytes, int], damage: str, where: float
) -> None:
    seed, text, size = file
    packed = in_blocks(text, size)
    at, wanted = int(where * (len(packed) - 1)), text
    match damage:
        case "cut":
            packed = packed[:at] if at > 1 else packed
        case "flipped":
            packed = packed[:at] + bytes([packed[at] ^ (1 + seed)]) + packed[at + 1 :] if at > 1 else packed
        case "followed":
            packed += b"and more"
        case "plain member follows":
            packed += gzip.compress(text[::-1])
            wanted = text + text[::-1]
    path = tmp_path_factory.getbasetemp() / "blocks.gz"
    path.write_bytes(packed)
    found, problem = said_of(path)
    assert bool(problem) >= (damage == "followed")
    if damage == "cut" or problem.startswith("bytes that are not gzip"):
        assert text.startswith(found)
    elif damage != "flipped":  # what a flipped bit makes of a block before its checksum tells, nobody can say
        assert (found, problem) == (wanted, "")


def test_a_member_that_unpacks_to_very_much_is_a_bomb(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(block(b"0") + block(bytes(60_000_000)) * 3)
    with pytest.raises(UnreadableTrace, match="a decompression bomb"):
        said_of(path)


def test_the_budget_counts_what_all_members_unpack_to(tmp_path: Path) -> None:
    path = tmp_path / "blocks.gz"
    path.write_bytes(in_blocks(long_text(7, 2_000_000), 65_280))
    with pytest.raises(UnreadableTrace, match="more than 1,000,000 bytes"):
        said_of(path, ReadLimits(unpacked_bytes=1_000_000))


_LONG = bytes(20_000_000)


@pytest.mark.parametrize(
    "packed",
    [
        gzip.compress(_LONG),
        gzip.compress(_LONG[:1000]) + gzip.compress(_LONG),
        in_blocks(_LONG, 65_280),
        lzma.compress(_LONG, preset=0),
        zstandard.ZstdCompressor().compress(_LONG),
    ],
    ids=["gzip", "two members", "blocks", "xz", "Zstandard"],
)
def test_what_was_read_of_a_refused_file_goes_with_its_error(
    packed: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("timesink.untrusted.unpack.usual_threads", lambda: 2)
    path = tmp_path / "bomb"
    path.write_bytes(packed)
    gc.disable()  # what is in a cycle stays until it runs, with all that the frames of the error hold
    try:
        with pytest.raises(UnreadableTrace) as refused:
            said_of(path, ReadLimits(unpacked_bytes=1_000_000))
        error = weakref.ref(refused.value)
        del refused
        assert error() is None
    finally:
        gc.enable()
