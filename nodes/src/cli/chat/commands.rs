//! What begins with a slash. Pure.
//!
//! A line that begins with `/` is a command, or is answered with the commands there are: it is not
//! sent to a model by mistake. `//` sends the rest with one slash, and so does a space before it.
//! The demo model reads lines `/tool NAME {…}` as calls of tools; they go to it, and to no other.

use clawnode_proto::feedback::Thumb;

/// What a line that begins with a slash asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatCommand {
    Help,
    New,
    Sessions,
    Resume(Option<String>),
    Model(Option<String>),
    Reasoning(Option<String>),
    Agent(Option<String>),
    Lane(Option<String>),
    Allow,
    Tools,
    Attach(Option<String>),
    Detach(Option<String>),
    /// What the person thinks of the last turn, and why.
    Rate(Thumb, Option<String>),
    Show,
    Edit,
    Cancel,
    Quit,
}

/// What a line is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ChatLine {
    Say(String),
    Do(ChatCommand),
    /// A word that is no command, and what to say about it.
    Unknown(String),
}

/// Name, argument, and what it does.
const ALL: [(&str, &str, &str); 18] = [
    ("/help", "", "show this"),
    ("/new", "", "begin a new conversation"),
    ("/sessions", "", "list your latest conversations"),
    ("/resume", "[KEY]", "continue a conversation by number or key (default: the last)"),
    ("/model", "[MODEL]", "show the model, or keep another (`default`: the agent's own)"),
    ("/reasoning", "[HOW]", "keep how much the model thinks: off, low, medium, high, N"),
    ("/lane", "[LANE]", "show the lane, or choose interactive, background or default"),
    ("/allow", "", "allow more of a budget that this conversation waits for"),
    ("/agent", "[NAME]", "show the agent, or begin a new conversation with another"),
    ("/tools", "", "show the agent and its tools"),
    ("/attach", "[FILE]", "attach a picture, PDF, sound or text file, or list them"),
    ("/detach", "[FILE]", "take an attached file back, or all of them"),
    ("/good", "[COMMENT]", "say that the last turn was good: what it recalled matters more"),
    ("/bad", "[COMMENT]", "say that the last turn was bad: what it recalled matters less"),
    ("/show", "", "show the last tool calls in full"),
    ("/edit", "", "write the message in $VISUAL or $EDITOR"),
    ("/cancel", "", "cancel a turn that runs elsewhere; Ctrl-C cancels yours"),
    ("/quit", "", "leave (also Ctrl-D, exit)"),
];

/// What the demo model reads as calls.
const DEMO: &str = "/tool ";

/// What a line is; `demo` if the demo model gets it.
pub(super) fn read(text: &str, demo: bool) -> ChatLine {
    let said = text.trim_end();
    if let Some(rest) = said.strip_prefix("//").filter(|rest| !rest.contains('\n')) {
        return ChatLine::Say(format!("/{rest}"));
    }
    if matches!(said, "exit" | "quit") {
        return ChatLine::Do(ChatCommand::Quit);
    }
    let first = said.split_whitespace().next().unwrap_or_default();
    // A path, a comment, several lines: no word of ours looks so.
    let word = first.strip_prefix('/').filter(|_| said.starts_with('/'));
    let Some(word) = word else { return ChatLine::Say(said.trim_start().to_owned()) };
    if demo && said.starts_with(DEMO) {
        return ChatLine::Say(said.to_owned());
    }
    if said.contains('\n') {
        let known = ALL.iter().any(|(name, ..)| *name == first);
        // A text of several lines that begins with a path is a text.
        return if known {
            ChatLine::Unknown(format!(
                "the command {first} takes one line; begin with `/{first}` to send this as text"
            ))
        } else {
            ChatLine::Say(said.to_owned())
        };
    }
    let rest = said.strip_prefix(first).unwrap_or_default().trim();
    let argument = (!rest.is_empty()).then(|| rest.to_owned());
    ChatLine::Do(match word {
        "help" | "?" | "h" => ChatCommand::Help,
        "new" | "clear" => ChatCommand::New,
        "sessions" => ChatCommand::Sessions,
        "resume" => ChatCommand::Resume(argument),
        "model" => ChatCommand::Model(argument),
        "reasoning" => ChatCommand::Reasoning(argument),
        "agent" => ChatCommand::Agent(argument),
        "lane" => ChatCommand::Lane(argument),
        "allow" => ChatCommand::Allow,
        "tools" => ChatCommand::Tools,
        "attach" => ChatCommand::Attach(argument),
        "detach" => ChatCommand::Detach(argument),
        "good" => ChatCommand::Rate(Thumb::Up, argument),
        "bad" => ChatCommand::Rate(Thumb::Down, argument),
        "show" => ChatCommand::Show,
        "edit" => ChatCommand::Edit,
        "cancel" => ChatCommand::Cancel,
        "quit" | "exit" | "q" | "bye" => ChatCommand::Quit,
        _ => return ChatLine::Unknown(unknown(first)),
    })
}

fn unknown(word: &str) -> String {
    let near = ALL.iter().map(|(name, ..)| *name).filter(|name| distance(name, word) <= 2);
    let near = near.min_by_key(|name| distance(name, word));
    let meant = near.map_or_else(String::new, |name| format!(" Did you mean {name}?"));
    let slash = format!("to send it as it is, begin with a space or with `/{word}`");
    if word == DEMO.trim() {
        return format!("only the demo model reads {word}; {slash}");
    }
    format!("there is no command {word}.{meant} /help lists them; {slash}")
}

/// What the beginning of a line may become.
pub(super) fn complete(before: &str) -> Vec<String> {
    if !before.starts_with('/') {
        return Vec::new();
    }
    ALL.iter()
        .map(|(name, ..)| *name)
        .filter(|name| name.starts_with(before))
        .map(str::to_owned)
        .collect()
}

/// What `/help` says.
pub(super) fn help() -> String {
    let mut lines: Vec<String> = ALL
        .iter()
        .map(|(name, argument, what)| {
            format!("{:<16} {what}", format!("{name} {argument}").trim_end())
        })
        .collect();
    lines.push(String::new());
    lines.extend(
        [
            "Enter            send",
            "Alt-Enter        insert a new line (also: \\ at the end, or lines within \"\"\")",
            "Ctrl-C           cancel the running turn; again: leave",
            "Up, Down, Tab    show earlier messages; complete a command",
            "//text           send a text that begins with a slash",
        ]
        .map(str::to_owned),
    );
    lines.join("\n")
}

/// How many characters differ (Levenshtein).
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().take(64).collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (at, c) in one.chars().enumerate() {
        let mut corner = at;
        if let Some(first) = row.first_mut() {
            *first = at + 1;
        }
        for (to, d) in other.iter().enumerate() {
            let changed = corner + usize::from(c != *d);
            let (left, above) = (row.get(to).copied(), row.get(to + 1).copied());
            let least = [left.unwrap_or(0) + 1, above.unwrap_or(0) + 1, changed];
            corner = above.unwrap_or(0);
            if let Some(cell) = row.get_mut(to + 1) {
                *cell = least.into_iter().min().unwrap_or(changed);
            }
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_read_and_unknown_ones_are_not_sent() {
        for (text, command) in [
            ("/help", ChatCommand::Help),
            ("exit", ChatCommand::Quit),
            ("/quit ", ChatCommand::Quit),
            ("/resume", ChatCommand::Resume(None)),
            ("/attach a b.txt", ChatCommand::Attach(Some("a b.txt".to_owned()))),
            ("/detach", ChatCommand::Detach(None)),
            ("/good", ChatCommand::Rate(Thumb::Up, None)),
            ("/bad it is late", ChatCommand::Rate(Thumb::Down, Some("it is late".to_owned()))),
            ("/lane background", ChatCommand::Lane(Some("background".to_owned()))),
        ] {
            assert_eq!(read(text, false), ChatLine::Do(command), "{text}");
        }
        let ChatLine::Unknown(words) = read("/sesions", false) else { panic!("it is a command") };
        assert!(
            words.contains("Did you mean /sessions?") && words.contains("`//sesions`"),
            "{words}"
        );
        assert!(matches!(read("/", true), ChatLine::Unknown(_)));
        assert!(matches!(read("/sessions\n/resume 2", true), ChatLine::Unknown(_)));
    }

    #[test]
    fn what_begins_with_a_slash_can_be_said() {
        for (text, said) in [
            ("//etc/passwd is what?", "/etc/passwd is what?"),
            (" /etc", "/etc"),
            ("what is /help?", "what is /help?"),
            ("/etc/passwd:\nroot", "/etc/passwd:\nroot"),
            ("exit the loop", "exit the loop"),
        ] {
            assert_eq!(read(text, false), ChatLine::Say(said.to_owned()));
        }
    }

    #[test]
    fn calls_for_the_demo_go_to_the_demo_alone() {
        let call = "/tool file_write {\"path\":\"a\"}";
        assert_eq!(read(call, true), ChatLine::Say(call.to_owned()));
        let ChatLine::Unknown(words) = read(call, false) else { panic!("it was sent") };
        assert!(words.contains("only the demo model"), "{words}");
        assert_eq!(read("/tools", true), ChatLine::Do(ChatCommand::Tools));
    }

    #[test]
    fn every_command_that_is_listed_is_one() {
        for (name, ..) in ALL {
            assert!(matches!(read(name, false), ChatLine::Do(_)), "{name}");
            assert!(complete(name).contains(&name.to_owned()));
        }
        assert!(complete("hel").is_empty());
    }

    #[test]
    fn words_that_are_near_are_told_apart() {
        for (one, other, far) in [("", "", 0), ("new", "new", 0), ("/new", "/nwe", 2), ("a", "", 1)]
        {
            assert_eq!(distance(one, other), far);
        }
    }
}
