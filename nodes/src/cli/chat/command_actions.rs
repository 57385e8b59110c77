//! What commands do.

use std::{
    io::{Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::PathBuf,
};

use clawnode_proto::{
    AgentName, SessionKey,
    api::{AgentParams, ChatCancel, Nothing, calls},
    id::ParseIdError,
    limits::MESSAGE_BYTES,
    view::{HistoryView, SessionRow},
};
use serde_json::Value;

use super::{
    Chat, attach,
    commands::{self, ChatCommand},
    conversation::{self, Conversation},
    desk::DeskCall,
    terminal_style::TextRole,
};
use crate::{
    cli::output::{clean, exact, time},
    config::paths,
    failure::{Exit, Failure},
};

/// Conversations that `/sessions` lists.
const LISTED: usize = 10;
/// Calls that `/show` shows.
const SHOWN: usize = 5;

impl Chat<'_> {
    /// Does what a command says. False: the person leaves. A failure is printed, and the chat goes on.
    pub(super) async fn perform(&mut self, command: ChatCommand) -> Result<bool, Failure> {
        let done = match command {
            ChatCommand::Quit => return Ok(false),
            ChatCommand::Resume(which) => {
                match self.or_break(async |chat| chat.resume(which).await).await {
                    Ok(Some(history)) => return self.go_on(&history).await,
                    done => done.map(drop),
                }
            }
            // The editor has the terminal, and Ctrl-C is its own.
            ChatCommand::Edit => self.edit().await,
            command => self.or_break(async |chat| chat.does(command).await).await,
        };
        match done {
            Err(failure) if failure.code != "output_closed" => {
                self.failure(&failure)?;
                Ok(true)
            }
            done => done.map(|()| true),
        }
    }

    /// What asks the node at most.
    async fn does(&mut self, command: ChatCommand) -> Result<(), Failure> {
        match command {
            ChatCommand::Help => self.aside(&commands::help()),
            ChatCommand::New => self.begin_anew(self.agent.clone()),
            ChatCommand::Sessions => self.list().await,
            ChatCommand::Model(wanted) => self.model(wanted).await,
            ChatCommand::Reasoning(wanted) => self.reasoning(wanted),
            ChatCommand::Agent(wanted) => self.choose_agent(wanted).await,
            ChatCommand::Lane(wanted) => self.choose_lane(wanted),
            ChatCommand::Allow => self.allow().await,
            ChatCommand::Tools => self.tools().await,
            ChatCommand::Attach(path) => self.attach(path.as_deref()),
            ChatCommand::Detach(name) => self.detach(name.as_deref()),
            ChatCommand::Rate(thumb, comment) => self.rate(thumb, comment).await,
            ChatCommand::Show => self.show_calls(),
            ChatCommand::Cancel => self.cancel_elsewhere().await,
            ChatCommand::Resume(_) | ChatCommand::Edit | ChatCommand::Quit => Ok(()),
        }
    }

    fn begin_anew(&mut self, agent: Option<AgentName>) -> Result<(), Failure> {
        self.conversation = Conversation::begin(&self.user, agent);
        if let Some(desk) = &mut self.desk {
            desk.undecided.clear();
            desk.calls.clear();
        }
        self.aside("a new conversation; /resume goes back to the last")
    }

    async fn list(&mut self) -> Result<(), Failure> {
        let client = self.gateways.current().clone();
        let all = conversation::recent(&client, &self.user, self.agent.as_ref()).await?;
        if all.is_empty() {
            return self.aside("there are no conversations yet");
        }
        let mut lines = Vec::new();
        for (at, (key, row)) in all.iter().take(LISTED).enumerate() {
            let here = if self.conversation.key() == Some(key) { "*" } else { " " };
            lines.push(format!("{here}{:>2}  {}", at + 1, row_words(row)));
        }
        lines.push("/resume N continues one".to_owned());
        if let Some(desk) = &mut self.desk {
            desk.listed = all.into_iter().take(LISTED).map(|(key, _)| key).collect();
        }
        self.aside(&lines.join("\n"))
    }

    /// Turns to a conversation by number or key; without one, to the last but this.
    async fn resume(&mut self, which: Option<String>) -> Result<Option<HistoryView>, Failure> {
        let number = which.as_deref().and_then(|text| text.parse::<usize>().ok());
        let key: SessionKey = match (&which, number) {
            (Some(_), Some(number)) => {
                let listed =
                    self.desk.as_ref().and_then(|desk| desk.listed.get(number.wrapping_sub(1)));
                listed.cloned().ok_or_else(|| {
                    Failure::new(Exit::Usage, "usage", format!("there is no conversation {number}"))
                        .hint("/sessions lists them")
                })?
            }
            (Some(text), None) => text.parse().map_err(|error: ParseIdError| {
                Failure::new(Exit::Usage, "usage", error.to_string())
                    .hint("/sessions lists conversations by number")
            })?,
            (None, _) => {
                let client = self.gateways.current();
                let all = conversation::recent(client, &self.user, self.agent.as_ref()).await?;
                let other = all.into_iter().find(|(key, _)| self.conversation.key() != Some(key));
                let Some((key, _)) = other else {
                    self.aside("there is no other conversation")?;
                    return Ok(None);
                };
                key
            }
        };
        let history = conversation::history(self.gateways.current(), &key.to_string()).await?;
        let before = std::mem::replace(&mut self.conversation, Conversation::Known(key));
        if let Err(failure) = self.look_up_agent().await {
            self.conversation = before;
            return Err(failure);
        }
        if let Some(desk) = &mut self.desk {
            desk.undecided.clear();
            desk.forget_choices();
        }
        Ok(Some(history))
    }

    async fn choose_agent(&mut self, wanted: Option<String>) -> Result<(), Failure> {
        let list = self.gateways.current().call(calls::AgentsList, &Nothing {}).await?;
        let names: Vec<&str> = list.agents.iter().map(|agent| agent.agent.as_str()).collect();
        let Some(wanted) = wanted else {
            let desk = self.desk.as_ref();
            let now = desk.and_then(|desk| desk.agent.as_ref()).map(|desk| desk.agent.to_string());
            let now = now.unwrap_or_else(|| "not known yet".to_owned());
            return self.aside(&format!("the agent is {now}; available: {}", names.join(", ")));
        };
        let Some(found) = list.agents.iter().find(|agent| agent.agent.as_str() == wanted) else {
            let what = format!("there is no agent {}", exact(&wanted));
            return Err(Failure::new(Exit::Usage, "usage", what)
                .hint(format!("available agents: {}", names.join(", "))));
        };
        self.agent = Some(found.agent.clone());
        if let Some(desk) = &mut self.desk {
            desk.agent = Some(found.clone());
            desk.forget_choices();
        }
        self.begin_anew(self.agent.clone())
    }

    async fn tools(&mut self) -> Result<(), Failure> {
        let Some(agent) = self.desk.as_ref().and_then(|desk| desk.agent.clone()) else {
            return self.aside("the agent is not known until the first answer");
        };
        let params = AgentParams { agent: agent.agent.to_string() };
        let client = self.gateways.current();
        let tools = client.call(calls::AgentsShow, &params).await?.tools;
        if tools.is_empty() {
            return self.aside(&format!("the agent {} has no tools", agent.agent));
        }
        let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
        self.aside(&format!("tools of the agent {}: {}", agent.agent, names.join(", ")))
    }

    fn attach(&mut self, path: Option<&str>) -> Result<(), Failure> {
        let Some(path) = path else {
            let files = self.desk.as_ref().map_or(&[][..], |desk| &desk.attached);
            return self.aside(&attach::listed(files));
        };
        let path = path.trim_matches(['"', '\'']);
        let path = paths::resolve(&PathBuf::from(path), None, self.context.loaded.env());
        let file = match attach::read(&path) {
            Ok(file) => file,
            Err(why) => return Err(Failure::new(Exit::Failed, "local_file", why)),
        };
        let words = attach::listed(std::slice::from_ref(&file));
        if let Some(desk) = &mut self.desk {
            desk.attached.push(file);
            if let Some(why) = attach::too_many(&desk.attached) {
                desk.attached.pop();
                return Err(Failure::new(Exit::Failed, "local_file", why));
            }
        }
        self.aside(&words)
    }

    fn detach(&mut self, name: Option<&str>) -> Result<(), Failure> {
        let files = self.desk.as_mut().map(|desk| &mut desk.attached);
        let words = files.map_or_else(|| attach::listed(&[]), |files| attach::detach(files, name));
        self.aside(&words)
    }

    fn show_calls(&mut self) -> Result<(), Failure> {
        let Some(desk) = &mut self.desk else { return Ok(()) };
        let from = desk.calls.len().saturating_sub(SHOWN);
        let texts: Vec<String> = desk.calls.iter().skip(from).map(call_words).collect();
        if texts.is_empty() {
            return self.aside("no tool was called in this chat yet");
        }
        desk.screen.say(TextRole::Aside, &texts.join("\n\n"))
    }

    /// Has the line written in an editor; Enter sends it then.
    async fn edit(&mut self) -> Result<(), Failure> {
        let env = self.context.loaded.env();
        let editor = env.get("VISUAL").or_else(|| env.get("EDITOR")).unwrap_or("vi").to_owned();
        let (Some(desk), Some(tty)) = (&mut self.desk, self.person.tty()) else { return Ok(()) };
        let failed = |what: &str, error: std::io::Error| {
            Failure::new(Exit::Failed, "local_file", format!("cannot {what}: {error}"))
        };
        let name = format!("clawnode-{}.md", ulid::Ulid::generate().to_string().to_lowercase());
        let path = std::env::temp_dir().join(name);
        let mut options = std::fs::OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let mut file = options.open(&path).map_err(|error| failed("make a file to edit", error))?;
        file.write_all(desk.editor.text().as_bytes()).map_err(|error| failed("write it", error))?;
        tty.leave();
        // By the shell, because the variable may have options.
        let command = format!("{editor} \"$1\"");
        let ran = tokio::process::Command::new("/bin/sh")
            .args(["-c", &command, "sh"])
            .arg(&path)
            .status()
            .await;
        let entered = tty.enter();
        // Ctrl-C in the editor was the editor's.
        self.signals.forget_interrupts();
        entered.map_err(|error| failed("take the terminal back", error))?;
        let status = ran.map_err(|error| failed(&format!("start `{editor}`"), error))?;
        let kept = path.display().to_string();
        if !status.success() {
            let words = format!(
                "`{}` ended with {status}; your edited text was not used, and is in {kept}",
                exact(&editor)
            );
            return self.aside(&words);
        }
        let text = std::fs::File::open(&path).and_then(|file| {
            let mut text = String::new();
            file.take(MESSAGE_BYTES as u64 + 1).read_to_string(&mut text)?;
            Ok(text)
        });
        let text = text
            .map_err(|error| failed(&format!("read the edited text, which is in {kept}"), error))?;
        if text.trim_end().len() > MESSAGE_BYTES {
            return self.aside(&format!("the text is over 1 MiB; send it in parts from {kept}"));
        }
        drop(std::fs::remove_file(&path));
        desk.editor.set(text.trim_end());
        self.aside("Enter sends it")
    }

    /// Cancels what runs in this conversation without this chat.
    async fn cancel_elsewhere(&mut self) -> Result<(), Failure> {
        let Some(key) = self.conversation.key().cloned() else {
            return self.aside("nothing runs in this conversation");
        };
        let client = self.gateways.current().clone();
        let history = conversation::history(&client, &key.to_string()).await?;
        let open = conversation::open(&key, &history);
        if open.is_empty() {
            return self.aside("nothing runs in this conversation");
        }
        for open_turn in &open {
            let params = ChatCancel { session: key.to_string(), turn: open_turn.turn.to_string() };
            client.call(calls::ChatCancel, &params).await?;
        }
        if let Some(desk) = &mut self.desk {
            desk.undecided.clear();
        }
        self.aside("cancelled")
    }
}

fn row_words(row: &SessionRow) -> String {
    let running = if row.state == "idle" { String::new() } else { format!(" [{}]", row.state) };
    let title =
        row.title.as_deref().filter(|title| !title.is_empty()).unwrap_or("(nothing was said)");
    format!("{}  {title}{running}", time(row.updated))
}

/// All of a call.
fn call_words(call: &DeskCall) -> String {
    let arguments = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(value) => format!("{value:#}"),
        Err(_) => call.arguments.clone(),
    };
    let result = match &call.result {
        None => "it has not ended".to_owned(),
        Some((text, true)) => format!("failed: {text}"),
        Some((text, false)) => text.clone(),
    };
    let lines = format!("{arguments}\n{result}");
    let indented: Vec<String> = clean(&lines).lines().map(|line| format!("  {line}")).collect();
    format!("{}\n{}", exact(&call.name), indented.join("\n"))
}
