"""Where in the program's text time goes: the Python line behind each kernel, each wait and each host call."""
