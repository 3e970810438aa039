"""What gdb's own Python runs for us: it reads memory, calls functions, sets breakpoints, and lets the program go on.

It imports nothing but gdb's Python, and knows nothing of ggml. A request is a line of JSON, `[verb, argument, …]`; the
answer is a line of JSON, `{"value": …, "bytes": n}` or `{"error": text, "gone": whether there is no program (any
more)}`, with n raw bytes behind it.
"""

import bisect
import contextlib
import json
import os
import pathlib
import re
import signal
import threading

import gdb

_SYMBOL = re.compile(r"^\[ *\d+\] ([TtiDdBbRr]) (0x[0-9a-f]+) (\S+)", re.MULTILINE)
_MAPPED = re.compile(
    r"^ *(0x[0-9a-f]+) +(0x[0-9a-f]+) +0x[0-9a-f]+ +0x[0-9a-f]+(?: +([r-][w-][x-][ps-]))? *(.*)$", re.MULTILINE
)
_SECTION = re.compile(r"^\t(0x[0-9a-f]+) - (0x[0-9a-f]+) is (\S+)(?: in (.*))?$", re.MULTILINE)
_CODE = (".text", ".plt", ".plt.sec", ".plt.got", ".init", ".fini")
_ARGUMENTS = {"x86-64": ("rdi", "rsi", "rdx", "rcx", "r8", "r9"), "aarch64": ("x0", "x1", "x2", "x3", "x4", "x5")}
_SETTINGS = (
    "pagination off",
    "confirm off",
    "width 0",
    "height 0",
    "debuginfod enabled off",
    "disable-randomization off",
    "unwindonsignal on",
    "print thread-events off",
    "print inferior-events on",
    "breakpoint pending on",
)
_DEADLY = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"}
_HANDLING = (
    "handle all nostop noprint pass",
    "handle SIGINT nostop noprint pass",
    "handle SIGSTOP stop print nopass",
    "handle %s stop print pass" % " ".join(sorted(_DEADLY)),
)
"""A program's signals are its own, but for SIGSTOP, by which it is halted from outside; those that may be its end are
looked at before it gets them."""
_REMOTELY = ("set tcp connect-timeout 5", "handle SIGINT stop print nopass")
"""A program that a gdbserver holds is halted by SIGINT."""
_NAMES = {"aarch64": "aarch64", "x86-64": "i386:x86-64"}
"""What gdb's settings call the machines."""

_LOCATION = re.compile(r"^\s*-?\d+(?:\.\d+)?\s.*\s(0x[0-9a-f]{8,16})\s", re.MULTILINE)
"""The address of a breakpoint in the table of all, gdb's own ones among them."""

_MISSING = re.compile(r"^(?:0x\S+ +0x\S+)? +No +(\S.*)$", re.MULTILINE)
"""A library that gdb has not found."""

_FETCHED = "target:"
"""What gdb puts before the name of a file that it has from a gdbserver."""

_CHILD = re.compile(r"^\[Detaching after v?fork from child process \d+", re.MULTILINE)
"""What gdb prints of a process that the program starts, and that it does not follow."""


def execute(command):
    """What gdb prints to a command; "" where that is no UTF-8, as the names of files in a damaged core dump: gdb has
    done the command then, and only what it said of it is lost."""
    try:
        return gdb.execute(command, to_string=True)
    except UnicodeDecodeError:
        return ""


_DEBUG_FILES = "debug-file-directory"
_set_aside = []
"""Where separate debug files are, while nobody asks for them."""


def settle():
    """The settings under which a program notices nothing of us. Without those files a process is attached to in a tenth
    of the time: gdb always reads the C library's, which nobody needs."""
    for setting in _SETTINGS:
        with contextlib.suppress(gdb.error):
            execute("set " + setting)
    _set_aside.append(gdb.parameter(_DEBUG_FILES))
    execute(f"set {_DEBUG_FILES}")
    for handling in _HANDLING:
        execute(handling)


class Server:
    """Answers the requests of one client until it closes its end."""

    def __init__(self, requests, answers, halts=None):
        self.requests = requests
        self.answers = answers
        self.halts = halts
        self.blob = b""
        self.ended = False
        self.points = {}
        self.exec = None
        self.files = None
        self.sysroot = None
        self.sections = []
        self.signal = None

    def serve(self):
        """Answer until there is nobody left who asks."""
        for line in self.requests:
            self.answer(json.loads(line))
            if self.ended:
                return

    def answer(self, request):
        """Answer one request."""
        self.blob = b""
        try:
            verb, *arguments = request
            value = getattr(self, "do_" + verb)(*arguments)
            answer = {"value": value, "bytes": len(self.blob)}
        except KeyboardInterrupt:
            self.blob = b""
            answer = {"error": "gdb was interrupted"}
            self.ended = True
        except (gdb.error, gdb.MemoryError, RuntimeError, ValueError, OSError) as error:
            self.blob = b""
            answer = {"error": str(error) or type(error).__name__, "gone": _gone()}
        self.answers.write(json.dumps(answer).encode() + b"\n" + self.blob)
        self.answers.flush()

    # Where the program comes from.

    def do_attach(self, pid):
        """Stop a running process. Its libraries' symbols are loaded where they are needed: that takes long."""
        execute("set auto-solib-add off")
        execute("attach %d" % pid)

    def do_knows(self, machine):
        """Whether this gdb can read programs of a machine."""
        try:
            execute("set architecture " + _NAMES[machine])
        except gdb.error:
            return False
        execute("set architecture auto")
        return True

    def do_remote(self, where, program, sysroot):
        """Stop a program that a gdbserver holds. Its files are looked for in a folder, then at the same place here;
        without a folder they are fetched from there."""
        for command in _REMOTELY:
            execute(command)
        # Else gdb ends a program that the gdbserver has started.
        exiting = getattr(gdb.events, "gdb_exiting", None)
        if exiting is not None:
            exiting.connect(lambda _: self.let_go())
        self._look_in(sysroot)
        if program:
            execute(f"file {_quoted(program)}")
        execute("target remote " + where)
        if sysroot:
            _look_here()
        if self.halts is not None:
            # gdb's own thread is the one that signals are for.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
            threading.Thread(target=_halt, args=(self.halts,), daemon=True).start()
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def do_core(self, program, core, sysroot=None):
        """Open a core dump."""
        self._look_in(sysroot)
        with _debug_files():
            if program:
                execute(f"file {_quoted(program)}")
            try:
                execute(f"core-file {core}")
            except gdb.error:
                if _quoted(core) == f'"{core}"' and " " not in core:
                    raise
                # Whether this command takes a quoted name depends on gdb's version.
                execute(f"core-file {_quoted(core)}")
            if sysroot:
                _look_here()
        self.sections = sorted({first for first, *_ in _sections()})

    def _look_in(self, folder):
        """Take the files of another machine from a folder."""
        if folder:
            self.sysroot = folder
            execute("set sysroot " + folder)

    def do_detach(self):
        """Let the program go on by itself."""
        if _is_remote():
            # A gdbserver takes the end of a call of gdb's for a signal of the program's, and would send it on.
            for name in _DEADLY - {self.signal}:
                execute("handle %s nopass" % name)
        execute("detach")

    def do_ready(self):
        """Nothing: that it is answered says that gdb has started."""

    def do_about(self):
        """gdb's version, the machine, the process, its program."""
        inferior = gdb.selected_inferior()
        return {
            "gdb": gdb.VERSION,
            "architecture": architecture(),
            "pid": inferior.pid,
            "threads": len(inferior.threads()),
            "program": gdb.current_progspace().filename,
            "core": _is_core(),
            "libraries": [
                re.sub("^" + _FETCHED, "", o.filename)
                for o in gdb.objfiles()
                if o.filename and o.is_valid() and o.owner is None
            ],
            "missing": _missing(),
        }

    def let_go(self):
        """Detach, if there is still something to detach from."""
        if gdb.selected_inferior().pid and not _is_core():
            with contextlib.suppress(gdb.error):
                self.do_detach()

    # What it knows.

    def do_symbols(self, file, pattern):
        """The symbols of one file (its debug file's too) whose names match: their addresses by name."""
        _load(file)
        known = _known_as(file) or file
        apart = [o.filename for o in gdb.objfiles() if o.owner is not None and o.owner.filename == known]
        text = "".join(execute(f"maint print msymbols -objfile {_quoted(name)}") for name in (known, *apart))
        wanted = re.compile(pattern)
        return {name: int(at, 16) for _, at, name in _SYMBOL.findall(text) if wanted.match(name) and "@" not in name}

    def do_read(self, wanted):
        """The bytes of spans [address, length]; the answer says how many came of each."""
        inferior = gdb.selected_inferior()
        parts = []
        for address, length in wanted:
            # Cut where sections of a core dump begin: behind the end of one gdb has nothing but zeros.
            end = address + length
            first, last = bisect.bisect_right(self.sections, address), bisect.bisect_left(self.sections, end)
            cuts = [address, *self.sections[first:last], end]
            spans = ((cuts[i], cuts[i + 1] - cuts[i]) for i in range(len(cuts) - 1))
            try:
                parts.append(b"".join(inferior.read_memory(at, n).tobytes() for at, n in spans))
            except gdb.MemoryError:
                parts.append(b"")
        self.blob = b"".join(parts)
        return [len(part) for part in parts]

    def do_mappings(self):
        """What the process has mapped: [first address, end, rights, file]; of a core dump, files without rights, of a
        program elsewhere whose mappings are not told, sections."""
        pid = gdb.selected_inferior().pid
        core = _is_core()
        if core or _is_remote():
            found = _MAPPED.findall(_tried("info proc mappings"))
            if not found and not core:
                return _sections()
            return [[int(a, 16), int(z, 16), "" if core else rights, file.strip()] for a, z, rights, file in found]
        with pathlib.Path("/proc/%d/maps" % pid).open(errors="surrogateescape") as lines:
            return [_mapping(line) for line in lines]

    def do_status(self):
        """What the system says of the process, line by line; "" where that is not told."""
        return _tried("info proc status")

    def do_evaluate(self, expression):
        """An expression of gdb's as a number; where it lacks a symbol, those of the C library are loaded, then all."""
        for libraries in ("/libc[.-]", "."):
            try:
                return int(gdb.parse_and_eval(expression))
            except gdb.error:
                _load_some(libraries)
        return int(gdb.parse_and_eval(expression))

    def do_evaluate_all(self, expressions, first, file):
        """Expressions as numbers, None of those that gdb does not know; nothing if it does not know the first. `file`:
        whose debug information tells."""
        if file:
            _load(file)
        if _number(first) is None:
            return []
        return [_number(expression) for expression in expressions]

    def do_arguments(self):
        """The registers that hold the first whole arguments of the function that was just entered."""
        return _arguments(gdb.newest_frame())

    def do_frames(self, most):
        """The calls that the program is in, innermost first: who, where, and the registers that outlive calls."""
        _load_some(".")
        return walked(most, _frame)

    # What it is asked to do.

    def do_call(self, calls, alone=True):
        """Call functions [address, result type, argument, …] in the program; `alone`: its other threads stand still,
        else they pass by breakpoints meanwhile."""
        execute("set scheduler-locking %s" % ("on" if alone else "off"))
        passed = [] if alone else [p for p in self.points.values() if p.is_valid() and p.enabled]
        try:
            for point in passed:
                point.enabled = False
            return [self._call(*call) for call in calls]
        finally:
            execute("set scheduler-locking replay")
            for point in passed:
                point.enabled = True

    @staticmethod
    def _call(address, result, *arguments):
        types = ", ".join(["unsigned long"] * len(arguments)) or "void"
        given = ", ".join("%dUL" % a for a in arguments)
        try:
            value = gdb.parse_and_eval("((%s (*)(%s))%d)(%s)" % (result, types, address, given))
        except gdb.error:
            _back_out()
            raise
        return None if result == "void" else int(value)

    def do_break(self, addresses, thread=None):
        """Breakpoints at addresses, of one thread or of all; their numbers."""
        out = []
        for address in addresses:
            point = gdb.Breakpoint("*%d" % address, gdb.BP_BREAKPOINT, internal=True)
            point.silent = True
            if thread is not None:
                point.thread = thread
            out.append(point.number)
            self.points[point.number] = point
        return out

    def do_break_if(self, address, tests):
        """A breakpoint that stops only where arguments are among others: [which, mask, values]; its number."""
        point = _Chosen(address, tests)
        self.points[point.number] = point
        return point.number

    def do_delete(self, numbers):
        """Remove breakpoints."""
        for number in numbers:
            point = self.points.pop(number, None)
            if point is not None and point.is_valid():
                point.delete()

    def do_watch(self, on):
        """Stop when libraries are loaded and when the program becomes another, or no more."""
        execute("set stop-on-solib-events %d" % on)
        if on and self.exec is None:
            execute("catch exec")
            gdb.events.clear_objfiles.connect(self._forget_gone)
            self.exec = int(gdb.parse_and_eval("$bpnum"))
        elif not on and self.exec is not None:
            execute("delete %d" % self.exec)
            gdb.events.clear_objfiles.disconnect(self._forget_gone)
            self.exec = None

    def do_marks(self):
        """Where breakpoints are while the program runs, gdb's own ones too, and the bytes that belong there."""
        inferior = gdb.selected_inferior()
        out = {}
        for at in set(_LOCATION.findall(execute("maint info breakpoints"))):
            with contextlib.suppress(gdb.MemoryError):
                out[int(at, 16)] = inferior.read_memory(int(at, 16), 4).tobytes().hex()
        return sorted(out.items())

    def do_entered(self):
        """The stack pointer at the entry of a function, and where it returns to."""
        frame = gdb.newest_frame()
        stack = stack_pointer(frame)
        if architecture() == "aarch64":
            return [stack, _register(frame, "x30")]
        back = gdb.selected_inferior().read_memory(stack, 8).tobytes()
        return [stack, int.from_bytes(back, "little")]

    def do_go(self, given=None):
        """Let the program run until it stops, with a signal if one is given; why it stopped. That its libraries have
        changed is told only of files with code that came or went."""
        command = "continue" if given is None else "signal " + given
        while True:
            out, command = _run(command), "continue"
            if out["reason"] == "stopped":
                if self.sysroot:
                    _look_here()
                before, self.files = self.files, _files_with_code()
                if self.files == before:
                    continue
            self.signal = out.get("signal")
            return out

    def _forget_gone(self, _):
        """Breakpoints at addresses outlive the program that they are in, and cannot be set in the one that it has
        become."""
        for number, point in list(self.points.items()):
            if point.is_valid():
                try:
                    gdb.selected_inferior().read_memory(int(point.location[1:]), 1)
                except gdb.MemoryError:
                    point.delete()
                    del self.points[number]


_LASTING = {"x86-64": ("rbx", "rbp", "r12", "r13", "r14", "r15"), "aarch64": tuple("x%d" % i for i in range(19, 30))}
"""Registers that a function finds again as they were when it has called another."""


def walked(most, told):
    """What is told of each frame of the selected thread, the newest first."""
    out = []
    frame = gdb.newest_frame()
    while frame is not None and len(out) < most:
        out.append(told(frame))
        try:
            frame = frame.older()
        except gdb.error:
            break
    return out


def lasting(frame):
    """The registers of a frame that outlive calls, by name."""
    out = {}
    for name in _LASTING.get(architecture(), ()):
        with contextlib.suppress(gdb.error, ValueError):
            value = frame.read_register(name)
            if not value.is_optimized_out:
                out[name] = word(value)
    return out


def _frame(frame):
    pc = frame.pc()
    out = {"function": frame.name(), "file": gdb.solib_name(pc), "pc": pc, "registers": lasting(frame), "arguments": {}}
    with contextlib.suppress(gdb.error):
        out["sp"] = stack_pointer(frame)
    with contextlib.suppress(gdb.error, RuntimeError):
        out["arguments"] = _given(frame)
    return out


def _given(frame):
    """The arguments that debug information tells of, those that are whole numbers or pointers."""
    block = frame.block()
    while block is not None and block.function is None:
        block = block.superblock
    out = {}
    for symbol in block or ():
        if symbol.is_argument:
            with contextlib.suppress(gdb.error, gdb.MemoryError, ValueError, OverflowError):
                value = symbol.value(frame)
                if not value.is_optimized_out:
                    out[symbol.name] = int(value)
    return out


def _arguments(frame):
    return [_register(frame, name) for name in _ARGUMENTS[architecture()]]


def _register(frame, name):
    return word(frame.read_register(name))


class _Chosen(gdb.Breakpoint):
    """A breakpoint at the entry of a function that stops only at calls with chosen arguments."""

    def __init__(self, address, tests):
        super().__init__("*%d" % address, gdb.BP_BREAKPOINT, internal=True)
        self.silent = True
        self.tests = [(which, mask, frozenset(values)) for which, mask, values in tests]

    def stop(self):
        """Whether the program stops at this call."""
        frame = gdb.newest_frame()
        names = _ARGUMENTS[architecture()]
        return all(_register(frame, names[which]) & mask in values for which, mask, values in self.tests)


def _gone():
    """Whether there is no program any more, or its thread has ended that was looked at."""
    if not gdb.selected_inferior().pid:
        return True
    try:
        gdb.newest_frame()
    except gdb.error:
        return True
    return False


def _back_out():
    """Give up a call of gdb's that stopped at a breakpoint: the program is where it was before, with its registers."""
    with contextlib.suppress(gdb.error):
        called, frame = [], gdb.newest_frame()
        while frame is not None:
            older = frame.older()
            if older is not None and older.type() == gdb.DUMMY_FRAME:
                called.append(frame)
            frame = older
        if called:
            called[0].select()
            execute("return")


def stack_pointer(frame):
    """The stack pointer of a frame."""
    return _register(frame, "rsp" if architecture() == "x86-64" else "sp")


def _run(command):
    stops = []
    exits = []
    gdb.events.stop.connect(stops.append)
    gdb.events.exited.connect(exits.append)
    try:
        said = execute(command)
    finally:
        gdb.events.stop.disconnect(stops.append)
        gdb.events.exited.disconnect(exits.append)
    children = len(_CHILD.findall(said))
    if exits:
        status = getattr(exits[-1], "exit_code", None)
        number = gdb.parse_and_eval("$_exitsignal")
        told = status is None and number.type.code != gdb.TYPE_CODE_VOID
        killed = signal.Signals(int(number)).name if told else ""
        return {"reason": "exited", "status": status, "signal": killed, "children": children}
    if not gdb.selected_inferior().pid:
        return {"reason": "gone", "children": children}
    stop = stops[-1] if stops else None
    frame, thread = gdb.newest_frame(), gdb.selected_thread()
    where = {"pc": frame.pc(), "sp": stack_pointer(frame), "thread": thread.num, "tid": thread.ptid[1]}
    out = {"reason": "stopped", "children": children, **where}
    if "is executing new program" in said:
        out["reason"] = "exec"
    elif isinstance(stop, gdb.BreakpointEvent):
        points = [b for b in stop.breakpoints if b.is_valid()]
        out.update(reason="breakpoint", numbers=[b.number for b in points])
        if any(isinstance(point, _Chosen) for point in points):
            out["arguments"] = _arguments(gdb.newest_frame())
    elif isinstance(stop, gdb.SignalEvent):
        out.update(reason="signal", signal=stop.stop_signal)
    return out


def _number(expression):
    try:
        return int(gdb.parse_and_eval(expression))
    except (gdb.error, ValueError):
        return None


def _load(file):
    """Load the symbols of one file, those that are kept apart too, if they are not."""
    if _known_as(file) is None:
        _load_some(re.sub("[^A-Za-z0-9_/]", ".", pathlib.Path(file).name))
    elif _set_aside and file == gdb.current_progspace().filename and not _is_core():
        with contextlib.suppress(gdb.error), _debug_files():
            execute(f"symbol-file {_quoted(file)}")


def _load_some(pattern):
    """Load the symbols of libraries that are not loaded yet; none are left out by themselves in somebody's own gdb."""
    if gdb.parameter("auto-solib-add"):
        return
    with contextlib.suppress(gdb.error), _debug_files():
        execute("sharedlibrary " + pattern)


@contextlib.contextmanager
def _debug_files():
    for place in _set_aside:
        execute(f"set {_DEBUG_FILES} {place}")
    try:
        yield
    finally:
        if _set_aside:
            execute(f"set {_DEBUG_FILES}")


def _known_as(file):
    """What gdb calls a file whose symbols it has loaded; None if it has not."""
    names = [o.filename for o in gdb.objfiles() if o.filename and o.is_valid()]
    for known in (file, _FETCHED + file):
        if known in names:
            return known
    return next((name for name in names if os.path.realpath(name) == os.path.realpath(file)), None)


def _files_with_code():
    if _is_remote():
        return frozenset(o.filename for o in gdb.objfiles() if o.filename and o.is_valid())
    try:
        with pathlib.Path("/proc/%d/maps" % gdb.selected_inferior().pid).open(errors="surrogateescape") as lines:
            pieces = [_mapping(line) for line in lines]
    except OSError:
        return frozenset()
    return frozenset((first, file) for first, _, rights, file in pieces if "x" in rights and file.startswith("/"))


def _mapping(line):
    span, rights, _, _, _, *file = line.rstrip("\n").split(None, 5)
    first, end = span.split("-")
    return [int(first, 16), int(end, 16), rights, "".join(file)]


def _is_core():
    return _of_files("^Local core dump file")


def _is_remote():
    return _of_files("^(Remote|Extended remote) .*gdb-specific protocol")


def _of_files(pattern):
    return re.search(pattern, execute("info files"), re.MULTILINE) is not None


def _tried(command):
    try:
        return execute(command)
    except gdb.error:
        return ""


def _sections():
    program = gdb.current_progspace().filename or ""
    return [
        [int(a, 16), int(z, 16), "r-xp" if name in _CODE else "r--p", file or program]
        for a, z, name, file in _SECTION.findall(execute("info files"))
    ]


def _look_here():
    """Take libraries that are not in that folder from where they are here."""
    folders = gdb.parameter("solib-search-path").split(":")
    missing = [pathlib.Path(name) for name in _missing()]
    here = {str(path.parent) for path in missing if path.is_absolute() and path.is_file()}
    if here <= set(folders):
        return
    execute("set solib-search-path " + ":".join(filter(None, [*folders, *sorted(here)])))


def _missing():
    return _MISSING.findall(execute("info sharedlibrary"))


def _halt(halts):
    """Halt the program for each byte that comes, as soon as it runs."""
    with contextlib.suppress(OSError):
        while os.read(halts, 1):
            gdb.post_event(lambda: _tried("interrupt"))


def architecture():
    """x86-64, aarch64, or what gdb calls another."""
    name = gdb.selected_inferior().architecture().name()
    return "aarch64" if "aarch64" in name else "x86-64" if "x86-64" in name else name


def word(value):
    """A value as a number of 64 bits, as a register has it."""
    return int(value.cast(gdb.selected_inferior().architecture().integer_type(64, False))) & 0xFFFFFFFFFFFFFFFF


def _quoted(path):
    return '"{}"'.format(path.replace("\\", "\\\\").replace('"', '\\"'))


def start():
    """Serve the process that started this gdb, through the two pipes that it named."""
    requests, answers, halts = (int(fd) for fd in os.environ.pop("GGMLTOOL_GDB").split(","))
    settle()
    with os.fdopen(requests, "rb") as questions, os.fdopen(answers, "wb") as back:
        server = Server(questions, back, halts)
        try:
            server.serve()
        finally:
            server.let_go()
