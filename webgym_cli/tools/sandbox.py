"""Runs Python code that nobody trusts. Started as a script by `python_tool`; the code comes on stdin.

    python -I -S sandbox.py <cpu seconds> <memory bytes> <parent's pid>

Before the code runs, and for good, this process gives up, in this order:

- life after its parent (PR_SET_PDEATHSIG), new privileges (PR_SET_NO_NEW_PRIVS), core files;
- memory and CPU time beyond the limits, files beyond a few open ones (rlimits), writing to any file (RLIMIT_FSIZE 0);
- all files but Python's own standard library and the system's shared libraries, which it can only read (Landlock);
- by a system call filter (seccomp): sockets of every kind, new processes, running programs, looking into or signalling
  other processes, changing files' owners, modes and times, namespaces, mounts, io_uring, and what else reaches around
  the other limits.

What stays possible: to learn whether a file of a known path exists, and how large it is; to read the clock.

Where Landlock or seccomp can't be had, nothing is run: and stderr says why. Imports only the
standard library: webgym is not on its path.
"""

from __future__ import annotations

import ast
import contextlib
import ctypes
import os
import platform
import resource
import signal
import struct
import sys
import traceback
from pathlib import Path

REFUSED = 1
"""Exit status when the sandbox can't be had on this machine."""
FILENAME = "<code>"
MAX_OPEN_FILES = 32

PR_SET_PDEATHSIG, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 22, 38
SECCOMP_MODE_FILTER = 2
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
"""The numbers of Landlock's system calls, the same on all machines."""
ACCESS_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many kinds of access to files each version of Landlock knows; later ones as the last."""
READ_FILE, READ_DIR, EXECUTE = 1 << 2, 1 << 3, 1 << 0

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x50000, 0x80000000
EPERM, ENOSYS = 1, 38
CLONE_THREAD = 0x10000
MACHINES = {"x86_64": (0xC000003E, 56), "aarch64": (0xC00000B7, 220)}
"""Those for which there is a filter: the audit number and the number of `clone`."""
CLONE3 = 435
CALLS = """
    shmget:29:194 shmat:30:196 shmctl:31:195 socket:41:198 connect:42:203 accept:43:202 accept4:288:242 bind:49:200
    listen:50:201 socketpair:53:199 fork:57:- vfork:58:- execve:59:221 execveat:322:281 kill:62:129 tkill:200:130
    tgkill:234:131 rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 semget:64:190 semop:65:193 semctl:66:191
    shmdt:67:197 msgget:68:186 msgsnd:69:189 msgrcv:70:188 msgctl:71:187 mq_open:240:180 ptrace:101:117
    process_vm_readv:310:270 process_vm_writev:311:271 kcmp:312:272 pidfd_open:434:434 pidfd_getfd:438:438
    pidfd_send_signal:424:424 perf_event_open:298:241 userfaultfd:323:282 bpf:321:280 seccomp:317:277
    setrlimit:160:164 prlimit64:302:261 truncate:76:45 chmod:90:- fchmod:91:52 fchmodat:268:53 fchmodat2:452:452
    chown:92:- fchown:93:55 lchown:94:- fchownat:260:54 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7
    removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16 utime:132:- utimes:235:- futimesat:261:-
    utimensat:280:88 unshare:272:97 setns:308:268 pivot_root:155:41 chroot:161:51 mount:165:40 umount2:166:39
    open_tree:428:428 move_mount:429:429 fsopen:430:430 fsconfig:431:431 fsmount:432:432 fspick:433:433
    mount_setattr:442:442 name_to_handle_at:303:264 open_by_handle_at:304:265 swapon:167:224 swapoff:168:225
    reboot:169:142 acct:163:89 syslog:103:116 quotactl:179:60 sethostname:170:161 setdomainname:171:162
    settimeofday:164:170 clock_settime:227:112 adjtimex:159:171 clock_adjtime:305:266 iopl:172:- ioperm:173:-
    init_module:175:105 finit_module:313:273 delete_module:176:106 kexec_load:246:104 kexec_file_load:320:294
    add_key:248:217 request_key:249:218 keyctl:250:219 memfd_create:319:279 memfd_secret:447:447
    io_uring_setup:425:425 io_uring_enter:426:426 io_uring_register:427:427 setpriority:141:140 ioprio_set:251:30
    sched_setscheduler:144:119 sched_setattr:314:274 sched_setaffinity:203:122
"""
"""The system calls that are refused, each with its number on x86_64 and on aarch64."""

libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long


class NoSandboxError(Exception):
    """This machine can't confine the code."""


def limit(cpu_seconds: int, memory: int) -> None:
    """Set the resource limits; memory in bytes."""
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (MAX_OPEN_FILES, MAX_OPEN_FILES))


def readable() -> list[str]:
    """Return the folders that the interpreter needs."""
    return [str(Path(os.__file__).parent), f"{sys.base_exec_prefix}/lib", "/usr/lib", "/usr/lib64", "/lib", "/lib64"]


def keep_files(folders: list[str]) -> None:
    """Take away all access to files but reading below these folders, by Landlock."""
    abi = libc.syscall(LANDLOCK_CREATE, None, 0, 1)
    if abi < 1:
        raise NoSandboxError("the kernel has no Landlock")
    handled = (1 << ACCESS_BY_ABI.get(abi, ACCESS_BY_ABI[5])) - 1
    attributes = struct.pack("=Q", handled)
    rules = libc.syscall(LANDLOCK_CREATE, attributes, len(attributes), 0)
    if rules < 0:
        raise NoSandboxError(f"Landlock refused its rules: {os.strerror(ctypes.get_errno())}")
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            descriptor = os.open(folder, os.O_PATH | os.O_CLOEXEC)
            rule = struct.pack("=Qi", READ_FILE | READ_DIR | EXECUTE, descriptor)
            if libc.syscall(LANDLOCK_ADD, rules, 1, rule, 0):
                raise NoSandboxError(f"Landlock refused {folder}: {os.strerror(ctypes.get_errno())}")
            os.close(descriptor)
    if libc.syscall(LANDLOCK_RESTRICT, rules, 0):
        raise NoSandboxError(f"Landlock can't be switched on: {os.strerror(ctypes.get_errno())}")
    os.close(rules)


def refused_calls() -> dict[str, int]:
    """Return the refused system calls of this machine with their numbers; it may not have all of them."""
    column = 1 if platform.machine() == "x86_64" else 2
    parts = (entry.split(":") for entry in CALLS.split())
    return {part[0]: int(part[column]) for part in parts if part[column] != "-"}


def program() -> bytes:
    """Return the system call filter as instructions of classic BPF."""
    if platform.machine() not in MACHINES:
        raise NoSandboxError(f"no system call filter is known for {platform.machine()}")
    audit, clone = MACHINES[platform.machine()]
    load, jump_equal, jump_above, jump_bits, leave = 0x20, 0x15, 0x35, 0x45, 0x06
    code = [(load, 0, 0, 4), (jump_equal, 1, 0, audit), (leave, 0, 0, KILL), (load, 0, 0, 0)]
    if platform.machine() == "x86_64":  # numbers from 2^30 on are those of the x32 interface
        code += [(jump_above, 0, 1, 0x40000000), (leave, 0, 0, KILL)]
    code += [(jump_equal, 0, 1, CLONE3), (leave, 0, 0, ERRNO | ENOSYS)]  # libc then asks for clone
    for number in refused_calls().values():
        code += [(jump_equal, 0, 1, number), (leave, 0, 0, ERRNO | EPERM)]
    code += [(jump_equal, 0, 3, clone), (load, 0, 0, 16), (jump_bits, 1, 0, CLONE_THREAD)]
    code += [(leave, 0, 0, ERRNO | EPERM), (leave, 0, 0, ALLOW)]
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def keep_calls() -> None:
    """Switch the system call filter on."""
    instructions = program()
    buffer = ctypes.create_string_buffer(instructions, len(instructions))
    described = struct.pack("HxxxxxxP", len(instructions) // 8, ctypes.addressof(buffer))
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, described, 0, 0):
        raise NoSandboxError(f"seccomp can't be switched on: {os.strerror(ctypes.get_errno())}")


def confine(cpu_seconds: int, memory: int, parent: int) -> None:
    """Give everything up. Raises `NoSandboxError`."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before we asked to be told
        raise NoSandboxError("the process that asked is gone")
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise NoSandboxError("the kernel has no PR_SET_NO_NEW_PRIVS")
    limit(cpu_seconds, memory)
    keep_files(readable())
    keep_calls()


def execute(source: str) -> int:
    """Run the code; the value of a last line that is an expression is printed, as an interpreter does."""
    namespace = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        tree = ast.parse(source, FILENAME)
        last = tree.body[-1] if tree.body else None
        if isinstance(last, ast.Expr):
            tree.body.pop()
        exec(compile(tree, FILENAME, "exec"), namespace)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), FILENAME, "eval"), namespace)
            if value is not None:
                sys.stdout.write(f"{value!r}\n")
    except SystemExit:
        return 0
    except BaseException as error:  # noqa: BLE001  the boundary to the code: whatever it raises is its output
        sys.stdout.write("".join(_lines(error)))
        return 1
    return 0


def _lines(error: BaseException) -> list[str]:
    """Return a traceback of the code's own frames, without ours."""
    found = traceback.TracebackException.from_exception(error)
    found.stack[:] = [frame for frame in found.stack if frame.filename != __file__]
    return list(found.format())


def main() -> int:
    """Confine this process and run what stands on stdin."""
    cpu_seconds, memory, parent = (int(argument) for argument in sys.argv[1:4])
    source = sys.stdin.buffer.read().decode(errors="replace")
    try:
        confine(cpu_seconds, memory, parent)
    except NoSandboxError as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    os.dup2(1, 2)  # what is written to stderr before this is the sandbox's own word
    return execute(source)


if __name__ == "__main__":
    sys.exit(main())
