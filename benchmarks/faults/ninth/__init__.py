"""The ninth set: one GPU, more programs as strangers write them, captured without a mark by both tools."""
