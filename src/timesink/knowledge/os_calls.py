"""What calls into the operating system make a thread do: read and write, sleep, wait for another thread."""

from __future__ import annotations

from typing import Final

from timesink.knowledge.pattern import Pattern

READS_OR_WRITES: Final = Pattern(
    r"^_*(p?(read|write)v?(64)?|open(at)?(64)?|close|[fl]?x?stat(64|at)?|lseek(64)?|f(data)?sync|sync|sync_file_range"
    r"|f(open|close|read|write|puts|gets|flush|printf|scanf)(64)?|send(to|msg|file)?(64)?|recv(from|msg)?|connect|accept4?"
    r"|p?poll|p?select|epoll_p?wait|rename|unlink|ftruncate(64)?|flock|fcntl(64)?)$",
    "moves data to or from a file, a pipe or a socket, or waits until that can be done",
    ("write", "open64", "fsync", "pwrite64", "poll", "fstat64", "sendmsg"),
    ("pthread_cond_wait", "mmap", "writer", "futex"),
)
SLEEPS: Final = Pattern(
    r"^_*(u?sleep|(clock_)?nanosleep|wait(pid|id|[34])?|system|pause|sigwait\w*)$",
    "sleeps, or waits for another process", ("usleep", "clock_nanosleep", "waitpid", "system"), ("sem_wait", "poll"),
)  # fmt: skip
WAITS_FOR_THREAD: Final = Pattern(
    r"^_*(pthread_(cond_(timed|clock)?wait|mutex_(timed)?lock|rwlock_\w*lock|join|barrier_wait)|sem_(timed)?wait|futex)$",
    "waits for another thread of the process", ("pthread_cond_wait", "sem_wait", "pthread_join"),
    ("pthread_cond_signal", "pthread_create", "write"),
)  # fmt: skip
FILE_STATE: Final = Pattern(
    r"^_*[fl]?x?stat(64|at)?$", "asks for the state of a file, as Python does of each source file of a stack it stores",
    ("stat64", "__xstat"), ("statfs", "read"),
)  # fmt: skip
