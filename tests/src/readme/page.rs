//! What of a README can run: its shell blocks, and the lines that a person says in a chat.

/// Languages of blocks that are run.
const RUN: [&str; 5] = ["sh", "bash", "shell", "console", "python"];

/// A block that can run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// The number of its first line.
    pub line: usize,
    /// What its fence says of it.
    pub language: String,
    /// Its lines.
    pub text: String,
}

// === impl Block ===

impl Block {
    /// Its first line, which names it.
    pub fn begins(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }

    /// Whether it runs: by its language or, without one, by a line that calls the program.
    fn runs(&self) -> bool {
        let calls = |line: &str| line.starts_with("$ ") || line.starts_with("clawnode ");
        RUN.contains(&self.language.as_str())
            || self.language.is_empty() && self.text.lines().any(calls)
    }
}

/// The blocks of a README that can run, in their order.
pub fn blocks(readme: &str) -> Vec<Block> {
    fenced(readme).into_iter().filter(Block::runs).collect()
}

/// The lines that the first block of a chat says to an agent. Text after two spaces or more
/// explains a line, and is not said.
pub fn chat_lines(readme: &str) -> Vec<String> {
    let said = |block: &Block| {
        let lines = block.text.lines().filter(|line| !line.starts_with(' '));
        lines.filter_map(|line| line.split("  ").next().map(str::to_owned)).collect()
    };
    let talk = |block: &&Block| block.language.is_empty() && block.text.contains("/tool ");
    fenced(readme).iter().find(talk).map(said).unwrap_or_default()
}

/// All blocks.
pub(super) fn fenced(readme: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut open: Option<Block> = None;
    for (number, line) in (1..).zip(readme.lines()) {
        match (line.trim_start().strip_prefix("```"), open.take()) {
            (Some(_), Some(block)) => found.push(block),
            (Some(language), None) => {
                let language = language.trim().to_owned();
                open = Some(Block { line: number + 1, language, text: String::new() });
            }
            (None, Some(mut block)) => {
                block.text.push_str(line);
                block.text.push('\n');
                open = Some(block);
            }
            (None, None) => {}
        }
    }
    found.extend(open);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const README: &str = "# A\n\n```sh\na --b\nc\n```\n\n```toml\n[d]\n```\n\n  ```\n  x\n  ```\n\n\
        ```\nclawnode run\n```\n\n```\nhi  greets\n/tool a {\"b\":1}   calls\n      further\n```\n";

    #[test]
    fn shell_blocks_are_found_with_their_lines() {
        let found = blocks(README);
        let seen: Vec<(usize, &str)> =
            found.iter().map(|block| (block.line, block.text.as_str())).collect();
        assert_eq!(seen, [(4, "a --b\nc\n"), (17, "clawnode run\n")]);
        assert_eq!(found.first().map(Block::begins), Some("a --b"));
    }

    #[test]
    fn a_fence_that_is_never_closed_is_a_block() {
        assert_eq!(blocks("```sh\na\n").len(), 1);
    }

    #[test]
    fn chat_lines_are_said_without_what_explains_them() {
        assert_eq!(chat_lines(README), ["hi", "/tool a {\"b\":1}"]);
        assert!(chat_lines("no block").is_empty());
    }
}
