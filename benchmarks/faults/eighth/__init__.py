"""The eighth set: one GPU, models of libraries and loops as strangers write them, captured without a mark."""
