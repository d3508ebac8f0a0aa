# Runs a module of Salt that is written in Python: a file of plain functions, with
# __salt__, __grains__, __pillar__ and __opts__ in it. It is not installed anywhere: the
# minion hands it to python3 on standard input, in front of the request, whose form is that
# of every program (doc/modules.md). What the module calls through __salt__ is asked of the
# minion, over the descriptors 3 and 4, which decides about it.

import base64
import collections.abc
import importlib.util
import inspect
import json
import os
import re
import sys
import threading
import traceback
import types


class CommandExecutionError(Exception):
    """A failure that is told by its text alone."""


class Failed(SystemExit):
    """Ends the program with words on standard error."""

    def __init__(self, text):
        super().__init__(1)
        print(text, file=sys.stderr)


class Minion:
    """The way to the minion: one question at a time, whatever thread asks."""

    def __init__(self, answers):
        self.lock = threading.Lock()
        if answers:
            self.answers, self.questions = os.fdopen(3, "rb"), os.fdopen(4, "wb")
        else:
            self.answers = None

    def ask(self, question):
        if self.answers is None:
            raise CommandExecutionError("__salt__ can be used while a function runs, and not before")
        with self.lock:
            self.questions.write(encode(question) + b"\n")
            self.questions.flush()
            line = self.answers.readline()
        if not line:
            raise CommandExecutionError("the minion does not answer any more")
        answer = json.loads(line)
        if "error" in answer:
            raise CommandExecutionError(answer["error"])
        return answer.get("return")


class Functions(collections.abc.Mapping):
    """__salt__: the functions of the minion."""

    def __init__(self, minion):
        self.minion = minion

    def __getitem__(self, name):
        if name not in self:
            raise KeyError(name)
        return lambda *args, **kwargs: self.minion.ask({"fun": name, "args": args, "kwargs": kwargs})

    def __contains__(self, name):
        return isinstance(name, str) and self.minion.ask({"known": name})

    def __iter__(self):
        raise CommandExecutionError("__salt__ does not list its functions: sys.list_functions does")

    def __len__(self):
        raise CommandExecutionError("__salt__ does not count its functions: sys.list_functions lists them")


def plain(value):
    """What JSON has no word for, as Salt's outputters show it."""
    if isinstance(value, (set, frozenset)):
        return sorted(value, key=repr)
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, collections.abc.Mapping):
        return dict(value)
    raise TypeError("a value of the type %s cannot be sent" % type(value).__name__)


def marked(value):
    """A return, with marks where JSON has no word for what Python's outputters tell apart: they
    are for who prints it on this machine, and go as a plain list or text over the network."""
    if isinstance(value, tuple):
        return {"$tuple": [marked(item) for item in value]}
    if isinstance(value, (set, frozenset)):
        return {"$set": [marked(item) for item in sorted(value, key=repr)]}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, list):
        return [marked(item) for item in value]
    if isinstance(value, collections.abc.Mapping):
        if all(isinstance(key, str) for key in value):
            return {key: marked(item) for key, item in value.items()}
        return {"$map": [[marked(key), marked(item)] for key, item in value.items()]}
    return value


def encode(value):
    return json.dumps(value, default=plain, allow_nan=False).encode()


def exceptions():
    """salt.exceptions, the part of Salt's own package that most modules import."""
    package, module = types.ModuleType("salt"), types.ModuleType("salt.exceptions")
    package.__path__, package.exceptions = [], module
    module.CommandExecutionError = CommandExecutionError
    for name in ("CommandNotFoundError", "MinionError", "SaltException", "SaltInvocationError", "TimeoutError"):
        setattr(module, name, type(name, (CommandExecutionError,), {}))
    sys.modules["salt"], sys.modules["salt.exceptions"] = package, module


def load(path, request, minion):
    exceptions()
    name = os.path.basename(path)[: -len(".py")]
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    module.__salt__ = Functions(minion)
    module.__grains__ = request.get("grains", {})
    module.__pillar__ = request.get("pillar", {})
    module.__opts__ = request.get("options", {})
    module.__context__ = {}
    try:
        spec.loader.exec_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "salt":
            raise Failed("it imports %s: of Salt's own package there is salt.exceptions only" % error.name)
        raise Failed("it imports %s, which this machine's python3 does not have" % error.name)
    return module


def functions(module):
    """The functions that can be called, by the names that callers use."""
    aliases, found = getattr(module, "__func_alias__", {}), {}
    for name in getattr(module, "__load__", sorted(vars(module))):
        function = getattr(module, name, None)
        name = aliases.get(name, name)
        if inspect.isfunction(function) and re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
            found[name] = function
    return found


# The parameters that a caller can give by position.
positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def declared(function):
    """The parameters that the minion binds. Behind a * it would give the optional ones by
    name only, so there it binds the required ones and Python all others."""
    all = [p for p in inspect.signature(function).parameters.values() if p.kind in positional]
    if inspect.getfullargspec(function).varargs:
        return [p for p in all if p.default is inspect.Parameter.empty]
    return all


def default(parameter):
    """A parameter's default as JSON has it; None where that has no word for it."""
    try:
        return json.loads(encode(parameter.default))
    except (TypeError, ValueError):
        return None


def describe(module):
    described = {}
    for name, function in functions(module).items():
        spec, args = inspect.getfullargspec(function), []
        for p in declared(function):
            required = p.default is inspect.Parameter.empty
            args.append(p.name if required else {"name": p.name, "default": default(p)})
        named = bool(spec.varkw or spec.kwonlyargs or spec.varargs and spec.defaults)
        doc = inspect.getdoc(function) or ""
        described[name] = {"doc": doc, "args": args, "varargs": bool(spec.varargs), "kwargs": named, "timeout": 0}
    return {"doc": inspect.getdoc(module) or "", "functions": described}


def virtual(module):
    """Ends the program where the module says that it is not for this machine."""
    if not hasattr(module, "__virtual__"):
        return
    answer, reason = module.__virtual__(), ""
    if isinstance(answer, (tuple, list)) and answer:
        answer, reason = answer[0], ": " + " ".join(map(str, answer[1:]))
    if not answer:
        raise Failed("its __virtual__ says that it is not for this machine" + reason)
    if isinstance(answer, str) and answer != module.__name__:
        raise Failed("its __virtual__ names it %s: name the file %s.py" % (answer, answer))


def run(module, word, request):
    virtual(module)
    if word == "grains":
        facts = {}
        for function in functions(module).values():
            given = inspect.signature(function).parameters
            facts.update(function(**{"grains": module.__grains__} if "grains" in given else {}) or {})
        return facts
    function, args = functions(module)[word], list(request["args"])
    for i, p in enumerate(declared(function)):
        if p.default is not inspect.Parameter.empty and args[i] == default(p):
            args[i] = p.default  # itself: a tuple, say, and not the list that it is in JSON
    try:
        inspect.signature(function).bind(*args, **request["kwargs"])
    except TypeError as error:
        raise Failed(str(error))
    return function(*args, **request["kwargs"])


def main(path, word, minion=""):
    answer, sys.stdout = sys.stdout, sys.stderr  # what a function prints is no answer
    request, code = json.load(sys.stdin.buffer), 0
    try:
        module = load(path, request, Minion(minion))
        if word == "--describe":
            result = describe(module)
        else:
            result = run(module, word, request)
            code = module.__context__.get("retcode", 0)
        text = encode(marked(result) if word not in ("--describe", "grains") else result).decode()
    except CommandExecutionError as error:
        raise Failed(str(error))
    except Exception:
        traceback.print_exc()
        raise SystemExit(1)
    answer.write(text)
    answer.flush()
    raise SystemExit(code)


main(*sys.argv[1:])
