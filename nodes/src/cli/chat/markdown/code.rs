//! The colours of code in a fence: comments, strings, numbers and keywords of the languages that models
//! write most. A line is coloured when it is whole; what a line cannot say (a comment or a string that
//! goes on) is kept for the next one.
//!
//! A grammar of each language (as `syntect` has them) would add 2.4 MB to the program and 2 ms a line
//! in a debug build, for colours that are gone with the window.

use super::flow::{ADDED, DIM, HEAD, KEYWORD, REMOVED, STRING};

/// Colours lines of one language.
#[derive(Debug)]
pub(super) struct Colors {
    language: &'static Language,
    open: OpenSpan,
}

/// What the line before left open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OpenSpan {
    Nothing,
    Comment,
    /// A string that ends with so many of these quotes.
    Text(char, usize),
}

/// How a language is written.
#[derive(Debug)]
struct Language {
    /// What a fence calls it.
    names: &'static [&'static str],
    /// What a comment begins with that ends with its line.
    comment: &'static str,
    /// Whether comments are between `/*` and `*/` too.
    has_blocks: bool,
    quotes: &'static [char],
    /// Whether `'` encloses one character, and may also occur alone: `&'a str`.
    has_chars: bool,
    /// Whether three quotes begin a string of several lines.
    has_triple: bool,
    keywords: &'static str,
}

const C_QUOTES: &[char] = &['"', '\''];
const JS_QUOTES: &[char] = &['"', '\'', '`'];

const LANGUAGES: &[Language] = &[
    Language {
        names: &["rust", "rs"],
        comment: "//",
        has_blocks: true,
        quotes: C_QUOTES,
        has_chars: true,
        has_triple: false,
        keywords: "as async await break const continue crate dyn else enum extern false fn for if impl \
                   in let loop match mod move mut pub ref return self Self static struct super trait \
                   true type union unsafe use where while",
    },
    Language {
        names: &["python", "py", "python3", "pycon"],
        comment: "#",
        has_blocks: false,
        quotes: C_QUOTES,
        has_chars: false,
        has_triple: true,
        keywords: "and as assert async await break case class continue def del elif else except False \
                   finally for from global if import in is lambda match None nonlocal not or pass \
                   raise return True try while with yield",
    },
    Language {
        names: &["javascript", "js", "jsx", "typescript", "ts", "tsx", "mjs"],
        comment: "//",
        has_blocks: true,
        quotes: JS_QUOTES,
        has_chars: false,
        has_triple: false,
        keywords: "abstract any as async await boolean break case catch class const continue declare \
                   default delete do else enum export extends false finally for from function get if \
                   implements import in instanceof interface let new null number of private protected \
                   public readonly return set static string super switch this throw true try type \
                   typeof undefined var void while yield",
    },
    Language {
        names: &["go", "golang"],
        comment: "//",
        has_blocks: true,
        quotes: JS_QUOTES,
        has_chars: true,
        has_triple: false,
        keywords: "break case chan const continue default defer else fallthrough false for func go goto \
                   if import interface iota map nil package range return select struct switch true \
                   type var",
    },
    Language {
        names: &["c", "h", "cpp", "c++", "cc", "hpp", "objc", "zig"],
        comment: "//",
        has_blocks: true,
        quotes: C_QUOTES,
        has_chars: true,
        has_triple: false,
        keywords: "alignas auto bool break case catch char class const constexpr continue default \
                   delete do double else enum explicit extern false float for friend goto if inline \
                   int long namespace new noexcept nullptr operator private protected public return \
                   short signed sizeof static struct switch template this throw true try typedef \
                   typename union unsigned using virtual void volatile while",
    },
    Language {
        names: &["java", "kotlin", "kt", "csharp", "cs", "swift", "scala", "dart", "php"],
        comment: "//",
        has_blocks: true,
        quotes: C_QUOTES,
        has_chars: true,
        has_triple: true,
        keywords: "abstract as async await boolean break byte case catch char class const continue \
                   data default do double else enum extends false final finally float for foreach fun \
                   func function guard if implements import in int interface internal is let long \
                   namespace new null object override package private protected public readonly return \
                   short static string struct super switch this throw throws true try using val var \
                   void when where while",
    },
    Language {
        names: &["sh", "bash", "zsh", "shell", "console", "fish", "dockerfile", "docker"],
        comment: "#",
        has_blocks: false,
        quotes: C_QUOTES,
        has_chars: false,
        has_triple: false,
        keywords: "case do done elif else esac exit export fi for function if in local return set then \
                   until while ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM RUN USER VOLUME WORKDIR",
    },
    Language {
        names: &["ruby", "rb", "perl", "elixir", "ex", "r", "nix", "make", "makefile"],
        comment: "#",
        has_blocks: false,
        quotes: C_QUOTES,
        has_chars: false,
        has_triple: false,
        keywords: "and begin break case class def do else elsif end ensure false fn for function if in \
                   inherit let module my next nil not or rescue return self sub super then true unless \
                   until use when while with yield",
    },
    Language {
        names: &["sql", "postgresql", "mysql", "sqlite"],
        comment: "--",
        has_blocks: true,
        quotes: &['\''],
        has_chars: false,
        has_triple: false,
        keywords: "ADD ALL ALTER AND AS ASC BEGIN BETWEEN BY CASE COMMIT CREATE DEFAULT DELETE DESC \
                   DISTINCT DROP ELSE END EXISTS FOREIGN FROM FULL GROUP HAVING IF IN INDEX INNER \
                   INSERT INTO IS JOIN KEY LEFT LIKE LIMIT NOT NULL ON OR ORDER OUTER PRIMARY \
                   REFERENCES RETURNING RIGHT SELECT SET TABLE THEN UNION UNIQUE UPDATE USING VALUES \
                   VIEW WHEN WHERE WITH add all alter and as asc begin between by case commit create \
                   default delete desc distinct drop else end exists foreign from full group having if \
                   in index inner insert into is join key left like limit not null on or order outer \
                   primary references returning right select set table then union unique update using \
                   values view when where with",
    },
    Language {
        names: &["lua", "haskell", "hs"],
        comment: "--",
        has_blocks: false,
        quotes: &['"'],
        has_chars: false,
        has_triple: false,
        keywords: "and break case class data deriving do else elseif end false for function if import \
                   in instance let local module newtype nil not of or repeat return then true type \
                   until where while",
    },
    Language {
        names: &["toml", "yaml", "yml", "ini", "conf"],
        comment: "#",
        has_blocks: false,
        quotes: C_QUOTES,
        has_chars: false,
        has_triple: true,
        keywords: "true false null yes no on off",
    },
    Language {
        names: &["json", "jsonc", "json5", "jsonl"],
        comment: "//",
        has_blocks: true,
        quotes: &['"'],
        has_chars: false,
        has_triple: false,
        keywords: "true false null",
    },
    Language {
        names: &["diff", "patch"],
        comment: "",
        has_blocks: false,
        quotes: &[],
        has_chars: false,
        has_triple: false,
        keywords: "",
    },
];

// === impl Colors ===

impl Colors {
    /// For the language that a fence names; `None` if it is not known.
    pub(super) fn of(name: &str) -> Option<Self> {
        // Also ```` ```rust,ignore ````, ```` ```{.python} ```` and ```` ```js title="a" ````.
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '+';
        let name = name.trim_start_matches(['{', '.']);
        let name = name.split(|c| !is_part(c)).next()?.to_ascii_lowercase();
        let language = LANGUAGES.iter().find(|language| language.names.contains(&name.as_str()))?;
        Some(Self { language, open: OpenSpan::Nothing })
    }

    /// The characters of the next line, each with its style.
    pub(super) fn line(&mut self, line: &[char]) -> Vec<(char, u16)> {
        if self.language.comment.is_empty() {
            return changed(line);
        }
        let mut out = Vec::with_capacity(line.len());
        while let Some(rest) = line.get(out.len()..).filter(|rest| !rest.is_empty()) {
            let (taken, style) = self.next(rest, out.last().map(|(c, _)| *c));
            out.extend(rest.iter().take(taken.max(1)).map(|c| (*c, style)));
        }
        if matches!(self.open, OpenSpan::Text(quote, 1) if quote != '`') {
            self.open = OpenSpan::Nothing;
        }
        out
    }

    /// How many characters are of one style, and of which.
    fn next(&mut self, rest: &[char], before: Option<char>) -> (usize, u16) {
        let language = self.language;
        match self.open {
            OpenSpan::Comment => return (self.closed(rest, "*/", 0), DIM),
            OpenSpan::Text(quote, many) => return (self.text(rest, quote, many, 0), STRING),
            OpenSpan::Nothing => {}
        }
        // `#` begins a comment only where a word could begin: not in `$#` or `a#b`.
        let may_comment = language.comment != "#" || before.is_none_or(char::is_whitespace);
        if starts(rest, language.comment) && may_comment {
            return (rest.len(), DIM);
        }
        if language.has_blocks && starts(rest, "/*") {
            self.open = OpenSpan::Comment;
            return (self.closed(rest, "*/", 2), DIM);
        }
        let Some(&first) = rest.first() else { return (0, 0) };
        if language.quotes.contains(&first) {
            return self.quoted(rest, first);
        }
        if !is_word(first) {
            return (1, 0);
        }
        let word: String = rest.iter().take_while(|c| is_word(**c)).collect();
        let many = word.chars().count();
        if first.is_ascii_digit() {
            let is_part = |at: &usize| {
                let next = rest.get(at + 1).is_some_and(char::is_ascii_digit);
                rest.get(*at).is_some_and(|c| is_word(*c) || (*c == '.' && next))
            };
            return ((0..rest.len()).take_while(is_part).count(), HEAD);
        }
        let is_keyword = language.keywords.split(' ').any(|keyword| keyword == word);
        (many, if is_keyword { KEYWORD } else { 0 })
    }

    /// A string begins, or what looks like one: a lifetime, an apostrophe.
    fn quoted(&mut self, rest: &[char], quote: char) -> (usize, u16) {
        let is_char = rest.get(1) == Some(&'\\') || rest.get(2) == Some(&quote);
        if quote == '\'' && self.language.has_chars && !is_char {
            return (1, 0);
        }
        let same = rest.iter().take_while(|c| **c == quote).count();
        let many = if self.language.has_triple && same >= 3 { 3 } else { 1 };
        self.open = OpenSpan::Text(quote, many);
        let taken = self.text(rest, quote, many, many);
        if self.open != OpenSpan::Nothing && many == 1 && quote == '\'' {
            self.open = OpenSpan::Nothing;
            return (1, 0);
        }
        (taken, STRING)
    }

    /// Up to the end of a string that is open, from `at`.
    fn text(&mut self, rest: &[char], quote: char, many: usize, mut at: usize) -> usize {
        while let Some(&c) = rest.get(at) {
            if c == '\\' {
                at += 2;
                continue;
            }
            let end = rest.get(at..at + many).is_some_and(|run| run.iter().all(|c| *c == quote));
            if end {
                self.open = OpenSpan::Nothing;
                return at + many;
            }
            at += 1;
        }
        rest.len()
    }

    /// Up to the end of a comment that is open, from `at`.
    fn closed(&mut self, rest: &[char], end: &str, at: usize) -> usize {
        let found = (at..rest.len()).find(|&at| starts(rest.get(at..).unwrap_or_default(), end));
        match found {
            Some(at) => {
                self.open = OpenSpan::Nothing;
                at + end.len()
            }
            None => rest.len(),
        }
    }
}

/// A line of a difference.
fn changed(line: &[char]) -> Vec<(char, u16)> {
    let style = match line.first() {
        Some('+') => ADDED,
        Some('-') => REMOVED,
        Some('@') => HEAD,
        _ => 0,
    };
    line.iter().map(|c| (*c, style)).collect()
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn starts(rest: &[char], text: &str) -> bool {
    let mut chars = rest.iter();
    text.chars().all(|c| chars.next() == Some(&c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Each run of one style: a sign for the style, and the text.
    fn shown(name: &str, lines: &str) -> String {
        let mut colors = Colors::of(name).unwrap();
        let mut out = String::new();
        for line in lines.lines() {
            let line: Vec<char> = line.chars().collect();
            let mut last = 0;
            for (c, style) in colors.line(&line) {
                if style != last {
                    let sign = match style {
                        DIM => "‹c›",
                        STRING => "‹s›",
                        HEAD => "‹n›",
                        KEYWORD => "‹k›",
                        REMOVED => "‹-›",
                        _ => "‹›",
                    };
                    out.push_str(sign);
                    last = style;
                }
                out.push(c);
            }
            out.push('\n');
        }
        out
    }

    #[test]
    fn code_has_the_colors_of_its_parts() {
        for (name, source, colored) in [
            (
                "rust",
                "fn a<'a>(b: &'a str) -> char { 'x' } // fn\n/* let\nlet */ let c = 1.5 + 0x_ff;",
                "‹k›fn‹› a<'a>(b: &'a str) -> char { ‹s›'x'‹› } ‹c›// fn\n‹c›/* let\n‹c›let */‹› \
                 ‹k›let‹› c = ‹n›1.5‹› + ‹n›0x_ff‹›;\n",
            ),
            (
                "{.python}",
                "def f(): # in\n  return '''a\nif \"\"\" ''' + \"\\\"#\" # don't",
                "‹k›def‹› f(): ‹c›# in\n  ‹k›return‹› ‹s›'''a\n‹s›if \"\"\" '''‹› + ‹s›\"\\\"#\"‹› ‹c›# \
                 don't\n",
            ),
            (
                "sh",
                "if [ $# = 1 ]; then echo a#b; fi # x",
                "‹k›if‹› [ $# = ‹n›1‹› ]; ‹k›then‹› echo \
                                                           a#b; ‹k›fi‹› ‹c›# x\n",
            ),
            ("js title", "`a\nconst` \"open\nconst", "‹s›`a\n‹s›const`‹› ‹s›\"open\n‹k›const\n"),
            ("sql", "select 1 -- where", "‹k›select‹› ‹n›1‹› ‹c›-- where\n"),
            ("diff", "@@ 1\n-a\n+b\n c", "‹n›@@ 1\n‹-›-a\n‹s›+b\n c\n"),
        ] {
            assert_eq!(shown(name, source), colored, "{name}");
        }
        for unknown in ["", "text", "mermaid", "rusty"] {
            assert!(Colors::of(unknown).is_none(), "{unknown}");
        }
    }

    proptest! {
        /// A model writes what it likes: nothing is left out, added, or changed.
        #[test]
        fn every_character_stays(
            lines in proptest::collection::vec("[a-z0-9\"'`\\\\/*#\\-+ é日]{0,24}", 0..6),
            language in 0..LANGUAGES.len(),
        ) {
            let mut colors = Colors::of(LANGUAGES[language].names[0]).unwrap();
            for line in lines {
                let line: Vec<char> = line.chars().collect();
                let chars: Vec<char> = colors.line(&line).into_iter().map(|(c, _)| c).collect();
                prop_assert_eq!(chars, line);
            }
        }
    }
}
