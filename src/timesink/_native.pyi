import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

def enclose(group: Times, start_ns: Times, end_ns: Times) -> tuple[Times, Times, Times]: ...
