"""The seccomp filter of the Python sandbox: a classic BPF program that allows only the listed system calls."""

from __future__ import annotations

import struct
from functools import cache

# Supported machines: column of the tables below, and the machine's AUDIT_ARCH number.
MACHINES = {"x86_64": (1, 0xC000003E), "aarch64": (2, 0xC00000B7)}
# Memory, time, own signals and open file descriptors, as `name:number on x86_64:number on aarch64`.
ALWAYS = """
    read:0:63 write:1:64 readv:19:65 writev:20:66 pread64:17:67 pwrite64:18:68 lseek:8:62 close:3:57 dup:32:23 dup2:33:-
    dup3:292:24 fstat:5:80 mmap:9:222 mprotect:10:226 munmap:11:215 mremap:25:216 madvise:28:233 brk:12:214 futex:202:98
    sched_yield:24:124 set_robust_list:273:99 set_tid_address:218:96 rseq:334:293 restart_syscall:219:128
    exit:60:93 exit_group:231:94 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139
    rt_sigpending:127:136 rt_sigtimedwait:128:137 rt_sigsuspend:130:133 sigaltstack:131:132 pause:34:- alarm:37:-
    getitimer:36:102 setitimer:38:103 poll:7:- ppoll:271:73 select:23:- pselect6:270:72 nanosleep:35:101
    clock_nanosleep:230:115 clock_gettime:228:113 clock_getres:229:114 gettimeofday:96:169 time:201:-
    times:100:153 getrandom:318:278 getpid:39:172 getppid:110:173 gettid:186:178 getuid:102:174 geteuid:107:175
    getgid:104:176 getegid:108:177 getrlimit:97:163 getrusage:98:165 uname:63:160 sysinfo:99:179 getcpu:309:168
    getcwd:79:17
"""
# For processes whose file access is confined by other means, because a filter can't inspect paths.
READ = """
    open:2:- openat:257:56 stat:4:- lstat:6:- newfstatat:262:79 statx:332:291 access:21:- faccessat:269:48
    faccessat2:439:439 getdents64:217:61
"""
# For processes with a private scratch folder.
WRITE = """
    mkdir:83:- mkdirat:258:34 rmdir:84:- unlink:87:- unlinkat:263:35 rename:82:- renameat:264:38
    renameat2:316:276 ftruncate:77:46
"""

F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC = 1, 2, 3, 1030
# The flags with which glibc and musl call `clone` for a thread; all other values are refused.
THREAD_FLAGS = (0x3D0F00, 0x7D0F00)

_KILL, _ERRNO, _ALLOW = 0x80000000, 0x50000, 0x7FFF0000
_EPERM, _ENOTTY, _ENOSYS = 1, 25, 38
_LOAD, _EQUAL, _ABOVE, _RETURN = 0x20, 0x15, 0x35, 0x06
# Offsets in the kernel's `struct seccomp_data`; arguments have 8 bytes, the lower half first.
_NUMBER, _MACHINE, _ARGUMENTS = 0, 4, 16

Instruction = tuple[int, int, int, int]


@cache
def filter_blocks(machine: str) -> dict[str, bytes] | None:
    """Return the parts of the filter for a machine; None if it is not supported.

    A program is `base`, then any of `threads`, `read` and `write`, then `end`.
    """
    if machine not in MACHINES:
        return None
    column, audit = MACHINES[machine]
    base = [(_LOAD, 0, 0, _MACHINE), (_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, _NUMBER)]
    if machine == "x86_64":  # numbers from 2^30 on belong to the x32 ABI, which the list does not cover
        base += [(_ABOVE, 0, 1, 0x40000000), (_RETURN, 0, 0, _KILL)]
    base += _allow(ALWAYS, column)
    base += _allow_argument("fcntl:72:25", column, 1, (F_GETFD, F_SETFD, F_GETFL, F_DUPFD_CLOEXEC))
    # Python uses ioctl to test whether a file is a terminal, and falls back to fcntl on this error
    base += _refuse("ioctl:16:29", column, _ENOTTY)
    base += _refuse("clone3:435:435", column, _ENOSYS)  # libc then calls clone, whose flags a filter can check
    base += _allow_argument("sched_getaffinity:204:123", column, 0, (0,))
    base += _allow_own_limits(column)
    return {
        "base": _encode(base),
        "threads": _encode(_allow_argument("clone:56:220", column, 0, THREAD_FLAGS)),
        "read": _encode(_allow(READ, column)),
        "write": _encode(_allow(WRITE, column)),
        "end": _encode([(_RETURN, 0, 0, _ERRNO | _EPERM)]),
    }


def syscall_numbers(table: str, column: int) -> dict[str, int]:
    """Return the numbers of a table's system calls, without those that a machine lacks."""
    rows = (entry.split(":") for entry in table.split())
    return {row[0]: int(row[column]) for row in rows if row[column] != "-"}


def _number(entry: str, column: int) -> int:
    return next(iter(syscall_numbers(entry, column).values()))


def _allow(table: str, column: int) -> list[Instruction]:
    code: list[Instruction] = []
    for number in syscall_numbers(table, column).values():
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _ALLOW)]
    return code


def _refuse(entry: str, column: int, error: int) -> list[Instruction]:
    return [(_EQUAL, 0, 1, _number(entry, column)), (_RETURN, 0, 0, _ERRNO | error)]


def _allow_argument(entry: str, column: int, index: int, values: tuple[int, ...]) -> list[Instruction]:
    """Allow a call whose argument is one of `values`. Only 32 bits are compared, because the kernel reads an int."""
    check: list[Instruction] = [(_LOAD, 0, 0, _ARGUMENTS + 8 * index)]
    check += [(_EQUAL, len(values) - place, 0, value) for place, value in enumerate(values)]
    return _check(entry, column, [*check, (_RETURN, 0, 0, _ERRNO | _EPERM), (_RETURN, 0, 0, _ALLOW)])


def _allow_own_limits(column: int) -> list[Instruction]:
    """Allow `prlimit64` to read limits of this process: pid 0, and a NULL pointer (in both halves) to new limits."""
    zeros = [_ARGUMENTS, _ARGUMENTS + 16, _ARGUMENTS + 20]
    check: list[Instruction] = []
    for place, offset in enumerate(zeros, 1):
        check += [(_LOAD, 0, 0, offset), (_EQUAL, 0, 2 * (len(zeros) - place) + 1, 0)]
    return _check("prlimit64:302:261", column, [*check, (_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ERRNO | _EPERM)])


def _check(entry: str, column: int, check: list[Instruction]) -> list[Instruction]:
    # every path of a check returns, so the code after it still has the call's number in the accumulator
    return [(_EQUAL, 0, len(check), _number(entry, column)), *check]


def _encode(code: list[Instruction]) -> bytes:
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
