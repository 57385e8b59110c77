//! The command line, read by hand because this crate has no dependencies.

pub(crate) const HELP: &str = "\
Sets up what the tests need, checks and tests the whole workspace.

Usage: cargo xtest [OPTIONS] [FILTER | NEXTEST OPTIONS]...

Options:
      --no-lint   leave out fmt, clippy, doc and the doc tests
      --lint      only fmt, clippy and doc
      --setup     only install the tools
      --soak      run the long tests (names that end in `_soak`) and those of the model `local`, nothing else
      --wasm      only what has the WebAssembly engine: build and test it
      --chaos     only do harm to a real cluster for some minutes, and judge what is left
  -h, --help      print this

Everything else goes to `cargo nextest run`, and implies `--no-lint`:
  cargo xtest                         everything, as CI does
  cargo xtest gateway                 the tests whose names contain `gateway`
  cargo xtest -E 'binary(llm)'        a nextest filter expression
  cargo xtest --soak simulation       the simulator's long runs
  cargo xtest --wasm s_16             the tests of plugins whose names contain `s_16`

Environment: with CI=true nextest's profile `ci` is used: no early end, flaky tests fail; and the
crates that the simulator computes with are optimised (`.config/cargo-ci.toml`). With
CLAWNODE_TEST_REAL_MODEL=1 one turn goes through a real small language model, installed for it. With
CLAWNODE_TEST_REAL_PROVIDERS=PROVIDER/MODEL,... `cargo xtest real_providers` asks these models, with the keys that a
node reads. It costs money.";

/// The options of the command.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a step that runs or does not")]
pub(crate) struct Options {
    pub(crate) lint: bool,
    pub(crate) test: bool,
    pub(crate) soak: bool,
    /// Whether `clawnode-chaos` runs, after the tests or alone.
    pub(crate) chaos: bool,
    /// Whether what has the WebAssembly engine is built and tested, after all else or alone.
    pub(crate) wasm: bool,
    /// Handed to the test runner as they are.
    pub(crate) filters: Vec<String>,
}

/// What the command line says.
#[derive(Debug)]
pub(crate) enum Parsed {
    Run(Options),
    Help,
    Wrong(String),
}

// === impl Options ===

impl Options {
    pub(crate) fn parse(words: impl Iterator<Item = String>) -> Parsed {
        let mut options = Self {
            lint: true,
            test: true,
            soak: false,
            chaos: false,
            wasm: false,
            filters: Vec::new(),
        };
        let (mut only_lint, mut only_setup, mut only_chaos) = (false, false, false);
        for word in words {
            match word.as_str() {
                "-h" | "--help" => return Parsed::Help,
                "--no-lint" => options.lint = false,
                "--lint" => only_lint = true,
                "--setup" => only_setup = true,
                "--soak" => options.soak = true,
                "--chaos" => only_chaos = true,
                "--wasm" => options.wasm = true,
                _ => options.filters.push(word),
            }
        }
        if only_lint && (!options.lint || options.soak || !options.filters.is_empty()) {
            return Parsed::Wrong("`--lint` cannot be combined with other options".to_owned());
        }
        if only_chaos && (only_lint || only_setup || options.soak || !options.filters.is_empty()) {
            return Parsed::Wrong("`--chaos` cannot be combined with other options".to_owned());
        }
        if options.wasm && (only_lint || only_setup || only_chaos) {
            return Parsed::Wrong(
                "`--wasm` can only be combined with filters and `--soak`".to_owned(),
            );
        }
        options.lint &= options.filters.is_empty()
            && !options.soak
            && !only_setup
            && !only_chaos
            && !options.wasm;
        options.test = !only_lint && !only_setup && !only_chaos && !options.wasm;
        options.chaos = only_chaos || options.test && options.filters.is_empty() && !options.soak;
        options.wasm |= options.test && options.filters.is_empty();
        Parsed::Run(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Options {
        match Options::parse(words.split_whitespace().map(str::to_owned)) {
            Parsed::Run(options) => options,
            other => panic!("{words}: {other:?}"),
        }
    }

    #[test]
    fn nothing_means_everything() {
        let options = parse("");
        assert!(options.lint && options.test && options.chaos && options.filters.is_empty());
        assert!(options.wasm && !options.soak);
    }

    #[test]
    fn a_filter_goes_to_the_runner_and_leaves_the_lints_out() {
        let options = parse("-E binary(llm)");
        assert!(!options.lint && options.test && !options.chaos && !options.wasm);
        assert_eq!(options.filters, ["-E", "binary(llm)"]);
    }

    #[test]
    fn parts_can_be_asked_for_alone() {
        assert!(!parse("--no-lint").lint && parse("--no-lint").test);
        assert!(parse("--lint").lint && !parse("--lint").test);
        assert!(!parse("--setup").lint && !parse("--setup").test);
        assert!(parse("--soak").soak && !parse("--soak").lint && !parse("--soak").chaos);
        assert!(parse("--chaos").chaos && !parse("--chaos").test && !parse("--chaos").lint);
        assert!(parse("--no-lint").chaos);
        assert!(parse("--wasm").wasm && !parse("--wasm").test && !parse("--wasm").lint);
        assert!(parse("--soak").wasm && !parse("--lint").wasm && !parse("--setup").wasm);
        assert_eq!(parse("--wasm s_16").filters, ["s_16"]);
        for words in [
            ["--lint", "gateway"],
            ["--chaos", "gateway"],
            ["--chaos", "--lint"],
            ["--wasm", "--lint"],
        ] {
            let wrong = Options::parse(words.into_iter().map(str::to_owned));
            assert!(matches!(wrong, Parsed::Wrong(_)), "{words:?}");
        }
    }
}
