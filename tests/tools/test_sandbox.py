"""Attacks on the Python sandbox: as root and as a user, with and without the layers that not every kernel has."""

import json
import os
import platform
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from webgym_cli.tools import python, sandbox, sandbox_script, syscall_filter

pytestmark = pytest.mark.skipif(platform.machine() not in syscall_filter.MACHINES, reason="no filter for this machine")
COLUMN = syscall_filter.MACHINES.get(platform.machine(), (1, 0))[0]
NOBODY = 65534
WITHOUT = {
    "namespaces": ("NEW_USER, NEW_SPACES = 0x10000000,", "NEW_USER, NEW_SPACES = 0x10000000, 0x1 |"),
    "mounts": ("MOUNT_READ_ONLY = 428,", "MOUNT_READ_ONLY = 9428,"),
    "landlock": ("LANDLOCK_RESTRICT = 444,", "LANDLOCK_RESTRICT = 9444,"),
    "seccomp": ("libc.prctl(PR_SET_SECCOMP, 2, described", "libc.prctl(PR_SET_SECCOMP, 77, described"),
    "effect": ("libc.prctl(PR_SET_SECCOMP, 2, described", "libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0"),
    "capset": ("libc.capset(header, none)", "libc.capget(header, ctypes.create_string_buffer(24))"),
}
"""How the sandbox's source is changed to run as on a kernel that lacks something."""
REFUSED = """
    shmget:29:194 shmat:30:196 shmctl:31:195 socket:41:198 connect:42:203 accept:43:202 accept4:288:242
    bind:49:200 listen:50:201 socketpair:53:199 sendto:44:206 recvfrom:45:207 sendmsg:46:211 recvmsg:47:212
    fork:57:- vfork:58:- execve:59:221 execveat:322:281 kill:62:129 tkill:200:130 tgkill:234:131
    rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 semget:64:190 semop:65:193 semctl:66:191 shmdt:67:197
    msgget:68:186 msgsnd:69:189 msgrcv:70:188 msgctl:71:187 mq_open:240:180 ptrace:101:117
    process_vm_readv:310:270 process_vm_writev:311:271 process_madvise:440:440 kcmp:312:272 pidfd_open:434:434
    pidfd_getfd:438:438 pidfd_send_signal:424:424 perf_event_open:298:241 userfaultfd:323:282 bpf:321:280
    seccomp:317:277 prctl:157:167 setrlimit:160:164 truncate:76:45 chmod:90:- fchmod:91:52 fchmodat:268:53
    fchmodat2:452:452 chown:92:- fchown:93:55 lchown:94:- fchownat:260:54 setxattr:188:5 lsetxattr:189:6
    fsetxattr:190:7 removexattr:197:14 lremovexattr:198:15 fremovexattr:199:16 utime:132:- utimes:235:-
    futimesat:261:- utimensat:280:88 unshare:272:97 setns:308:268 pivot_root:155:41 chroot:161:51 mount:165:40
    umount2:166:39 open_tree:428:428 move_mount:429:429 fsopen:430:430 fsconfig:431:431 fsmount:432:432
    fspick:433:433 mount_setattr:442:442 name_to_handle_at:303:264 open_by_handle_at:304:265 swapon:167:224
    swapoff:168:225 reboot:169:142 acct:163:89 syslog:103:116 quotactl:179:60 sethostname:170:161
    setdomainname:171:162 settimeofday:164:170 clock_settime:227:112 adjtimex:159:171 clock_adjtime:305:266
    iopl:172:- ioperm:173:- modify_ldt:154:- arch_prctl:158:- personality:135:92 init_module:175:105
    finit_module:313:273 delete_module:176:106 kexec_load:246:104 kexec_file_load:320:294 add_key:248:217
    request_key:249:218 keyctl:250:219 memfd_create:319:279 memfd_secret:447:447 io_uring_setup:425:425
    io_uring_enter:426:426 io_uring_register:427:427 getpriority:140:141 setpriority:141:140 ioprio_set:251:30
    ioprio_get:252:31 sched_setscheduler:144:119 sched_setparam:142:118 sched_setattr:314:274
    sched_setaffinity:203:122 inotify_init:253:- inotify_init1:294:26 inotify_add_watch:254:27
    fanotify_init:300:262 fanotify_mark:301:263 flock:73:32 readlink:89:- readlinkat:267:78 symlink:88:-
    symlinkat:266:36 link:86:- linkat:265:37 mknod:133:- mknodat:259:33 pipe:22:- pipe2:293:59 eventfd2:290:19
    signalfd4:289:74 timerfd_create:283:85 timer_create:222:107 epoll_create1:291:20 setuid:105:146
    setgid:106:144 setreuid:113:145 setresuid:117:147 setresgid:119:149 setgroups:116:159 setfsuid:122:151
    capget:125:90 capset:126:91 setsid:112:157 setpgid:109:154 getpgid:121:155 getsid:124:156 wait4:61:260
    waitid:247:95 mincore:27:232 mlock:149:228 mlockall:151:230 splice:275:76 tee:276:77 vmsplice:278:75
    sendfile:40:71 copy_file_range:326:285 fallocate:285:47 sync:162:81 statfs:137:43 fstatfs:138:44 chdir:80:49
    fchdir:81:50 umask:95:166 vhangup:153:58 mbind:237:235 move_pages:279:239 migrate_pages:256:238
    remap_file_pages:216:234 futex_waitv:449:449 landlock_create_ruleset:444:444 landlock_restrict_self:446:446
    openat2:437:437 clone3:435:435 membarrier:324:283 lookup_dcookie:212:18 uselib:134:- ustat:136:- sysfs:139:-
"""
"""Calls that no sandboxed process makes: each is refused before the kernel looks at its arguments."""


@dataclass
class Host:
    """What a sandboxed process could harm: the process that asks for it, a neighbour of the same user, and files."""

    folder: Path
    victim: int
    uid: int

    def script(self, without):
        """Return the sandbox's script, changed to run as on a kernel without these layers."""
        script = self.folder / "_".join(["script", *without])
        if not script.exists():
            source = Path(sandbox.__file__).read_text()
            for layer in without:
                before = source
                source = source.replace(*WITHOUT[layer])
                assert source != before
            script.mkdir()
            (script / "sandbox.py").write_text(source)
            shutil.copy(sandbox_script.__file__, script / "sandbox_script.py")
        return str(script / "sandbox_script.py")

    def run(self, code, *, without=(), seconds=60.0, **changes):
        """Return what the code printed and its exit status."""
        process = subprocess.Popen(
            [interpreter(self.uid), "-I", "-S", self.script(without)],
            **dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE),
            text=True,
            errors="replace",
            env=python.ENVIRONMENT,
            cwd="/",
            start_new_session=True,
            **as_user(self.uid),
        )
        job = read_job(textwrap.dedent(code)) | changes
        try:
            printed, complaint = process.communicate(json.dumps(job), timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            printed, complaint = process.communicate()
        return f"{printed}{complaint and f'REFUSED {complaint}'}", process.returncode

    def check(self):
        """Assert that nothing was harmed."""
        # it runs until it falls asleep, on a busy machine for longer
        assert psutil.Process(self.victim).status() in (psutil.STATUS_SLEEPING, psutil.STATUS_RUNNING)
        assert (self.folder / "open").read_text() == "as it was"
        assert sorted(path.name for path in self.folder.iterdir() if "script" not in path.name) == ["open", "secret"]


def read_job(code):
    return json.loads(python._job(code)) | {"packages": {}}


def as_user(uid):
    return {} if uid == os.getuid() else {"user": uid, "group": uid, "extra_groups": []}


def interpreter(uid):
    """Return a Python that a user can start."""
    own = Path(sys.executable).resolve()
    if uid == os.getuid() or sandbox.is_open_to_all(str(own.parent)):
        return str(own)
    system = Path("/usr/bin/python3")
    if not system.exists():
        pytest.skip("no Python here that another user can start")
    return str(system)


@pytest.fixture(params=["root", "user"])
def host(request):
    if request.param == "root" and os.getuid():
        pytest.skip("needs root")
    uid = 0 if request.param == "root" else os.getuid() or NOBODY
    with tempfile.TemporaryDirectory() as name:  # pytest's own folders are closed to other users
        folder = Path(name)
        for file, mode in (("open", 0o666), ("secret", 0o600)):
            (folder / file).write_text("as it was" if file == "open" else "the key")
            (folder / file).chmod(mode)
            os.chown(folder / file, uid, uid)
        folder.chmod(0o755)
        with subprocess.Popen(["/bin/sleep", "600"], **as_user(uid)) as victim:
            host = Host(folder, victim.pid, uid)
            yield host
            try:
                host.check()
            finally:
                victim.kill()


LAYERS = [(), ("mounts",), ("namespaces",), ("landlock",), ("namespaces", "landlock")]
BASIC = """
    import json, math, datetime, statistics, re, threading, decimal, sys
    print(json.dumps([math.factorial(30), str(datetime.date(2026, 1, 31)), statistics.mean([1, 2, 6])]))
    print(2 ** 4000 % 1000007, decimal.Decimal(2).sqrt())
    try:
        1 / 0
    except ZeroDivisionError as error:
        print(repr(error))
    print('to stderr', file=sys.stderr)
    thread = threading.Thread(target=print, args=('thread',))
    try:
        thread.start()
        thread.join()
    except RuntimeError:
        print('no thread')
"""


@pytest.mark.parametrize("without", LAYERS)
def test_useful_code_runs_whatever_the_kernel_has(host, without):
    printed, status = host.run(BASIC, without=without)
    assert "ZeroDivisionError('division by zero')" in printed
    assert "265252859812191058636308480000000" in printed and "to stderr" in printed
    assert ("no thread" if host.uid == 0 and without == ("namespaces", "landlock") else "thread") in printed
    assert status == 0


ATTACKS = """
    import ctypes, os, signal, sys, threading
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    NAMES, VICTIM, SECRET, OPEN, FOLDER = {names}, {victim}, {secret!r}, {open!r}, {folder!r}
    buffer = ctypes.create_string_buffer(4096)
    lib = os.__file__
    # an own root shows the names of the folders that lead to the library
    KNOWN = {{'lib', 'lib64', 'usr', 'share', 'zoneinfo', 'tmp', *lib.split('/'), *sys.base_exec_prefix.split('/')}}

    def call(name, *arguments):
        '''Return whether a function of libc, or a system call by its number, succeeds.'''
        if isinstance(name, int):
            return libc.syscall(ctypes.c_long(name), *map(ctypes.c_long, arguments)) >= 0
        result = getattr(libc, name)(*arguments)
        return result >= 0

    def attempt(name, function):
        try:
            reached = function()
        except BaseException as error:
            reached = False
        if reached:
            print('REACHED', name, reached, flush=True)

    attempt('open files', lambda: [fd for fd in range(3, 1024) if call('fcntl', fd, 1, 0)])
    for name, number in NAMES.items():
        ctypes.set_errno(0)
        if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6) != -1 or ctypes.get_errno() not in (1, 38):
            print('REACHED', name, ctypes.get_errno(), flush=True)
    for command in (0, 4, 5, 6, 7, 8, 9, 10, 11, 15, 16, 17, 36, 37, 38, 1024, 1025, 1026, 1028, 1031, 1033):
        for argument in (0, os.getpid(), VICTIM, 0x2000, 0x800):
            attempt(f'fcntl {{command}}', lambda: call('fcntl', 1, command, argument))
    for request in (0x40086602, 0x80086601, 0x5452, 0x8901, 0x5412, 0x541B, 0x5421, 0xC0189436, 0x5401):
        attempt(f'ioctl {{request:x}}', lambda: call('ioctl', 1, ctypes.c_ulong(request), buffer))
        attempt(f'ioctl {{request:x}}', lambda: call('ioctl', os.open(lib, 0), ctypes.c_ulong(request), buffer))
    for option in range(80):
        attempt(f'prctl {{option}}', lambda: call('prctl', option, 0, 0, 0, 0))
    for family in range(46):
        attempt(f'socket {{family}}', lambda: call('socket', family, 1, 0))
    for who in (VICTIM, os.getppid(), 1, 0, -1):
        for number in (0, 9, 15, 19, 29):
            attempt(f'kill {{who}}', lambda: os.kill(who, number) is None)
            attempt(f'killpg {{who}}', lambda: os.killpg(who, number) is None)
    for limit in range(16):
        import resource
        attempt(f'limit {{limit}}', lambda: resource.setrlimit(limit, (2**30, 2**30)) is None)
        attempt(f'limit of another', lambda: resource.prlimit(VICTIM, limit))
    for flags in (0x11, 0x10000011, 0x20000011, 0x40000011, 0x4011, 0x100 | 0x11, 0x3d0f00 | 0x10000000, 0x10f00):
        attempt(f'clone {{flags:x}}', lambda: call({clone}, flags, 0, 0, 0, 0))
    for path in (SECRET, OPEN, '/etc/passwd', '/etc/shadow', '/proc/self/environ', f'/proc/{{VICTIM}}/environ',
                 f'/proc/{{VICTIM}}/mem', f'/proc/{{VICTIM}}/cmdline', f'/proc/{{os.getppid()}}/environ',
                 '/proc/self/maps',
                 '/proc/self/exe', '/proc/self/mem', f'/proc/{{VICTIM}}/fd/0', f'/proc/{{os.getppid()}}/fd/1',
                 '/proc/1/root/etc/passwd', '/proc/kallsyms',
                 '/dev/mem', '/dev/kmsg', '/dev/null', '/dev/zero', '/dev/tty', '/dev/ptmx', '/dev/kvm', '/dev/fuse',
                 '/dev/shm/x', '/sys/kernel/notes', '/root/.ssh/id_rsa', os.path.expanduser('~/.netrc'),
                 '/run/docker.sock', '/etc/hostname', '/usr/bin/env', '/var/log/syslog',
                 lib + '/../../../../etc/passwd',
                 '/usr/lib/../../etc/passwd', '/lib/../etc/passwd', '/proc/self/root/etc/passwd',
                 '/proc/self/cwd/etc/passwd'):
        attempt(f'read {{path}}', lambda: open(path, 'rb').read(1) is not None)
        attempt(f'write {{path}}', lambda: open(path, 'ab'))
        attempt(f'readlink {{path}}', lambda: os.readlink(path))
    for path in ('/', '/etc', '/proc', '/root', '/home', '/dev', '/usr', FOLDER, '..', '/tmp/..', '/dev/shm'):
        attempt(f'list {{path}}', lambda: set(os.listdir(path)) - KNOWN)
        attempt(f'create in {{path}}', lambda: open(path + '/webgym-was-here', 'w'))
        attempt(f'mkdir in {{path}}', lambda: os.mkdir(path + '/webgym-was-here') is None)
    for path in (lib, OPEN, SECRET):
        attempt('append', lambda: open(path, 'a'))
        attempt('cut', lambda: os.truncate(path, 0) is None)
        attempt('cut by open', lambda: os.open(path, os.O_TRUNC))
        attempt('unlink', lambda: os.unlink(path) is None)
        attempt('rename', lambda: os.rename(path, path + '.x') is None)
        attempt('chmod', lambda: os.chmod(path, 0o777) is None)
        attempt('chown', lambda: os.chown(path, 0, 0) is None)
        attempt('utime', lambda: os.utime(path) is None)
        attempt('setxattr', lambda: os.setxattr(path, 'user.x', b'x') is None)
        attempt('symlink', lambda: os.symlink(path, 'link') is None)
        attempt('link', lambda: os.link(path, 'hard') is None)
        attempt('lock', lambda: __import__('fcntl').flock(os.open(path, 0), 6) is None)
        attempt('posix lock', lambda: __import__('fcntl').lockf(os.open(path, 0), 5) is None)
        attempt('temporary file', lambda: os.open(os.path.dirname(path), 0o20200000 | os.O_RDWR, 0o600))
    attempt('fifo', lambda: os.mkfifo('fifo') is None)
    attempt('device', lambda: os.mknod('null', 0o20666, 0x103) is None)
    for program in ('/bin/sh', '/usr/bin/env', sys.executable, '/lib64/ld-linux-x86-64.so.2'):
        attempt('run', lambda: __import__('subprocess').run([program], check=False))
        attempt('spawn', lambda: os.posix_spawn(program, [program], {{}}))
    attempt('system', lambda: os.system('true') == 0)
    attempt('fork', lambda: os.fork() >= 0)
    attempt('forkpty', lambda: os.forkpty())
    attempt('openpty', lambda: os.openpty())
    module = 'multiprocessing.shared_memory'
    attempt('shared memory', lambda: __import__(module).shared_memory.SharedMemory(create=True, size=9))
    attempt('semaphore', lambda: __import__('multiprocessing').Lock())
    attempt('affinity of another', lambda: os.sched_getaffinity(VICTIM))
    attempt('priority', lambda: os.nice(1) is not None)
    attempt('network', lambda: __import__('urllib.request').request.urlopen('http://127.0.0.1:22', timeout=1))
    attempt('name', lambda: __import__('socket').getaddrinfo('localhost', 22))
    attempt('root', lambda: os.setuid(0) is None)
    attempt('environment', lambda: set(os.environ) - {{'OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'LC_CTYPE'}})
    attempt('capabilities', lambda: call('capget', b'\\x22\\x05\\x08\\x20\\0\\0\\0\\0', buffer))
    attempt('true stderr', lambda: os.fstat(2).st_ino != os.fstat(1).st_ino)
    attempt('ptrace', lambda: call('ptrace', 0, 0, 0, 0))
    attempt('read memory', lambda: call('process_vm_readv', VICTIM, buffer, 1, buffer, 1, 0))
    print('DONE', os.getuid(), flush=True)
"""


def attacks(host):
    return textwrap.dedent(ATTACKS).format(
        names=syscall_filter.syscall_numbers(REFUSED, COLUMN),
        clone=syscall_filter.syscall_numbers("clone:56:220", COLUMN)["clone"],
        victim=host.victim,
        secret=str(host.folder / "secret"),
        open=str(host.folder / "open"),
        folder=str(host.folder),
    )


@pytest.mark.parametrize("without", LAYERS)
def test_no_attack_reaches_anything(host, without):
    printed, status = host.run(attacks(host), without=without)
    assert [line for line in printed.splitlines() if "REACHED" in line] == []
    assert "DONE" in printed
    assert status == 0


def test_root_is_another_user_in_its_sandbox(host):
    if host.uid:
        pytest.skip("of root")
    printed, _ = host.run("import os; (os.getuid(), os.getgid())")
    uid, gid = eval(printed)
    assert uid == gid >= sandbox.FIRST_UID


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        ("seccomp", "seccomp can't be switched on"),
        ("effect", "seccomp has no effect"),
        ("capset", "capabilities are left"),
    ],
)
def test_nothing_runs_without_what_is_required(host, layer, reason):
    if layer == "capset" and host.uid:
        pytest.skip("a user has none")
    printed, status = host.run("print('RAN')", without=("namespaces", layer))
    assert reason in printed and "RAN" not in printed
    assert status == sandbox_script.REFUSED


def test_the_scratch_folder_is_small_and_nobody_elses(host):
    code = """
        import os, tempfile
        with open('note', 'w') as file: file.write('kept')
        print(open('note').read(), os.getcwd())
        with tempfile.TemporaryDirectory() as folder: open(folder + '/a', 'w').close()
        written = files = 0
        try:
            while files < 100000:
                open(f'empty{files}', 'w').close(); files += 1
        except OSError as error: print(error.strerror)
        for n in range(files): os.unlink(f'empty{n}')
        try:
            with open('big', 'wb', buffering=0) as file:
                while written < 2**30: written += file.write(bytes(2**20))
        except OSError as error: print(error.strerror)
        print(files <= 1024, written <= 2**24)
    """
    printed, _ = host.run(code)
    if "Permission denied" in printed:
        pytest.skip("this kernel grants no mounts here")
    assert printed.splitlines() == ["kept /tmp", "No space left on device", "No space left on device", "True True"]
    assert not Path("/tmp/note").exists()


BOMBS = {
    "threads": """
        import threading, time
        threading.stack_size(32768)
        count = 0
        try:
            while count < 100000: threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); count += 1
        except RuntimeError: print('bounded', count <= 4096, flush=True)
        __import__('os')._exit(0)
    """,
    "memory": "x = []\nwhile True: x.append(bytes(2**20))",
    "mappings": "import mmap\nx = []\nwhile True: x.append(mmap.mmap(-1, 2**20))",
    "recursion": "import sys\nsys.setrecursionlimit(10**9)\ndef f(): f()\nf()",
    "files": "import os\nx = []\nwhile True: x.append(open(os.__file__))",
    "computing": "while True: pass",
    "numbers": "x = 10 ** 9\nwhile True: x = x * x",
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs_are_bounded(host, bomb):
    # A thread that gets no memory to begin with may leave its starter waiting: the deadline ends that.
    printed, status = host.run(BOMBS[bomb], cpu_seconds=1, seconds=20)
    assert status != 0 or "bounded True" in printed


def test_machine_code_of_another_interface_is_ended(host):
    if platform.machine() != "x86_64":
        pytest.skip("of x86_64")
    code = """
        import ctypes, mmap
        memory = mmap.mmap(-1, 4096, prot=7)
        memory.write(b'\\xb8\\x14\\0\\0\\0\\xcd\\x80\\xc3')  # getpid of i386
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        print(ctypes.CFUNCTYPE(ctypes.c_int)(address)(), 'RAN')
    """
    assert host.run(code) == ("", -signal.SIGSYS)
    x32 = "import ctypes\nctypes.CDLL(None).syscall(0x40000000 | 39)\nprint('RAN')"
    assert host.run(x32) == ("", -signal.SIGSYS)


@pytest.mark.parametrize("without", [(), ("namespaces",)])
def test_it_dies_with_a_killed_parent(host, without):
    job = read_job(
        "import ctypes, time\nctypes.CDLL(None).prctl(1, 0, 0, 0, 0)\nprint('up', flush=True)\ntime.sleep(600)"
    )
    parent = f"""
import json, os, subprocess, sys, time
job = json.loads({json.dumps(job)!r}) | {{"parent": os.getpid()}}
process = subprocess.Popen([{interpreter(host.uid)!r}, "-I", "-S", {host.script(without)!r}], stdin=-1, text=True)
process.stdin.write(json.dumps(job))
process.stdin.close()
time.sleep(600)
"""
    command = [interpreter(host.uid), "-c", parent]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd="/", **as_user(host.uid)) as asking:
        assert asking.stdout.readline() == "up\n"
        sandboxed = psutil.Process(asking.pid).children(recursive=True)
        assert sandboxed
        asking.kill()
        _, alive = psutil.wait_procs(sandboxed, 20)
        assert alive == []


FUZZ = """
    import ctypes, os, random, signal
    libc = ctypes.CDLL(None, use_errno=True)
    draw = random.Random({seed})
    memory = ctypes.create_string_buffer(b'/tmp/../etc/passwd', 65536)
    base = ctypes.addressof(memory)
    values = [0, 1, 2, 3, -1, -100, {victim}, os.getpid(), os.getppid(), 2**31, 2**32, 2**63 - 1, 4096, 0x11, 0x3d0f00]
    signal.signal(signal.SIGALRM, lambda *_: None)
    for _ in range(4000):
        number = draw.choice([draw.randrange(0, 470), draw.randrange(0, 2**32), draw.choice({numbers})])
        if number in {ends}:
            continue
        arguments = [
            draw.choice([draw.choice(values), base + draw.randrange(65536), draw.getrandbits(draw.choice([8, 32, 64]))])
            for _ in range(6)
        ]
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        libc.syscall(ctypes.c_long(number), *[ctypes.c_ulong(argument & 2**64 - 1) for argument in arguments])
"""


def own_children():
    """Return the processes below this one: other tests' servers may be among them."""
    return {child.pid for child in psutil.Process().children(recursive=True)}


@pytest.mark.parametrize("without", [(), ("namespaces",), ("landlock",)])
def test_random_system_calls_harm_nobody_else(host, without):
    ends = [*syscall_filter.syscall_numbers("exit:60:93 exit_group:231:94 munmap:11:215 brk:12:214", COLUMN).values()]
    every = syscall_filter.ALWAYS + syscall_filter.READ + syscall_filter.WRITE + REFUSED
    numbers = [*syscall_filter.syscall_numbers(every, COLUMN).values()]
    seed = random.randrange(10**6)  # another one each time
    before = {path: path.stat().st_mtime_ns for path in (Path(os.__file__), Path("/usr/lib"))}
    children = own_children()
    code = textwrap.dedent(FUZZ).format(seed=seed, victim=host.victim, numbers=numbers, ends=ends)
    _, status = host.run(code, without=without, cpu_seconds=3, seconds=20)
    host.check()
    assert {path: path.stat().st_mtime_ns for path in before} == before, seed
    assert status is not None
    assert own_children() <= children
