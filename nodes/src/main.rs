//! The binary: reads the process's arguments and environment, and ends with an exit code.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clawnode::{cli, config::Env, failure::Exit, host};

/// A node makes and drops many small values on many threads.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    host::prepare();
    let args: Vec<_> = std::env::args_os().collect();
    if let Some(code) = cli::sandboxed_exec(&args) {
        return ExitCode::from(code);
    }
    if let Some(keeper) = cli::keeper(&args) {
        // One thread: there is one on each host for every MCP server that runs there.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        return ExitCode::from(
            runtime.map_or(Exit::Failed as u8, |runtime| runtime.block_on(keeper)),
        );
    }
    // Installing fails only if it was installed before, which serves as well.
    drop(rustls::crypto::ring::default_provider().install_default());
    let exit = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => {
            let exit = runtime.block_on(cli::main(args, Env::new(std::env::vars_os())));
            // A read of standard input cannot be cancelled; it must not keep the process.
            runtime.shutdown_background();
            exit
        }
        Err(_) => Exit::Failed,
    };
    ExitCode::from(exit as u8)
}
