//! `clawnode-chaos`: does harm to a real cluster, and judges what is left. See `--help`.

use std::{io::Write, process::ExitCode};

use clawnode_tests::chaos::{
    Scenario,
    options::{HELP, Options, Parsed},
    run,
};
use tokio::signal::unix::{SignalKind, signal};

/// The exit code for a command line that makes no sense.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Parsed::Run(options) => options,
        Parsed::Help => {
            say(HELP);
            return ExitCode::SUCCESS;
        }
        Parsed::List => {
            for one in Scenario::ALL {
                say(&format!("{:18} {}", one.as_str(), one.about().trim()));
            }
            return ExitCode::SUCCESS;
        }
        Parsed::Wrong(why) => {
            complain(&format!("error: {why}\n\n{HELP}"));
            return ExitCode::from(USAGE);
        }
    };
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_env_filter(tracing_subscriber::EnvFilter::from_env("CLAWNODE_CHAOS_LOG"))
        .init();
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // More than cores: setting up hosts holds a thread up, and the clients of other scenarios go on.
    let Ok(runtime) = runtime.worker_threads(4).enable_all().build() else {
        complain("error: no runtime");
        return ExitCode::FAILURE;
    };
    runtime.block_on(async {
        tokio::select! {
            code = perform(&options) => code,
            // Dropping the run ends its processes and removes its hosts.
            () = interrupted() => ExitCode::FAILURE,
        }
    })
}

async fn perform(options: &Options) -> ExitCode {
    match Box::pin(run(options, say)).await {
        Ok(card) => {
            say(&format!("\n{}", card.markdown()));
            if card.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            complain(&format!("error: {error}"));
            ExitCode::FAILURE
        }
    }
}

async fn interrupted() {
    let (Ok(mut terminate), Ok(mut interrupt)) =
        (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Results go to standard output.
fn say(text: &str) {
    // The reader has gone: the files have all results.
    if writeln!(std::io::stdout(), "{text}").is_err() {
        tracing::debug!("no reader for the results");
    }
}

fn complain(text: &str) {
    if writeln!(std::io::stderr(), "{text}").is_err() {
        tracing::debug!("no reader for the errors");
    }
}
