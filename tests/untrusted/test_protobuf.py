"""Messages that say they are longer than their file."""

import pytest

from timesink.untrusted.protobuf import DamagedMessage, fields, varint


@pytest.mark.parametrize("beyond", [0, 1, 5, 1 << 40])
@pytest.mark.parametrize("data", [b"", b"\x80", b"\x08\x96", b"\x0a\x83", b"\xff" * 9])
def test_a_number_that_the_file_cuts_off_is_damage(data: bytes, beyond: int) -> None:
    with pytest.raises(DamagedMessage, match="does not end"):
        list(fields(data, 0, max(len(data), 1) + beyond))


def test_a_number_that_ends_with_the_file_is_read() -> None:
    assert varint(b"\x96\x01", 0, 1 << 40) == (150, 2)
