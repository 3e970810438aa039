"""The command `ggml` in somebody's own gdb: gdb's own Python runs this file, which `ggmltool attach --gdb` points to.

A command is handed to a process of ggmltool that lives as long as gdb does. It asks for what it needs, as it asks the
gdb that `inside.py` was loaded into, and sends what is to be shown. Of ggml nothing is known here.
"""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile

import gdb

_FRAME_MADE = (b"\x55\x48\x89\xe5", b"\xf3\x0f\x1e\xfa\x55\x48\x89\xe5")
"""How functions on x86-64 begin that keep their arguments in a frame: push rbp; mov rbp, rsp."""

_GONE = "ggmltool does not answer: {}; `ggmltool attach --gdb` says what to source"


_SERVING = (
    "import sys; sys.path[:] = filter(None, sys.path); sys.path.append(%r); "
    "from ggmltool.debugger.live import serve; serve()"
)
"""What a Python of ours runs; the current folder has nothing for it."""


def _module(folder, name):
    spec = importlib.util.spec_from_file_location("ggmltool_" + name, os.path.join(folder, name + ".py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Conditional(gdb.Breakpoint):
    """A breakpoint at a function that stops where a text lies in the program: in what an argument points to, or in one
    of the things in an array of pointers there. It stops where gdb shows the arguments."""

    def __init__(self, address, where, before):
        shown = _shown(address)
        super().__init__("*%d" % shown, gdb.BP_BREAKPOINT)
        self.before = before
        self.looking = Looking(address, where) if shown != address else None
        self.where = where

    def stop(self):
        """Whether the program is to stand still here."""
        if self.looking is None:
            found = _is_there(self.where)
        else:
            found = gdb.selected_thread().num in self.looking.found
            self.looking.found.discard(gdb.selected_thread().num)
        if found:
            gdb.write(self.before)
        return found

    def drop(self):
        """Look no more, once the user has deleted this: while gdb goes through its breakpoints, none may be deleted."""
        if self.looking is not None and self.looking.is_valid():
            self.looking.enabled = False
            gdb.post_event(self.looking.leave)


class Looking(gdb.Breakpoint):
    """A breakpoint at the first instruction of a function, where its arguments are in registers; it never stops, and
    notes the threads in which the text is there."""

    def __init__(self, address, where):
        super().__init__("*%d" % address, gdb.BP_BREAKPOINT, internal=True)
        self.where = where
        self.found = set()

    def stop(self):
        """Look, and go on."""
        if _is_there(self.where):
            self.found.add(gdb.selected_thread().num)
        return False

    def leave(self):
        """Be gone."""
        if self.is_valid():
            self.delete()


def _is_there(where):
    """Whether a text lies where a function's arguments lead."""
    inferior = gdb.selected_inferior()
    try:
        at = _arguments()[where["argument"]]
        things = [at]
        if "count" in where:
            n = min(int.from_bytes(inferior.read_memory(at + where["count"], 4).tobytes(), "little"), where["most"])
            pointers = int.from_bytes(inferior.read_memory(at + where["array"], 8).tobytes(), "little")
            raw = inferior.read_memory(pointers, 8 * n).tobytes()
            things = [int.from_bytes(raw[i : i + 8], "little") for i in range(0, 8 * n, 8)]
        wanted = bytes.fromhex(where["text"]) + b"\0"
        return any(inferior.read_memory(t + where["offset"], len(wanted)).tobytes() == wanted for t in things)
    except (gdb.error, gdb.MemoryError):
        return False


def _shown(address):
    """Where the arguments of a function are what gdb shows: behind the instructions that put them into its frame, in
    code that was not optimized."""
    try:
        block = gdb.block_for_pc(address)
        if block is None or block.function is None or block.start != address:
            return address
        code = gdb.selected_inferior().read_memory(address, 8).tobytes()
        if not code.startswith(_FRAME_MADE):
            return address
        lines = gdb.find_pc_line(address).symtab.linetable()
        return min((line.pc for line in lines if address < line.pc < block.end), default=address)
    except (gdb.error, gdb.MemoryError, RuntimeError, AttributeError):
        return address


class Remembering(gdb.Breakpoint):
    """A breakpoint that never stops: it notes with what a function was called."""

    def __init__(self, address, seen):
        super().__init__("*%d" % address, gdb.BP_BREAKPOINT, internal=True)
        self.address = address
        self.seen = seen

    def stop(self):
        """Note it, and go on."""
        with contextlib.suppress(gdb.error):
            self.seen[:] = [gdb.selected_inferior().pid, self.address, *_arguments()[:2]]
        return False


def _arguments():
    return inside.Server(None, None).do_arguments()


def _frame(frame, names):
    variables = {}
    for name in names:
        with contextlib.suppress(ValueError, gdb.error, RuntimeError):
            variables[name] = inside.word(frame.read_var(name))
    return {
        "function": frame.name() or "",
        "pc": frame.pc(),
        "file": gdb.solib_name(frame.pc()) or gdb.current_progspace().filename or "",
        "stack": inside.stack_pointer(frame),
        "registers": list(inside.lasting(frame).values()),
        "variables": variables,
    }


def serving(folder):
    """The class that answers ggmltool's questions, of those in `inside.py`, and some of its own."""

    class UsersGdb(inside.Server):
        """Answers one command at a time, and leaves the settings and the breakpoints of the user as they are."""

        def __init__(self, requests, answers, state):
            super().__init__(requests, answers)
            self.state = state
            self.changed = {}
            self.disabled = []

        def serve_one(self, command):
            """Hand over a command; what is to be shown, and what went wrong ("" if nothing did)."""
            self.answers.write(json.dumps(command).encode() + b"\n")
            self.answers.flush()
            try:
                while True:
                    line = self.requests.readline()
                    if not line:
                        raise EOFError
                    request = json.loads(line)
                    if request[0] == "end":
                        return request[1], request[2]
                    self.answer(request)
            finally:
                self.restore()

        def do_threads(self):
            """The numbers of the threads, the selected one first."""
            selected = gdb.selected_thread()
            others = [t.num for t in gdb.selected_inferior().threads() if selected is None or t.num != selected.num]
            return ([selected.num] if selected is not None else []) + sorted(others)

        def do_frames_of(self, thread, most, names):
            """The frames of another thread; the selected one and its frame stay so."""
            selected, frame = gdb.selected_thread(), None
            with contextlib.suppress(gdb.error):
                frame = gdb.selected_frame()
            try:
                for one in gdb.selected_inferior().threads():
                    if one.num == thread:
                        one.switch()
                        return inside.walked(most, lambda frame: _frame(frame, names))
                return []
            finally:
                if selected is not None:
                    selected.switch()
                if frame is not None and frame.is_valid():
                    frame.select()

        def do_value(self, expression):
            """What gdb itself knows by a name: a number or an address, and the name of its type."""
            value = gdb.parse_and_eval(expression)
            type = value.type.strip_typedefs()
            if type.code in (gdb.TYPE_CODE_STRUCT, gdb.TYPE_CODE_ARRAY) and value.address is not None:
                return {"number": int(value.address), "type": str(type) + " *", "at": True}
            return {"number": inside.word(value), "type": str(type), "at": False}

        def do_readable(self):
            """The process whose memory is what gdb shows of it: not one elsewhere, nor one that is played back; 0."""
            inferior = gdb.selected_inferior()
            native = getattr(getattr(inferior, "connection", None), "type", "") == "native"
            return inferior.pid if native and gdb.current_recording() is None else 0

        def do_symbol(self, address):
            """`name` or `name+4` of what lies at an address, "" where nothing has a name."""
            text = inside.execute("info symbol %d" % address)
            return "" if text.startswith("No symbol") else text.partition(" in section ")[0].replace(" + ", "+").strip()

        def do_break_where(self, addresses, where, before):
            """Breakpoints that stop where a text is found; their numbers."""
            points = [Conditional(address, where, before) for address in addresses]
            self.state.points += points
            return [point.number for point in points]

        def do_remember(self, addresses):
            """Remember the calls of functions, and nothing of before."""
            self.do_forget()
            self.state.watches = [Remembering(address, self.state.seen) for address in addresses]

        def do_forget(self):
            """Remember no more calls."""
            for point in self.state.watches:
                if point.is_valid():
                    point.delete()
            self.state.watches = []

        def do_call(self, calls, alone=True):
            """As always, but no breakpoint of the user stops in what is called; once a command is over, the settings
            and the breakpoints are the user's again: a front end is told of every change."""
            if not self.changed:
                self.changed = {name: gdb.parameter(name) for name in ("scheduler-locking", "unwindonsignal")}
                self.disabled = [b for b in gdb.breakpoints() or () if b.is_valid() and b.enabled]
                for breakpoint in self.disabled:
                    breakpoint.enabled = False
                inside.execute("set unwindonsignal on")
                inside.execute("set scheduler-locking on")
            return [self._call(*call) for call in calls]

        def restore(self):
            """Give the user back what calls need otherwise."""
            changed, self.changed = self.changed, {}
            for name, value in changed.items():
                with contextlib.suppress(gdb.error):
                    inside.execute("set %s %s" % (name, {True: "on", False: "off"}.get(value, value)))
            disabled, self.disabled = self.disabled, []
            for breakpoint in disabled:
                if breakpoint.is_valid():
                    breakpoint.enabled = True

    return UsersGdb


class Child:
    """The process of ggmltool that answers the commands, started by the first of them."""

    def __init__(self, python, root, folder):
        self.python = python
        self.root = root
        self.desk_of = serving(folder)
        self.process = None
        self.desk = None
        self.watches = []
        self.points = []
        self.seen = []
        self.moment = 0
        self.thread = None
        self.loaded = 0
        self.busy = False
        self.connected = []
        for name in ("stop", "cont", "memory_changed", "register_changed"):
            self._on(name, self._moved)
        for name in ("new_objfile", "clear_objfiles", "exited"):
            self._on(name, self._reloaded)
        self._on("breakpoint_deleted", self._dropped)

    def _on(self, name, handler):
        registry = getattr(gdb.events, name, None)
        if registry is not None:
            registry.connect(handler)
            self.connected.append((registry, handler))

    def _moved(self, _):
        # What a call in the program announces is no moment: the program stands still for the user.
        self.moment += not self.busy

    def _reloaded(self, _):
        self.loaded += 1
        self.moment += 1

    def _dropped(self, deleted):
        for point in [point for point in self.points if point is deleted]:
            self.points.remove(point)
            point.drop()

    def _start(self):
        said = self.said = tempfile.TemporaryFile()
        environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONHOME", "PYTHONPATH")}
        try:
            self.process = subprocess.Popen(
                [self.python, "-c", _SERVING % self.root],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise gdb.GdbError(_GONE.format("%s: %s" % (self.python, error.strerror))) from None
        self.desk = self.desk_of(self.process.stdout, self.process.stdin, self)

    def ask(self, verb, argument):
        """What a command shows. Raises gdb.GdbError."""
        if self.process is None:
            self._start()
        inferior, thread = gdb.selected_inferior(), gdb.selected_thread()
        if self.thread != (thread and thread.num):
            self.thread = thread and thread.num
            self.moment += 1
        command = {
            "verb": verb,
            "argument": argument,
            "width": gdb.parameter("width"),
            "color": _colored(),
            "folder": os.getcwd(),
            "process": [inferior.num, inferior.pid, self.loaded],
            "moment": self.moment,
            "seen": self.seen[1:] if self.seen[:1] == [inferior.pid] else [],
            "running": any(thread.is_running() for thread in inferior.threads()),
        }
        self.busy = True
        try:
            text, error = self.desk.serve_one(command)
        except (EOFError, OSError, ValueError):
            self.said.seek(0)
            lines = [line for line in self.said.read().decode("utf-8", "replace").split("\n") if line.strip()]
            self.close()
            raise gdb.GdbError(_GONE.format(lines[-1] if lines else "its process has ended")) from None
        except BaseException as error:
            # The two no longer know whose turn it is.
            self.close()
            interrupted = isinstance(error, KeyboardInterrupt) or str(error) == "Quit"
            raise gdb.GdbError("Quit" if interrupted else _GONE.format(error)) from None
        finally:
            self.busy = False
        return text, error

    def close(self):
        """End the process."""
        process, self.process = self.process, None
        if process is None:
            return
        for end in (process.stdin, process.stdout):
            with contextlib.suppress(OSError):
                end.close()
        with contextlib.suppress(OSError):
            process.kill()
        process.wait()
        self.said.close()

    def leave(self):
        """End the process, and listen to gdb no more: this file is loaded anew."""
        self.close()
        for registry, handler in self.connected:
            registry.disconnect(handler)
        for point in self.watches:
            if point.is_valid():
                point.delete()
        for point in self.points:
            point.drop()


def _colored():
    try:
        styled = gdb.parameter("style enabled")
    except RuntimeError:
        styled = False
    return bool(styled) and os.isatty(1) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Verb(gdb.Command):
    """One `ggml X`."""

    def __init__(self, child, name, usage, meaning, example, completes):
        self.__doc__ = "%s\nUsage: ggml %s %s\nExample: %s" % (meaning, name, usage, example)
        super().__init__("ggml " + name, gdb.COMMAND_DATA)
        self.child = child
        self.name = name
        self.completes = completes

    def invoke(self, argument, from_tty):
        """Show what ggmltool answers."""
        self.dont_repeat()
        text, error = self.child.ask(self.name, argument)
        if text:
            gdb.write(text)
        if error:
            raise gdb.GdbError(error)

    def complete(self, text, word):
        """Names of tensors, or of files."""
        if self.completes == "file":
            return gdb.COMPLETE_FILENAME
        if self.completes != "node":
            return []
        try:
            names, error = self.child.ask("complete", text)
        except gdb.GdbError:
            return []
        cut = len(text) - len(word)
        return [] if error else [name[cut:] for name in names.split("\n") if name.startswith(text)]


class Help(gdb.Command):
    """List the commands of ggml, or show more of one.
    Usage: ggml help [VERB]
    Example: ggml help break"""

    def __init__(self, verbs):
        super().__init__("ggml help", gdb.COMMAND_SUPPORT)
        self.verbs = verbs

    def invoke(self, argument, from_tty):
        """What gdb's own `help` says."""
        self.dont_repeat()
        gdb.execute("help ggml " + argument)

    def complete(self, text, word):
        """The commands."""
        return [verb for verb in self.verbs if verb.startswith(word)]


class Ggml(gdb.Command):
    """Look at ggml in the program: its scheduler, its graph, its allocator.

    Without debug information, too. `help ggml VERB` shows more of each."""

    def __init__(self):
        super().__init__("ggml", gdb.COMMAND_DATA, prefix=True)

    def invoke(self, argument, from_tty):
        """List what there is."""
        if argument.strip():
            raise gdb.GdbError('Undefined ggml command: "%s".  Try "help ggml".' % argument.split()[0])
        gdb.execute("help ggml")


def load(python, root, folder):
    """Make the commands; `folder` is where this file lies, `root` the folder that has the package."""
    global inside
    before = sys.modules.get("ggmltool_ingdb")
    if before is not None:
        before.child.leave()
    inside = _module(folder, "inside")
    _module(folder, "printers").register()
    Ggml()
    sys.modules["ggmltool_ingdb"] = self = type(sys)("ggmltool_ingdb")
    self.child = Child(python, root, folder)
    verbs = _module(folder, "verbs").VERBS
    for name, said in verbs.items():
        Verb(self.child, name, *said)
    Help(verbs)
    with contextlib.suppress(gdb.error):
        inside.execute("alias ggml p = ggml print")
