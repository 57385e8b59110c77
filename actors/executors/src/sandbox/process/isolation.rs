//! Whether this host can isolate commands. If it cannot, commands are refused.

use std::time::Duration;

use clawnode_proto::ErrorChain;
use clawnode_tool::RunSink;
use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::{
    Isolation,
    process_run::{Processes, no},
    second_layer::Around,
};
use crate::sandbox::{
    SandboxError,
    command_output::CommandEnd,
    spec::{Argv, Network, SandboxCommand, SandboxPolicy, User},
};

/// How long the probe may take.
const PROBE_WAIT: Duration = Duration::from_secs(4);

impl Processes {
    /// Whether commands can be isolated here, by isolating one that does nothing.
    pub fn health_check(&self) -> BoxFuture<'_, Result<(), SandboxError>> {
        Box::pin(async move {
            if self.options.isolation == Isolation::None {
                return Ok(());
            }
            let around = self.second.of_command()?;
            let Some((_, shut)) = around else { return self.probe(None).await?.map_err(no) };
            let Err(why) = self.probe(around).await? else {
                self.second.works(shut);
                return Ok(());
            };
            // Which of the walls does not hold?
            let mut last = why.clone();
            for less in self.second.less(shut) {
                match self.probe(less).await? {
                    Ok(()) if self.second.fails(less, &why) => return Ok(()),
                    Ok(()) => {
                        let why = format!("it does not work here: {why}");
                        return Err(SandboxError::NoSecondWall(why));
                    }
                    Err(why) => last = why,
                }
            }
            Err(no(last))
        })
    }

    /// Runs a command that does nothing; the inner error is what it said instead.
    async fn probe(&self, around: Around<'_>) -> Result<Result<(), String>, SandboxError> {
        let nothing = Argv::new(vec!["true".to_owned()]).map_err(|error| no(error.to_string()))?;
        let command = SandboxCommand {
            argv: nothing,
            stdin: Vec::new(),
            idempotency_key: "probe".to_owned(),
            timeout: PROBE_WAIT,
            sink: RunSink::default(),
        };
        let policy = SandboxPolicy {
            image: None,
            limits: self.options.limits(),
            network: Network::None,
            workspace: None,
            user: User::nobody(),
        };
        let never = CancellationToken::new();
        let ran = match self.run_within(around, &policy, &command, None, &never).await {
            Ok(ran) => ran,
            // What puts the second wall up cannot even be started.
            Err(error @ SandboxError::Io { .. }) if around.is_some() => {
                return Ok(Err(ErrorChain(&error).to_string()));
            }
            Err(error) => return Err(error),
        };
        if ran.end == CommandEnd::Exited(0) {
            return Ok(Ok(()));
        }
        let is_late = matches!(ran.end, CommandEnd::TimedOut(_));
        let said = ran.outcome().content.inline().unwrap_or_default().replace('\n', " ");
        let said = said.chars().take(300).collect();
        // That it takes long says nothing of any wall.
        if is_late { Err(no(said)) } else { Ok(Err(said)) }
    }
}
