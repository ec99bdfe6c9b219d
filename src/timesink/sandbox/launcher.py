"""What a boxed run does before its program begins: namespaces and mounts, or Landlock and a filter of calls.

It runs in an interpreter of its own, because a user namespace needs a process of one thread, or in one that was forked
with PyTorch imported. `enter` returns in the process that becomes the program; those above it wait, and end what is
left. On a pipe they answer: notes as JSON where the program is about to begin, else the reason why it cannot.
"""

import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import stat
import struct
import sys
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from typing import Any, Final

_SYSTEM: Final = frozenset({"proc", "sys", "dev", "run", "boot", "lost+found"})
"""Folders that stay read-only; devices, sockets and fresh shared memory in them can be used."""
_NEWNS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_BIND, _RECURSIVE, _PRIVATE, _ALL_BELOW = 0x1000, 0x4000, 0x40000, 0x8000
_NOSUID_NODEV, _NOSUID_NODEV_NOEXEC = 6, 14
_PDEATHSIG, _CAPBSET_DROP, _CHILD_SUBREAPER, _NO_NEW_PRIVS, _SECCOMP = 1, 24, 36, 38, 22
_MOUNT_SETATTR, _LANDLOCK = 442, (444, 445, 446)  # one number on all machines
_ALL_WRITES: Final = 0x7FF2
"""Of Landlock: writing, removing, making of any kind, moving between folders, truncating."""
_PRETENDED: Final = {
    "x86_64": (
        0xC000003E, (90, 91, 92, 93, 94, 132, 188, 189, 190, 197, 198, 199, 235, 260, 261, 268, 280, 452, 463, 466)
    ),
    "aarch64": (0xC00000B7, (5, 6, 7, 14, 15, 16, 52, 53, 54, 55, 88, 452, 463, 466)),
}  # fmt: skip
"""By machine: its number for filters, and its calls that set modes, owners, times and attributes: chmod, fchmod, chown,
fchown, lchown, utime, setxattr and removexattr with their kinds, utimes, fchownat, futimesat, fchmodat, utimensat,
fchmodat2, setxattrat and removexattrat. Landlock knows none of them; they do nothing and say that they did."""
_libc: Final = ctypes.CDLL(None, use_errno=True)


def enter(spec: dict[str, Any]) -> None:
    """Come back in a process from which nothing outside can be changed; all others end with the program's status."""
    notes: dict[str, Any] = {"read_only": [], "layers": {}, "before": {}}
    for end in (spec["tell"], spec["life"]):
        os.set_inheritable(end, False)
    try:
        if spec["way"] == "landlock":
            _libc.prctl(_CHILD_SUBREAPER, 1)  # orphans come to us
            _landlock(spec["writable"])
        else:
            _namespaces(spec)
            if spec["pids"]:
                first = os.fork()
                if first:
                    os.close(spec["tell"])
                    _end(_wait(first, spec["life"]))
                _libc.prctl(_PDEATHSIG, signal.SIGKILL)
            else:
                _libc.prctl(_CHILD_SUBREAPER, 1)
            _mounts(Path(spec["scratch"]), spec, notes)
            for capability in range(5, 64) if spec["way"] != "sealed" else ():  # a root must not undo mounts
                _libc.prctl(_CAPBSET_DROP, capability)
        os.chdir(spec["place"])
        if spec["words"] and not shutil.which(spec["words"][0]):
            raise OSError(f"there is no program {spec['words'][0]!r}")
    except OSError as error:
        os.write(spec["tell"], str(error).encode())
        _end(125)
    os.write(spec["tell"], json.dumps(notes).encode())
    program = os.fork()
    if program:
        os.close(spec["tell"])
        _end(_wait(program, spec["life"], sweeps=not spec["pids"]))
    _libc.prctl(_PDEATHSIG, signal.SIGKILL)
    os.close(spec["tell"])
    os.close(spec["life"])


def _end(status: int) -> None:
    """End as the program did: by its signal where there was one, without a core."""
    if status < 0:
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(-status, signal.SIG_DFL) if -status not in (signal.SIGKILL, signal.SIGSTOP) else None
        os.kill(os.getpid(), -status)
        status = 128 - status  # the first of a namespace of processes is not ended by a signal of its own
    os._exit(status)


def _wait(main: int, life: int, sweeps: bool = False) -> int:
    """The status of the program, or of the one that waits for it; it is killed once the other end of `life` is closed.
    What it left behind is ended, where no namespace of processes does so."""
    for kind in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(kind, signal.SIG_IGN)  # they are sent to all of the group, and the program answers
    with suppress(OSError):
        for descriptor in (0, 1, 2):
            os.close(descriptor)  # who reads what the program says must see its end
    ends = os.pidfd_open(main)
    polled = select.poll()
    polled.register(ends, select.POLLIN)
    if life >= 0:
        polled.register(life, select.POLLHUP)
    while not any(at == ends for at, _ in polled.poll()):
        signal.pidfd_send_signal(ends, signal.SIGKILL)
        polled.unregister(life)
    _, ended = os.waitpid(main, 0)
    while sweeps and (left := Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()):
        for pid in map(int, left):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    with suppress(ChildProcessError):  # the orphans of a namespace of processes go with its first
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    status = os.waitstatus_to_exitcode(ended)
    return 128 - status if status > 128 else status  # of the one that waits for it


def _namespaces(spec: dict[str, Any]) -> None:
    """A user namespace in which each owner is who it is outside: all of them for root, else our own alone."""
    ours = {name: f"{own} {own} 1" for name, own in (("uid_map", os.geteuid()), ("gid_map", os.getegid()))}
    whole = {name: _identity(name) for name in ours} if not os.geteuid() else {}
    asked, asks = os.pipe()
    told, tells = os.pipe()
    pid = os.getpid()
    writer = os.fork()
    if not writer:  # only from outside can more than our own be written
        os.close(asks)
        os.read(asked, 1)
        with suppress(OSError):
            for name, text in whole.items():
                Path(f"/proc/{pid}/{name}").write_text(text)
            os.write(tells, b"1") if whole else None
        os._exit(0)
    flags = _NEWUSER | _NEWNS | _NEWIPC | _NEWPID * spec["pids"] | _NEWNET * (not spec["network"])
    try:
        _check(_libc.unshare(flags), "unshare")
    finally:
        os.close(asks)
        os.close(tells)
        are_all = os.read(told, 1)
        os.waitpid(writer, 0)
    for name, text in {"setgroups": "deny", **ours}.items() if not are_all else ():
        if name == "setgroups" or not Path("/proc/self", name).read_text().strip():
            Path("/proc/self", name).write_text(text)
    os.close(asked)
    os.close(told)
    if not spec["network"]:
        with socket.socket() as link:
            ioctl(link, 0x8914, struct.pack("16sH14x", b"lo", 1 | 64))  # the loopback device up


def _identity(name: str) -> str:
    """Each owner of this namespace as itself."""
    ranges = [line.split() for line in Path("/proc/self", name).read_text().splitlines()]
    return "".join(f"{inside} {inside} {count}\n" for inside, _, count in ranges)


def _mounts(scratch: Path, spec: dict[str, Any], notes: dict[str, Any]) -> None:
    """All is read-only, then covered by layers; in the end folders of the run and of our records are laid on top."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as listed:
        # The kernel writes spaces and signs of a path as three octal digits.
        points = [re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), line.split()[4]) for line in listed]
    _mount(None, "/", None, _RECURSIVE | _PRIVATE)
    through = [spec["root"], *(name for name in spec["writable"] if os.path.isdir(name))]
    for folder in through:
        _mount(folder, folder, None, _BIND | _RECURSIVE)
    _set_writable("/", False, _ALL_BELOW)
    for folder in through:
        _set_writable(folder, True)
    with suppress(OSError):
        _set_writable("/proc", True)
    held = {name: os.open(name, os.O_PATH) for name in through[1:]}
    layers = {name: os.open(scratch / name, os.O_PATH) for name in ("upper", "work")}
    caches = {name: os.open(name, os.O_PATH) if os.path.isdir(name) else -1 for name in spec["caches"]}
    copy = os.open(scratch / "copy", os.O_PATH)
    stored = {name: os.open(where, os.O_PATH) for name, where in spec["caches"].items()}
    if spec["way"] == "overlay":
        for entry in sorted(os.scandir("/"), key=lambda entry: entry.name):
            if entry.is_dir(follow_symlinks=False) and entry.name not in _SYSTEM and os.access(entry.path, os.X_OK):
                _cover(entry.path, points, layers, spec, notes)
        if not any(folder == "/" or spec["place"].startswith(f"{folder}/") or spec["place"] == folder
                   for folder in notes["layers"].values()):  # fmt: skip
            raise OSError(next(iter(notes["read_only"]), "no folder can be covered"))
        _lay_caches(caches, stored, spec)
    elif spec["way"] == "read-only":
        _mount(f"/proc/self/fd/{copy}", spec["here"], None, _BIND)
    if spec["way"] != "sealed":
        _mount("tmpfs", "/dev/shm", "tmpfs", _NOSUID_NODEV, "mode=1777")
    for name, descriptor in held.items():  # what is mounted by now covers them, too
        _mount(f"/proc/self/fd/{descriptor}", name, None, _BIND)
    if spec["pids"]:
        _mount("proc", "/proc", "proc", _NOSUID_NODEV_NOEXEC)
    if spec["way"] != "sealed":  # in which another such namespace is to be made, and nothing may hide parts of it
        _mount("/proc/sys", "/proc/sys", None, _BIND)
        _set_writable("/proc/sys", False)  # a root could set the machine there


def _lay_caches(caches: dict[str, int], stored: dict[str, int], spec: dict[str, Any]) -> None:
    """What compilers keep is kept from one run to the next: folders of their own over what the user has."""
    for name, original in caches.items():
        with suppress(OSError):
            os.makedirs(name, exist_ok=True)
            os.makedirs(f"/proc/self/fd/{stored[name]}/upper", exist_ok=True)
            os.makedirs(f"/proc/self/fd/{stored[name]}/work", exist_ok=True)
            ends = [os.open(f"/proc/self/fd/{stored[name]}/{what}", os.O_PATH) for what in ("upper", "work")]
            if original >= 0:
                _overlay(name, original, *ends)
            else:
                _mount(f"/proc/self/fd/{ends[0]}", name, None, _BIND)


def _cover(folder: str, points: list[str], layers: dict[str, int], spec: dict[str, Any], notes: dict[str, Any]) -> None:
    """An overlay over the folder; where mount points lie below, which the kernel refuses, over each folder in it.
    Others make and remove folders meanwhile: one that is gone needs none."""
    if any(point.startswith(f"{folder}/") for point in points):
        notes["read_only"].append(f"{folder} itself, which holds mount points")
        for entry in [e for e in os.scandir(folder) if e.is_dir(follow_symlinks=False)]:
            with suppress(PermissionError, FileNotFoundError):
                _cover(entry.path, points, layers, spec, notes)
        return
    ends = [os.open(folder, os.O_PATH)]
    try:
        name = str(len(notes["layers"]))
        layer, work = (f"/proc/self/fd/{layers[what]}/{name}" for what in ("upper", "work"))
        os.mkdir(layer)
        _prepare(folder, layer, spec)
        for root, _, files in os.walk(layer):  # said before the program can write: later nobody knows whose they are
            for inner in (os.path.join(root, file) for file in files):
                notes["before"][name + inner[len(layer) :]] = state_of(inner)
        os.mkdir(work)
        ends += (os.open(end, os.O_PATH) for end in (layer, work))
        try:
            _overlay(folder, *ends)
            notes["layers"][name] = folder
        except OSError as error:
            if os.path.isdir(folder):
                notes["read_only"].append(str(error))
            shutil.rmtree(work)
            shutil.rmtree(layer)
    finally:
        for descriptor in ends:
            os.close(descriptor)


def state_of(path: str | Path) -> tuple[int, ...]:
    """What of a file changes where it is written or replaced."""
    there = os.lstat(path)
    return there.st_size, there.st_mtime_ns, there.st_ino, there.st_mode


def _prepare(folder: str, layer: str, spec: dict[str, Any]) -> None:
    """Put into a layer what the kernel cannot copy there, folders and files of other owners, and the files shown."""
    mine = {str(path) for name in spec["mine"] for path in (Path(name), *Path(name).parents)}
    parents = {str(path) for name in spec["shown"] for path in Path(name).parents}
    for path in sorted({folder, *(path for path in mine | parents if path.startswith(f"{folder}/"))}):
        with suppress(FileNotFoundError):
            there = os.stat(path)
            if there.st_uid != os.geteuid() or path == folder or path in parents:
                os.makedirs(layer + path[len(folder) :], exist_ok=True)
                mode = stat.S_IMODE(there.st_mode) | 0o700
                os.chmod(layer + path[len(folder) :], mode if _may_write(there) else 0o555)
    for name, source in spec["shown"].items():
        if name.startswith(f"{folder}/") and os.path.isdir(os.path.dirname(layer + name[len(folder) :])):
            if source:
                shutil.copyfile(source, layer + name[len(folder) :])
                shutil.copystat(source, layer + name[len(folder) :])
            elif os.path.lexists(name):
                os.mknod(layer + name[len(folder) :], stat.S_IFCHR, 0)  # how a layer says that nothing is there


def _may_write(there: os.stat_result) -> bool:  # os.access says no of all that is mounted read-only
    ours = 0o200 if there.st_uid == os.geteuid() else 0o020 if there.st_gid in (os.getegid(), *os.getgroups()) else 2
    return not os.geteuid() or bool(there.st_mode & ours)


def _overlay(folder: str, lower: int, upper: int, work: int) -> None:
    parts = zip(("lower", "upper", "work"), (lower, upper, work), strict=True)
    options = ",".join(f"{what}dir=/proc/self/fd/{descriptor}" for what, descriptor in parts)
    _mount("overlay", folder, "overlay", _NOSUID_NODEV, f"userxattr,{options}")


def _landlock(places: list[str]) -> None:
    version = _check(_libc.syscall(_LANDLOCK[0], None, 0, 1), "Landlock")
    if version < 3:
        raise OSError("Landlock before version 3 (Linux 6.2) lets files be truncated")
    if os.uname().machine not in _PRETENDED:
        raise OSError(f"no filter of calls is known for {os.uname().machine}")
    attributes = struct.pack("3Q", _ALL_WRITES, 0, 2)[: 24 if version >= 6 else 8]  # from 6 on signals stay inside
    rules = _check(_libc.syscall(_LANDLOCK[0], attributes, len(attributes), 0), "landlock_create_ruleset")
    listed = [*((place, _ALL_WRITES) for place in (*places, "/dev/shm")), ("/dev", 0x4002)]
    for place, rights in listed + [("/proc", 2)] * bool(os.geteuid()):  # root could set the machine there
        folder = os.open(place, os.O_PATH)
        rule = struct.pack("=Qi", rights, folder)
        _check(_libc.syscall(_LANDLOCK[1], rules, 1, rule, 0), "landlock_add_rule")
        os.close(folder)
    _check(_libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _pretend()
    _check(_libc.syscall(_LANDLOCK[2], rules, 0), "landlock_restrict_self")
    os.close(rules)


def _pretend() -> None:
    """A filter that lets calls do nothing which set modes, owners, times and attributes; other machines' calls fail."""
    number, calls = _PRETENDED[os.uname().machine]
    last = len(calls)
    lines = [(0x20, 0, 0, 4), (0x15, 1, 0, number), (0x06, 0, 0, 0x50000 | 38), (0x20, 0, 0, 0)]
    lines += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, 0x50000 | 38)]  # x32 on x86_64
    lines += [(0x15, last - at, 0, call) for at, call in enumerate(calls)]
    lines += [(0x06, 0, 0, 0x7FFF0000), (0x06, 0, 0, 0x50000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in lines))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(code)))
    _check(_libc.prctl(_SECCOMP, 2, program, 0, 0), "a filter of calls")


def _set_writable(folder: str, is_writable: bool, flags: int = 0) -> None:
    words = struct.pack("4Q", not is_writable, is_writable, 0, 0)
    _check(_libc.syscall(_MOUNT_SETATTR, -100, os.fsencode(folder), flags, words, 32), f"mount_setattr of {folder}")


def _mount(source: object, target: object, kind: str | None, flags: int, options: str = "") -> None:
    words = [None if word is None else os.fsencode(str(word)) for word in (source, target, kind)]
    _check(_libc.mount(*words, ctypes.c_ulong(flags), options.encode()), f"mount {kind or ''} on {target}")


def _check(answer: int, what: str) -> int:
    if answer < 0:
        raise OSError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return answer


if __name__ == "__main__":
    given = json.loads(sys.stdin.buffer.read())
    enter(given)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for kind in (signal.SIGPIPE, signal.SIGXFSZ):  # which Python ignores
        signal.signal(kind, signal.SIG_DFL)
    os.execvp(given["words"][0], given["words"])
