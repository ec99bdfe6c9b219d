"""The thirteenth set: twelve jobs of two ranks as strangers write them, of other models than before; no marks."""
