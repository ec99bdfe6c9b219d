"""What a trace is: the declaration of its tables, the frames that obey it, and interval algebra on them."""
