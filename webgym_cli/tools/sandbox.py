"""Confines the process that runs untrusted Python code; `sandbox_script` is that process.

Before the code runs, the process irrevocably gives up, in this order:

- if the kernel permits it, the machine's mounts, processes, network and IPC (namespaces). Its root is then a small
  tmpfs with Python's library, read-only, and the scratch folder /tmp;
- memory, CPU time, threads and open files beyond the limits (rlimits);
- root (a root process switches to a separate user), all capabilities, new privileges, core files;
- survival of its parent (PR_SET_PDEATHSIG);
- if the kernel supports it, files other than Python's library and the scratch folder, and signals to other processes
  (Landlock);
- all system calls that `syscall_filter` does not list (seccomp).

Capabilities, no_new_privs and seccomp are required: without one of them nothing runs, and stderr has the reason.
With neither a private root nor Landlock, the filter allows no call that opens a file.
Imports only the standard library: webgym is not on its path.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import stat
import struct
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

# Scratch folder in the private root, where no other process has files.
SCRATCH = "/tmp"
SCRATCH_BYTES, SCRATCH_FILES = 16 * 2**20, 1024
MAX_OPEN_FILES, MAX_THREADS = 32, 64
# Uid of the sandbox: `FIRST_UID` plus its process id, which is unique; else that of nobody.
FIRST_UID, NOBODY = 0x60000000, 65534
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 24, 38
CAPABILITY_VERSION, CAPABILITIES = 0x20080522, 64
# Flags of `unshare`: a user namespace; those of mounts, host name, IPC, processes and network.
NEW_USER, NEW_SPACES = 0x10000000, 0x00020000 | 0x04000000 | 0x08000000 | 0x20000000 | 0x40000000
NOSUID_NODEV, MS_REC_PRIVATE, MNT_DETACH = 2 | 4, 0x4000 | 1 << 18, 2
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR, MOUNT_READ_ONLY = 428, 429, 442, 1
# System calls without a libc wrapper; newer ones have the same numbers on all machines.
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
CLONE_TREE, AT_RECURSIVE, AT_EMPTY_PATH, AT_FDCWD = 1, 0x8000, 0x1000, -100
# Number of file access rights of each Landlock ABI; later ones are used as 5.
ACCESS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
EXECUTE, WRITE_FILE, READ_FILE, READ_DIR, REMOVE_DIR, REMOVE_FILE, MAKE_DIR, MAKE_FILE, TRUNCATE = (
    1 << bit for bit in (0, 1, 2, 3, 4, 5, 7, 8, 14)
)
READ_ACCESS = EXECUTE | READ_FILE | READ_DIR
SCRATCH_ACCESS = READ_FILE | READ_DIR | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_FILE | TRUNCATE

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class NoSandboxError(Exception):
    """This machine can't confine the code."""


def require(result: int, what: str) -> int:
    """Return the result of a libc call. Raises `NoSandboxError` if it failed."""
    if result < 0:
        raise NoSandboxError(f"{what}: {os.strerror(ctypes.get_errno())}")
    return result


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent dies. A change of user or capabilities clears the setting."""
    require(libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0), "PR_SET_PDEATHSIG")


def enter_namespaces() -> int | None:
    """Fork into new namespaces: the child continues as PID 1, the parent waits for it and ends with its status.

    Returns a descriptor that becomes readable when the parent is gone; None if the kernel grants no namespaces.
    """
    uid, gid = os.getuid(), os.getgid()
    if libc.unshare(NEW_SPACES):
        if libc.unshare(NEW_USER | NEW_SPACES):
            return None
        with contextlib.suppress(OSError):
            Path("/proc/self/setgroups").write_text("deny")
            Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
            Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    watched, held = os.pipe()
    if child := os.fork():
        status = os.waitpid(child, 0)[1]
        if os.WIFSIGNALED(status):
            os.kill(os.getpid(), os.WTERMSIG(status))
        os._exit(os.waitstatus_to_exitcode(status))
    os.close(held)
    return watched


def enter_own_root(folders: list[str], uid: int) -> bool:
    """Change the root to a tmpfs with some folders, read-only, and a scratch folder. Returns False if not permitted."""
    try:
        require(libc.mount(None, b"/", None, MS_REC_PRIVATE, None), "mount")
        trees = [(folder, _clone_read_only(folder)) for folder in folders]  # before the tmpfs covers what lies in /tmp
        _mount_tmpfs(SCRATCH, "size=1m,mode=0755")
    except NoSandboxError:
        return False
    try:
        # The scratch folder comes first: an interpreter or a package below /tmp is moved into it, not covered by it.
        scratch = f"{SCRATCH}{SCRATCH}"
        Path(scratch).mkdir()
        _mount_tmpfs(scratch, f"size={SCRATCH_BYTES},nr_inodes={SCRATCH_FILES},mode=0700,uid={uid},gid={uid}")
        for folder, tree in trees:
            inside = f"{SCRATCH}{folder}"
            Path(inside).mkdir(parents=True, exist_ok=True)
            require(libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, inside.encode(), 4), "move_mount")
        _set_read_only(AT_FDCWD, SCRATCH.encode(), 0)
        os.chdir(SCRATCH)
        require(libc.syscall(PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
        require(libc.umount2(b".", MNT_DETACH), "umount")  # of the old root, which is stacked over the new one now
        os.chdir(SCRATCH)
    except (NoSandboxError, OSError):
        libc.umount2(SCRATCH.encode(), MNT_DETACH)
        return False
    return True


def _mount_tmpfs(place: str, options: str) -> None:
    require(libc.mount(b"tmpfs", place.encode(), b"tmpfs", NOSUID_NODEV, options.encode()), "mount")


def _set_read_only(folder: int, path: bytes, flags: int) -> None:
    attributes = struct.pack("=QQQQ", MOUNT_READ_ONLY | NOSUID_NODEV, 0, 0, 0)
    require(libc.syscall(MOUNT_SETATTR, folder, path, flags, attributes, len(attributes)), "mount_setattr")


def _clone_read_only(folder: str) -> int:
    """Return a detached, read-only copy of a folder's mount."""
    tree = libc.syscall(OPEN_TREE, AT_FDCWD, folder.encode(), CLONE_TREE | AT_RECURSIVE | os.O_CLOEXEC)
    _set_read_only(require(tree, "open_tree"), b"", AT_EMPTY_PATH | AT_RECURSIVE)
    return int(tree)


def leave_root(uid: int) -> None:
    """Switch to another user, if permitted."""
    with contextlib.suppress(OSError):
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)


def drop_privileges() -> None:
    """Drop all capabilities, check that they are gone, and give up new privileges and core files."""
    for number in range(CAPABILITIES):
        libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0)  # fails for those that the kernel doesn't have
    header, none, left = (
        struct.pack("=Ii", CAPABILITY_VERSION, 0),
        bytes(24),
        ctypes.create_string_buffer(b"?" * 24, 24),
    )
    require(libc.capset(header, none), "capset")
    require(libc.capget(header, left), "capget")
    if left.raw != none:
        raise NoSandboxError("capabilities are left")
    require(libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "PR_SET_NO_NEW_PRIVS")
    # a core file's handler runs as root, even where the limit of core files is 0
    require(libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0), "PR_SET_DUMPABLE")


def limit(cpu_seconds: int, memory: int, threads: int, file_size: int) -> None:
    """Set the resource limits; sizes in bytes."""
    for of, value in (
        # soft and hard limit are equal: PID 1 of a namespace would ignore the signal at a lower soft limit
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory),
        (resource.RLIMIT_FSIZE, file_size),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NOFILE, MAX_OPEN_FILES),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_NPROC, threads),
    ):
        hard = resource.getrlimit(of)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(of, (allowed, allowed))


def count_tasks(uid: int) -> int:
    """Return the number of a user's threads, all of which the kernel counts against the limit."""
    total = 0
    for process in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if process.name.isdigit() and process.stat().st_uid == uid:
                total += sum(1 for _ in (process / "task").iterdir())
    return total


def landlock_abi() -> int:
    """Return Landlock's ABI version; below 1 if the kernel lacks Landlock."""
    return int(libc.syscall(LANDLOCK_CREATE, None, 0, 1))


def restrict_files(access: dict[str, int]) -> None:
    """Restrict file access to the given access rights below some folders, by Landlock."""
    abi = landlock_abi()
    handled = (1 << ACCESS_BY_ABI.get(abi, ACCESS_BY_ABI[5])) - 1
    # ABI 4 added TCP; ABI 6 added abstract sockets and signals to processes outside
    fields = 1 + (abi >= 4) + (abi >= 6)
    attributes = struct.pack("=QQQ", handled, 3, 3)[: 8 * fields]
    rules = require(libc.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0), "Landlock refused its rules")
    for folder, kinds in access.items():
        descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
        rule = struct.pack("=Qi", kinds & handled, descriptor)
        require(libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0), f"Landlock refused {folder}")
        os.close(descriptor)
    require(libc.syscall(LANDLOCK_RESTRICT, rules, 0), "Landlock can't be switched on")
    os.close(rules)


def restrict_calls(program: bytes) -> None:
    """Install the system call filter and check that it has an effect."""
    buffer = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    require(libc.prctl(PR_SET_SECCOMP, 2, described, 0, 0), "seccomp can't be switched on")
    if libc.socket(1, 1, 0) != -1:  # emulators accept a filter and don't apply it
        raise NoSandboxError("seccomp has no effect")


def choose_user(own: int) -> int:
    """Return the uid to switch to: for root a unique one, if the user namespace maps it; else the present one."""
    if os.getuid():
        return os.getuid()
    spans = [tuple(map(int, line.split())) for line in Path("/proc/self/uid_map").read_text().splitlines()]
    for uid in (FIRST_UID + own, NOBODY):
        if any(first <= uid < first + count for first, _, count in spans):
            return uid
    return 0


def is_open_to_all(folder: str) -> bool:
    """Whether all users have search permission on a folder and its parents."""
    path = Path(folder).resolve()
    return all(place.stat().st_mode & stat.S_IXOTH for place in (path, *path.parents))


def confine(job: dict[str, Any], preload: Callable[[], None]) -> None:
    """Confine this process; `preload` is called if no file can be opened later. Raises `NoSandboxError`."""
    die_with_parent()
    if os.getppid() != job["parent"]:  # it died before the death signal was set
        raise NoSandboxError("the process that asked is gone")
    own = os.getpid()
    watched = enter_namespaces()
    os.umask(0o022)
    folders = [folder for folder in (*_library(), *job["packages"].values()) if Path(folder).is_dir()]
    uid = choose_user(own)
    threads = MAX_THREADS + (0 if uid == FIRST_UID + own else count_tasks(uid))
    has_root = watched is not None and enter_own_root(folders, uid)
    has_landlock = landlock_abi() > 0
    if not has_root and not has_landlock:
        preload()
        if len(list(Path("/proc/self/task").iterdir())) != 1:  # a filter applies to the calling thread only
            raise NoSandboxError("a package has started threads")
    limit(job["cpu_seconds"], job["memory"], threads, SCRATCH_BYTES if has_root else 0)
    if not os.getuid() and uid and (has_root or all(map(is_open_to_all, folders))):
        leave_root(uid)
    drop_privileges()
    die_with_parent()
    if os.getppid() != job["parent"] if watched is None else select.select([watched], [], [], 0)[0]:
        raise NoSandboxError("the process that asked is gone")
    os.closerange(3, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    if has_landlock:
        restrict_files(dict.fromkeys(folders, READ_ACCESS) | ({SCRATCH: SCRATCH_ACCESS} if has_root else {}))
    # the limit of threads does not apply to root, so root may start none
    parts = {
        "base": True,
        "threads": os.getuid() != 0,
        "read": has_root or has_landlock,
        "write": has_root,
        "end": True,
    }
    restrict_calls(b"".join(bytes.fromhex(job["filter"][part]) for part, used in parts.items() if used))


def _library() -> list[str]:
    system = ["/usr/lib", "/usr/lib64", "/lib", "/lib64", "/usr/share/zoneinfo"]
    return [f"{sys.base_exec_prefix}/lib", str(Path(os.__file__).parent), *system]
