//! The processes of a bench: the node, the scripted model, the floor.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::{Duration, Instant},
};

use clawnode_tests::model::{DefaultReply, ModelServer, Script, Setup};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    process::{Child, ChildStdout, Command},
    time::timeout,
};

use crate::Error;

/// Reaching it means a bug, not a slow machine.
const PATIENCE: Duration = Duration::from_mins(2);

/// The core that a process and its children are kept on (`taskset -c`); none: any.
#[derive(Clone, Copy, Debug)]
pub struct Pin(pub Option<u16>);

/// A process that ends with its value.
#[derive(Debug)]
pub struct Process {
    child: Child,
    lines: tokio::io::Lines<BufReader<ChildStdout>>,
}

/// Where a node keeps its truth.
#[derive(Clone, Debug)]
pub enum Storage {
    /// In its data directory.
    Embedded,
    /// On a NATS server.
    Nats { url: String },
}

/// How a node is started.
#[derive(Debug)]
pub struct NodeSetup<'a> {
    pub binary: &'a Path,
    /// Its data directory; also its home.
    pub dir: &'a Path,
    /// Where the scripted model listens.
    pub model: &'a str,
    /// Where it keeps its truth.
    pub storage: Storage,
    /// Its configuration file's text.
    pub config: &'a str,
    /// Its core.
    pub pin: Pin,
    /// Its only role; none: all of them.
    pub role: Option<&'static str>,
}

/// A node that serves.
#[derive(Debug)]
pub struct Node {
    process: Process,
    /// `127.0.0.1:PORT`; empty without a gateway.
    pub addr: String,
    /// From its start until it said `ready`.
    pub ready_after: Duration,
}

// === impl Pin ===

impl Pin {
    fn command(self, binary: &Path) -> Command {
        let mut command = match self.0 {
            Some(core) => {
                let mut command = Command::new("taskset");
                command.arg("-c").arg(core.to_string()).arg(binary);
                command
            }
            None => Command::new(binary),
        };
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        command
    }
}

// === impl Process ===

impl Process {
    /// Starts this very binary in another role.
    pub fn role(pin: Pin, args: &[&str]) -> Result<Self, Error> {
        let mut command = pin.command(&std::env::current_exe()?);
        command.args(args).stderr(Stdio::inherit());
        Self::start(command)
    }

    fn start(mut command: Command) -> Result<Self, Error> {
        let mut child = command.spawn()?;
        let stdout = child.stdout.take().ok_or("a process without standard output")?;
        Ok(Self { child, lines: BufReader::new(stdout).lines() })
    }

    /// Its next line on standard output.
    pub async fn line(&mut self) -> Result<String, Error> {
        let line = timeout(PATIENCE, self.lines.next_line()).await??;
        Ok(line.ok_or("a process ended before it was ready")?)
    }

    /// Bytes of it that are in memory (`VmRSS`), once it has only what it needs.
    pub async fn resident_bytes(&self) -> Result<u64, Error> {
        resident_bytes(self.child.id().ok_or("the process has ended")?).await
    }

    /// Processor time that it has used, user and system.
    pub async fn cpu(&self) -> Result<Duration, Error> {
        cpu(self.child.id().ok_or("the process has ended")?).await
    }

    /// Ends it as `kill -9` does.
    pub async fn kill(&mut self) -> Result<(), Error> {
        Ok(self.child.kill().await?)
    }

    /// Asks it to stop, and waits until it has.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let pid = self.child.id().ok_or("the process has ended")?;
        let told = Command::new("kill").arg(pid.to_string()).status().await?;
        if !told.success() {
            return Err("the process could not be told to stop".into());
        }
        timeout(PATIENCE, self.child.wait()).await??;
        Ok(())
    }
}

/// Bytes of a process that are in memory (`VmRSS`).
pub async fn resident_bytes(pid: u32) -> Result<u64, Error> {
    let status = tokio::fs::read_to_string(format!("/proc/{pid}/status")).await?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: u64 = line.ok_or("no VmRSS")?.trim().trim_end_matches(" kB").parse()?;
    Ok(kib << 10)
}

/// Processor time that a process has used, user and system.
pub async fn cpu(pid: u32) -> Result<Duration, Error> {
    let stat = tokio::fs::read_to_string(format!("/proc/{pid}/stat")).await?;
    let after = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = after.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    let ticks = ticks.sum::<Result<u64, _>>()?;
    // Linux counts in hundredths of a second on every platform that we support.
    Ok(Duration::from_millis(ticks * 10))
}

// === impl Node ===

impl Node {
    /// Starts a node and waits until it says that it serves.
    pub async fn start(setup: &NodeSetup<'_>) -> Result<Self, Error> {
        let config = setup.dir.join("bench.toml");
        tokio::fs::write(&config, setup.config).await?;
        let mut command = setup.pin.command(setup.binary);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", setup.dir)
            .env("OPENAI_API_KEY", "bench")
            .env("OPENAI_BASE_URL", format!("http://{}/v1", setup.model))
            .args(match setup.role {
                Some(role) => vec!["run", "--role", role],
                None => vec!["up"],
            })
            .args(["--json", "--no-auth", "--listen", "127.0.0.1:0"])
            .args(["--model", "openai/scripted", "--config"])
            .arg(&config)
            .arg("--data-dir")
            .arg(setup.dir.join("data"));
        if let Storage::Nats { url } = &setup.storage {
            command.args(["--nats", url]);
        }
        let began = Instant::now();
        let mut process = Process::start(command)?;
        let ready: Value = serde_json::from_str(&process.line().await?)?;
        let ready_after = began.elapsed();
        let url = ready["url"].as_str().ok_or("no address in `ready`")?;
        let addr = url.strip_prefix("http://").unwrap_or(url).to_owned();
        Ok(Self { process, addr, ready_after })
    }

    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Sessions that it has in memory.
    pub async fn resident_sessions(&self) -> Result<u64, Error> {
        let text =
            reqwest::get(format!("http://{}/metrics", self.addr)).await?.error_for_status()?;
        let text = text.text().await?;
        let line = text.lines().find_map(|line| line.strip_prefix("clawnode_entities_resident "));
        Ok(line.ok_or("no `clawnode_entities_resident` in /metrics")?.trim().parse()?)
    }

    /// How old the oldest event of its journals is that its counts of usage do not have yet, in milliseconds.
    pub async fn usage_behind_ms(&self) -> Result<u64, Error> {
        let status = reqwest::get(format!("http://{}/v1/status", self.addr)).await?;
        let status: Value = serde_json::from_str(&status.error_for_status()?.text().await?)?;
        Ok(status["usage_behind_ms"].as_u64().ok_or("no `usage_behind_ms` in the status")?)
    }
}

/// The node's binary: beside this one unless it is named.
pub fn node_binary(named: Option<PathBuf>) -> Result<PathBuf, Error> {
    let binary = match named {
        Some(binary) => binary,
        None => std::env::current_exe()?.with_file_name("clawnode"),
    };
    if !binary.is_file() {
        let hint = "build it: cargo build --release -p clawnode";
        return Err(format!("no node at `{}`; {hint}", binary.display()).into());
    }
    Ok(binary)
}

/// Starts the scripted model; also says where it listens.
pub async fn model(pin: Pin, tokens: u32) -> Result<(Process, String), Error> {
    model_with(pin, &["model", "--tokens", &tokens.to_string()]).await
}

/// Starts the scripted model as this role; also says where it listens.
pub async fn model_with(pin: Pin, role: &[&str]) -> Result<(Process, String), Error> {
    let mut process = Process::role(pin, role)?;
    let addr = process.line().await?;
    Ok((process, addr))
}

/// The role `model`: answers in so many pieces, each after so many milliseconds.
pub async fn serve_model(tokens: u32, delay_ms: u64) -> Result<(), Error> {
    let default = DefaultReply { tokens, delay_ms, flush: true };
    let script = Script { default, ..Script::default() };
    let setup = Setup { script, keep_calls: false, ..Setup::default() };
    let server = ModelServer::start(setup).await?;
    say(&server.addr().to_string()).await?;
    server.run().await;
    Ok(())
}

/// Tells the bench that started this process something.
pub(crate) async fn say(line: &str) -> Result<(), Error> {
    let mut stdout = tokio::io::stdout();
    stdout.write_all(format!("{line}\n").as_bytes()).await?;
    Ok(stdout.flush().await?)
}
