"""Two worked examples: a transformer layer and a GPT-2 training step, made faster one measured change at a time."""
