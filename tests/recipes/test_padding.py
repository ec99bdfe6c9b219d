"""What is padded to the longest of its batch, and what keeps the length that it is told."""

from pathlib import Path

import pytest

from timesink.recipes.table import proposals

PADS = "tokens = tokenizer(texts, padding='max_length', max_length=512)"
OF_ONE = [
    "    def __getitem__(self, at):\n        {}\n        return tokens",
    "    def one(self):\n        {}\n        return tokens\n    def __getitem__(self, at):\n        return self.one()",
]
OF_MANY = [
    "    def collate(self, texts):\n        {}\n        return tokens",
    "    def __iter__(self):\n        {}\n        yield tokens",
]


@pytest.mark.parametrize("methods", OF_ONE + OF_MANY)
def test_what_a_data_set_pads_one_by_one_keeps_its_length(methods: str, tmp_path: Path) -> None:
    """Items of lengths of their own make no batch; a batch padded at once may be shorter."""
    (tmp_path / "data.py").write_text("class Data:\n" + methods.format(PADS) + "\n")
    found = [one for _, one in proposals([tmp_path / "data.py"], ["pad_to_batch"], {})]
    assert len(found) == (methods in OF_MANY)
