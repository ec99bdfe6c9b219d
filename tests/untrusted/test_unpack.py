"""Gzip in blocks that several threads unpack gives the text, the damage and the refusals of one thread."""

from __future__ import annotations

import gzip
import random
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from timesink.errors import UnreadableTrace
from timesink.untrusted import unpack
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


def said_by(threads: int, path: Path, limits: ReadLimits | None = None) -> tuple[bytes, str]:
    file = UnpackedFile(path, limits or ReadLimits())
    return b"".join(map(bytes, file._unpacked("gzip", threads))), file.problem


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
def test_several_threads_give_what_one_does(
    tmp_path_factory: pytest.TempPathFactory, file: tuple[int, bytes, int], damage: str, where: float
) -> None:
    seed, text, size = file
    packed = in_blocks(text, size)
    at = int(where * (len(packed) - 1))
    match damage:
        case "cut":
            packed = packed[:at] if at > 1 else packed
        case "flipped":
            packed = packed[:at] + bytes([packed[at] ^ (1 + seed)]) + packed[at + 1 :] if at > 1 else packed
        case "followed":
            packed += b"and more"
        case "plain member follows":
            packed += gzip.compress(text[::-1])
    path = tmp_path_factory.getbasetemp() / "blocks.gz"
    path.write_bytes(packed)
    (found, problem), (of_one, problem_of_one) = said_by(3, path), said_by(1, path)
    assert problem == problem_of_one
    shorter, longer = sorted((found, of_one), key=len)
    assert longer.startswith(shorter)  # how much the damage takes along depends on where pieces begin
    if damage not in ("cut", "flipped"):
        assert found == of_one
    if damage == "whole":
        assert (found, problem) == (text, "")


def test_blocks_are_unpacked_by_the_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = long_text(5, 3_000_000)
    path = tmp_path / "blocks.gz"
    path.write_bytes(in_blocks(text, 65_280))
    groups: list[int] = []
    unpacked = unpack._unpacked_blocks
    monkeypatch.setattr(unpack, "_unpacked_blocks", lambda group: groups.append(len(group)) or unpacked(group))
    assert said_by(3, path) == (text, "")
    assert sum(groups) == -(-len(text) // 65_280) + 1
    assert max(groups) == unpack._BLOCKS_AT_ONCE


def test_a_block_that_unpacks_to_more_than_blocks_hold_is_a_bomb_as_any_other_gzip(tmp_path: Path) -> None:
    path = tmp_path / "bomb.gz"
    path.write_bytes(block(b"0") + block(bytes(60_000_000)) * 3)
    for threads in (1, 3):
        with pytest.raises(UnreadableTrace, match="a decompression bomb"):
            said_by(threads, path)


def test_the_budget_counts_what_all_threads_unpack(tmp_path: Path) -> None:
    path = tmp_path / "blocks.gz"
    path.write_bytes(in_blocks(long_text(7, 2_000_000), 65_280))
    for threads in (1, 3):
        with pytest.raises(UnreadableTrace, match="more than 1,000,000 bytes"):
            said_by(threads, path, ReadLimits(unpacked_bytes=1_000_000))
