"""`timesink watch`: captures diagnosed as they appear in a folder, with an index page of them."""
