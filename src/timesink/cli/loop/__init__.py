"""`timesink loop`: captures one after another, joined; and with a plan, rung by rung."""
