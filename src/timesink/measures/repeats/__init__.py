"""What repeats within a step: units of operators or launches that run several times in a row, their kind and cost."""
