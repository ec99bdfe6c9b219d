"""Readers turn files into traces. `read` looks at the first 4 KiB and asks each reader in turn.

A damaged record is an `ImportNote`; a damaged file is `UnreadableTrace`; a truncated file yields its readable prefix
with a DATA_LOSS note.
"""
