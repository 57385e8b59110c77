# What runs the code of `execute_code`, and what that code imports as `clawnode`.
#
# It talks with the node over its own standard streams, in lines of JSON; what the code prints goes
# to standard error. Nothing here keeps the code from anything: the node judges every line.
import ast, itertools, json, linecache, os, sys, threading, traceback, types

FRAME_BYTES = 1 << 20
AT_ONCE = 8


class ToolError(Exception):
    """A tool call that has no result: `failure` is its kind, such as `refused` or `invalid`."""

    def __init__(self, tool, failure, text):
        super().__init__(f"{tool}: {failure}: {text}")
        self.tool, self.failure, self.text = tool, failure, text


def start():
    streams = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    sys.stdout.reconfigure(line_buffering=True)
    return streams


def main():
    reader, writer = start()
    writing, waiting, ids = threading.Lock(), {}, itertools.count()

    def say(what):
        text = json.dumps(what, ensure_ascii=False, allow_nan=False)
        line = text.encode("utf-8", "replace") + b"\n"
        if len(line) > FRAME_BYTES:
            raise ValueError(f"{len(line)} bytes as JSON; at most {FRAME_BYTES} can be handed on")
        with writing:
            writer.write(line)
            writer.flush()

    def hear():
        for line in reader:
            told = json.loads(line)
            there, slot = waiting.pop(told["id"])
            slot.append(told)
            there.set()

    def call(name, arguments=None, /, **more):
        """Calls a tool of the agent; its result, as a text."""
        number, there, slot = next(ids), threading.Event(), []
        waiting[number] = there, slot
        all_of_them = {**(arguments or {}), **more}
        say({"type": "call", "id": number, "tool": name, "arguments": all_of_them})
        there.wait()
        (told,) = slot
        if told["type"] == "error":
            raise ToolError(name, told["failure"], told["text"])
        return told["text"]

    def parallel(*calls):
        """Makes calls at the same time, each `(name, arguments)`; their results, in order."""
        results, taking, numbers = [None] * len(calls), threading.Lock(), iter(range(len(calls)))

        def work():
            while True:
                with taking:
                    at = next(numbers, None)
                if at is None:
                    return
                try:
                    results[at] = call(*calls[at])
                except Exception as error:
                    results[at] = error

        threads = [
            threading.Thread(target=work, daemon=True) for _ in range(min(AT_ONCE, len(calls)))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for result in results:
            if isinstance(result, Exception):
                raise result
        return results

    begin = json.loads(reader.readline())
    threading.Thread(target=hear, daemon=True).start()

    class Tools:
        def __getattr__(self, name):
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda **arguments: call(name, arguments)

        def __dir__(self):
            return begin["tools"]

    module = types.ModuleType("clawnode")
    module.call, module.parallel, module.tools = call, parallel, Tools()
    module.ToolError = ToolError
    sys.modules["clawnode"] = module

    code = begin["code"]
    lines = code.splitlines(keepends=True)
    linecache.cache["<code>"] = len(code), None, lines, "<code>"
    try:
        body = ast.parse(code, "<code>").body or [ast.Pass(lineno=1, col_offset=0)]
        if isinstance(body[-1], ast.Expr):
            body[-1] = ast.copy_location(ast.Return(body[-1].value), body[-1])
        tree = ast.parse("def main():\n pass")
        tree.body[0].body = body
        names = {"__name__": "__main__", "clawnode": module}
        exec(compile(ast.fix_missing_locations(tree), "<code>", "exec"), names)
        value = names["main"]()
        try:
            say({"type": "return", "value": value})
        except (TypeError, ValueError, RecursionError) as error:
            say({"type": "raise", "error": f"what the code returned cannot be handed on: {error}"})
    except BaseException as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != "<code>":
            trace = trace.tb_next
        told = "".join(traceback.format_exception(type(error), error, trace, chain=False))
        say({"type": "raise", "error": told[-8000:]})
    sys.stdout.flush()
    os._exit(0)


main()
