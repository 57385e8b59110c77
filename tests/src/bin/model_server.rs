//! The scripted model server as a process: `model_server --listen ADDR [--script FILE] [--tokens N]
//! [--delay-ms D] [--log FILE] [--api-key KEY] [--model NAME]`.
//!
//! It prints `listening ADDR` when it serves, and ends when it is killed.

use std::{error::Error, io::Write, path::PathBuf};

use clawnode_tests::model::{ModelServer, Script, Setup};

const USAGE: &str = "usage: model_server --listen ADDR [--script FILE] [--tokens N] \
                     [--delay-ms D] [--log FILE] [--api-key KEY] [--model NAME]";

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let server = ModelServer::start(setup(std::env::args().skip(1))?).await?;
    let mut stdout = std::io::stdout();
    writeln!(stdout, "listening {}", server.addr())?;
    stdout.flush()?;
    server.run().await;
    Ok(())
}

fn setup(mut args: impl Iterator<Item = String>) -> Result<Setup, Box<dyn Error>> {
    let mut setup = Setup { keep_calls: false, ..Setup::default() };
    let (mut tokens, mut delay_ms) = (None, None);
    while let Some(flag) = args.next() {
        let value = args.next().ok_or_else(|| format!("`{flag}` needs a value; {USAGE}"))?;
        match flag.as_str() {
            "--listen" => setup.listen = value.parse()?,
            "--script" => setup.script = read_script(&value)?,
            "--tokens" => tokens = Some(value.parse()?),
            "--delay-ms" => delay_ms = Some(value.parse()?),
            "--log" => setup.log = Some(PathBuf::from(value)),
            "--api-key" => setup.api_key = Some(value),
            "--model" => setup.models = vec![value],
            _ => return Err(format!("unknown flag `{flag}`; {USAGE}").into()),
        }
    }
    let default = &mut setup.script.default;
    default.tokens = tokens.unwrap_or(default.tokens);
    default.delay_ms = delay_ms.unwrap_or(default.delay_ms);
    Ok(setup)
}

fn read_script(path: &str) -> Result<Script, Box<dyn Error>> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("`{path}`: {error}"))?;
    Ok(serde_json::from_str(&text).map_err(|error| format!("`{path}`: {error}"))?)
}
