//! `execute_code`: Python in a sandbox, which calls the agent's tools and returns one value.
//!
//! The program and the node talk over the program's own standard streams (`dialogue`), in lines of JSON
//! (`frame`). The sandbox is that of `run_python`: the network stays off, and nothing is mounted for
//! it. Every line from inside is hostile: the code may forge any, so a line is bounded, is one of
//! three kinds, and asks for nothing that the agent would not be given by itself
//! ([`CallBack`](clawnode_tool::CallBack)). What makes no sense ends the program.
//!
//! Only the returned value becomes the call's result. What was printed is counted, and its end is
//! kept for the error if there is one.

mod conversation;
mod frame;

pub(super) use conversation::{ProgramEnd, ProgramSession};

/// The program that runs the code, and what the code imports as `clawnode`.
pub(super) const PROGRAM: &str = include_str!("clawnode.py");

/// The description for the model.
pub(super) const DESCRIPTION: &str = "Runs Python 3 code in a sandbox and gives back only the value \
    that it returns: `return VALUE` at the top level, or the value of a last expression, as JSON (a \
    text as it is). What it prints is not shown. The code can call your other tools: `import \
    clawnode`, then `clawnode.tools.NAME(argument=...)` or `clawnode.call(\"NAME\", {...})`; each \
    gives the tool's result as a text (`json.loads` it where it is JSON), or raises \
    `clawnode.ToolError`. `clawnode.parallel((\"NAME\", {...}), ...)` makes several calls at once \
    and gives their results in order. `dir(clawnode.tools)` lists what can be called: tools that \
    need no approval and run on the same node. At most 100 calls. Use it to call tools many \
    times, or to work through results that you need not see.";
