"""timesink for coding agents: a Model Context Protocol server of few tools, each of which answers a task.

It reads files under the roots it was given, marks every text that a trace may have dictated, and runs no program but
the commands that were declared when it was started.
"""
