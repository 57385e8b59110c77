//! How an agent's requests are assembled: the files of its system prompt, and how much of a conversation they show.

use std::{
    fs::File,
    io::{self, ErrorKind, Read},
    path::{Path, PathBuf},
};

use super::agents::{AgentSection, ContextChoice};
use clawnode_proto::{
    context::{ContextMode, ContextRules, ContextSettings},
    limits::{KEPT_RECENT_TURNS, SOUL_BYTES},
};

/// The fewest tokens of a context: less has no room for a short prompt and one turn.
const CONTEXT_TOKENS_LEAST: u32 = 256;
/// As many as a session keeps in any case.
const RECENT_TURNS_MAX: usize = KEPT_RECENT_TURNS;
/// The file beside a soul that follows it.
const DIRECTIVES: &str = "AGENTS.md";

/// What is wrong with such settings: the key, what, and what to do.
pub(super) type ContextFault = (&'static str, String, String);

impl AgentSection {
    /// The rules of its requests; none are those of version 1.
    pub fn context_settings(&self) -> Option<ContextSettings> {
        let mode = match self.context {
            ContextChoice::Auto => ContextMode::Auto,
            ContextChoice::Bounded => ContextMode::Bounded,
            ContextChoice::Window => return None,
        };
        let (tokens, recent_turns) = (self.context_tokens, self.recent_turns);
        Some(ContextSettings { rules: ContextRules::V3, mode, tokens, recent_turns })
    }

    /// The system prompt, from wherever it is; empty if there is none. What is beside a soul may not be there.
    pub fn prompt(&self) -> io::Result<String> {
        let Some(path) = &self.soul else { return Ok(self.system.clone().unwrap_or_default()) };
        let mut text = read(path, SOUL_BYTES)?;
        let Some(beside) = directives(path) else { return Ok(text) };
        let room = SOUL_BYTES.saturating_sub(text.len() as u64);
        match read(&beside, room) {
            Ok(more) => {
                let seam = if text.is_empty() || more.is_empty() { "" } else { "\n\n" };
                text = [text.as_str(), seam, more.as_str()].concat();
                Ok(text)
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(text),
            Err(error) => {
                let what = format!("`{DIRECTIVES}` beside it: {error}");
                Err(io::Error::new(error.kind(), what))
            }
        }
    }

    /// The files of its system prompt. The last one may not be there.
    pub fn prompt_files(&self) -> impl Iterator<Item = PathBuf> {
        let beside = self.soul.as_deref().and_then(directives);
        self.soul.iter().cloned().chain(beside)
    }

    pub(super) fn context_fault(&self) -> Option<ContextFault> {
        let (tokens, turns) = (self.context_tokens, self.recent_turns);
        if tokens < CONTEXT_TOKENS_LEAST {
            let what = format!("{tokens} is too few: no conversation fits");
            let hint = format!("write {CONTEXT_TOKENS_LEAST} or more, such as 5000");
            return Some(("context_tokens", what, hint));
        }
        if !(1..=RECENT_TURNS_MAX).contains(&usize::try_from(turns).unwrap_or(usize::MAX)) {
            let what = format!("{turns} is not in the range 1 to {RECENT_TURNS_MAX}");
            let hint = "write a number in this range; older turns are shown, too, if they fit";
            return Some(("recent_turns", what, hint.to_owned()));
        }
        None
    }
}

/// The file beside a soul that follows it. One that is the soul itself is not read twice.
fn directives(soul: &Path) -> Option<PathBuf> {
    let is_itself = soul.file_name().is_some_and(|name| name == DIRECTIVES);
    (!is_itself).then(|| soul.with_file_name(DIRECTIVES))
}

fn read(path: &Path, most: u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    File::open(path)?.take(most + 1).read_to_end(&mut bytes)?;
    // Before the bytes are read as text: what is cut may end within a character.
    if bytes.len() as u64 > most {
        let what = format!("a system prompt has at most {SOUL_BYTES} bytes");
        return Err(io::Error::other(what));
    }
    String::from_utf8(bytes)
        .map_err(|_invalid| io::Error::new(ErrorKind::InvalidData, "it is not UTF-8 text"))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn what_is_beside_a_soul_follows_it_once() {
        let dir = tempfile::tempdir().unwrap();
        let soul = |name: &str| {
            let soul = Some(dir.path().join(name));
            AgentSection { soul, ..AgentSection::default() }
        };
        let write = |name: &str, text: &str| fs::write(dir.path().join(name), text).unwrap();
        assert_eq!(soul("SOUL.md").prompt().unwrap_err().kind(), ErrorKind::NotFound);
        write("SOUL.md", "Be brief.");
        assert_eq!(soul("SOUL.md").prompt().unwrap(), "Be brief.");
        write("AGENTS.md", "Use tabs.");
        assert_eq!(soul("SOUL.md").prompt().unwrap(), "Be brief.\n\nUse tabs.");
        assert_eq!(soul("AGENTS.md").prompt().unwrap(), "Use tabs.");
        assert_eq!(soul("AGENTS.md").prompt_files().count(), 1);
        write("SOUL.md", "");
        assert_eq!(soul("SOUL.md").prompt().unwrap(), "Use tabs.");
        assert_eq!(AgentSection::default().prompt().unwrap(), "");
    }

    /// The limit is of both files, and what is no text is refused.
    #[test]
    fn a_soul_that_is_too_large_or_no_text_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("SOUL.md");
        let agent = AgentSection { soul: Some(path.clone()), ..AgentSection::default() };
        let half = "x".repeat(usize::try_from(SOUL_BYTES).unwrap() / 2);
        fs::write(&path, &half).unwrap();
        fs::write(dir.path().join("AGENTS.md"), &half).unwrap();
        assert_eq!(agent.prompt().unwrap().len() as u64, SOUL_BYTES + 2);
        fs::write(dir.path().join("AGENTS.md"), half.clone() + "x").unwrap();
        let refused = agent.prompt().unwrap_err().to_string();
        assert!(refused.contains("`AGENTS.md`") && refused.contains("131072"), "{refused}");
        fs::write(&path, [half.as_str(), &half, "x"].concat()).unwrap();
        assert!(agent.prompt().is_err());
        // A text that is too large is no file of another kind, wherever it is cut.
        fs::write(&path, "é".repeat(half.len() + 1)).unwrap();
        assert!(agent.prompt().unwrap_err().to_string().contains("131072"));
        fs::write(&path, [0xff, 0xfe]).unwrap();
        let refused = agent.prompt().unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::InvalidData);
        assert_eq!(refused.to_string(), "it is not UTF-8 text");
    }
}
