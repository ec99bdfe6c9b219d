"""One job of several ranks: its calls, late ranks, differences between ranks."""
