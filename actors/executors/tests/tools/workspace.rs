//! S-17: however a path is spelled and whatever is changed under a tool's hands, nothing outside an
//! agent's directory is read or changed, and no tool waits for a file.
//!
//! Method: canaries lie outside (beside the root, in it, and with another agent). The paths go into
//! every string parameter of every tool that is not known to be something else, so that a new
//! parameter is attacked by default. Each attack also runs against a workspace with the bug that it
//! is for, and has to get through there.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use clawnode_executors::{Workspace, WorkspaceOptions, workspace::WorkspaceBug};
use clawnode_proto::tool::{ToolFailure, ToolSpec};
use clawnode_tool::Executor;
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mkfifoat, mknodat, renameat_with};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::support::{call, call_as, text};

/// What no result may contain. The part that searches look for is not all of it.
const CANARY: &str = "canary-7f3a9";
const SOUGHT: &str = "canary-7f";
/// String parameters that are no paths. Whatever is not listed is taken to be one.
const NO_PATHS: [(&str, &str); 2] = [("file_write", "content"), ("file_search", "pattern")];
/// How long a planted race may take to be lost.
const RACE: Duration = Duration::from_mins(1);
/// Rounds of a race that has to be won.
const ROUNDS: usize = 1_500;

struct Trap {
    folder: TempDir,
}

impl Trap {
    fn new() -> Self {
        let trap = Self { folder: tempfile::tempdir().unwrap() };
        for folder in ["outside/inner", "root/main/dir", "root/other"] {
            fs::create_dir_all(trap.at(folder)).unwrap();
        }
        for canary in
            ["outside/canary.txt", "outside/inner/x", "root/canary.txt", "root/other/canary.txt"]
        {
            fs::write(trap.at(canary), CANARY).unwrap();
        }
        fs::write(trap.at("root/main/ok.txt"), "fine").unwrap();
        fs::write(trap.at("root/main/dir/x"), "fine").unwrap();
        let main = trap.at("root/main");
        let outside = trap.at("outside");
        for (to, name) in [
            (outside.clone(), "link_out"),
            (outside.join("canary.txt"), "link_file"),
            ("../../outside".into(), "link_up"),
            ("../other".into(), "link_other"),
            ("..".into(), "link_root"),
            ("/".into(), "link_slash"),
            ("/proc/self/root".into(), "link_proc"),
            ("/dev/zero".into(), "link_zero"),
            ("link_chain_2".into(), "link_chain"),
            ("link_out".into(), "link_chain_2"),
            ("link_loop".into(), "link_loop"),
            ("dir/../../../outside".into(), "link_winding"),
            (outside.join("new.txt"), "link_new"),
            ("ok.txt".into(), "link_in"),
        ] as [(PathBuf, &str); 14]
        {
            symlink(to, main.join(name)).unwrap();
        }
        fs::hard_link(outside.join("canary.txt"), main.join("hard.txt")).unwrap();
        mkfifoat(CWD, main.join("fifo"), Mode::from_raw_mode(0o600)).unwrap();
        drop(UnixListener::bind(main.join("socket")).unwrap());
        trap
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    fn tools(&self, planted: WorkspaceBug) -> Arc<dyn Executor> {
        let options = WorkspaceOptions::new(self.at("root"));
        Arc::new(Workspace::with_bug(&options, planted).unwrap())
    }

    /// Everything outside the agent's directory, with what is in it.
    fn outside(&self) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.folder.path().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path == self.at("root/main") {
                    continue;
                }
                if path.is_dir() {
                    folders.push(path.clone());
                    found.insert(path, None);
                } else {
                    let content = fs::read(&path).unwrap();
                    found.insert(path, Some(content));
                }
            }
        }
        found
    }

    /// Ways out, as they would be written without any disguise.
    fn ways_out(&self) -> Vec<String> {
        let outside = self.at("outside").display().to_string();
        let mut ways: Vec<String> = [
            "../canary.txt",
            "../other/canary.txt",
            "../../outside/canary.txt",
            "../../outside/new.txt",
            "dir/../../canary.txt",
            "dir/../../../outside/canary.txt",
            "ok.txt/../../canary.txt",
            "none/../../canary.txt",
            "..",
            "../..",
            "../other",
            "link_out",
            "link_out/canary.txt",
            "link_out/new.txt",
            "link_out/inner/x",
            "link_out/a/b",
            "link_file",
            "link_up/canary.txt",
            "link_other/canary.txt",
            "link_other/new.txt",
            "link_root/canary.txt",
            "link_root/other/canary.txt",
            "link_chain/canary.txt",
            "link_winding/canary.txt",
            "link_new",
            "link_loop",
            "link_loop/x",
            "link_zero",
            "hard.txt",
            "fifo",
            "socket",
            "/dev/zero",
            "/dev/stdin",
            "/dev/fd/0",
            "/dev/fd/3",
            "/proc/self/environ",
            "/proc/self/cwd/Cargo.toml",
            "/etc/passwd",
            "~/canary.txt",
            "~root/canary.txt",
            "$HOME/canary.txt",
            "${HOME}/canary.txt",
        ]
        .map(str::to_owned)
        .into();
        for prefix in [
            "",
            "link_slash",
            "link_proc",
            "/proc/self/root",
            "link_slash/proc/self/root",
            "file://",
        ] {
            ways.push(format!("{prefix}{outside}/canary.txt"));
            ways.push(format!("{prefix}{outside}/new.txt"));
        }
        ways
    }

    /// The ways out in every disguise.
    fn spellings(&self) -> Vec<String> {
        let mut all = Vec::new();
        for way in self.ways_out() {
            let dots = |with: &str| way.replace("..", with);
            let slashes = |with: &str| way.replace('/', with);
            all.extend([
                dots("%2e%2e"),
                dots("%252e%252e"),
                dots("%c0%ae%c0%ae"),
                dots("．．"),
                dots("‥"),
                dots("..."),
                dots(".\u{200b}."),
                dots("./.."),
                slashes("\\"),
                slashes("%2f"),
                slashes("%255c"),
                slashes("//"),
                slashes("/./"),
                slashes("\u{2215}"),
                slashes("／"),
                slashes("/dir/../"),
                format!("./{way}"),
                format!("{way}/"),
                format!("{way}/."),
                format!("{way}."),
                format!("{way} "),
                format!(" {way}"),
                format!("{way}\0"),
                format!("{way}\0.txt"),
                format!("{way}%00"),
                format!("{way}\n"),
                format!("\t{way}"),
                format!("{way}#x"),
                format!("{way}?x"),
                format!("{way}::$DATA"),
                format!("\\\\?\\{way}"),
                format!("\\\\localhost\\{way}"),
                format!("C:{way}"),
                format!("//{way}"),
                format!("/{way}"),
                format!("dir/{way}"),
                format!("file:{way}"),
                way.to_uppercase(),
                format!("....//{way}"),
                format!("..\\{way}"),
                format!("{}{way}", "../".repeat(40)),
                format!("{}{way}", "dir/../".repeat(10)),
            ]);
            all.push(way);
        }
        all.sort();
        all.dedup();
        all
    }
}

/// Every parameter that may be a path: tool and name.
fn path_parameters(specs: &[ToolSpec]) -> Vec<(&ToolSpec, String)> {
    let mut found = Vec::new();
    for spec in specs {
        let schema: Value = serde_json::from_str(&spec.input_schema).unwrap();
        for (name, property) in schema["properties"].as_object().unwrap() {
            // A parameter within a parameter would be overlooked: there is none, and if there
            // comes one, this table has to learn of it.
            assert!(property.get("properties").is_none() && property.get("items").is_none());
            let is_text = property["type"] == "string" || property.get("type").is_none();
            if is_text && !NO_PATHS.contains(&(spec.name.as_str(), name)) {
                found.push((spec, name.clone()));
            }
        }
    }
    found
}

/// Arguments with this path; the others as harmful as they can be.
fn arguments(spec: &ToolSpec, parameter: &str, path: &str) -> Value {
    let schema: Value = serde_json::from_str(&spec.input_schema).unwrap();
    let mut arguments = Map::new();
    for (name, property) in schema["properties"].as_object().unwrap() {
        let value = match (name.as_str(), property["type"].as_str().unwrap()) {
            (name, _) if name == parameter => json!(path),
            ("content", _) => json!("overwritten"),
            ("pattern", _) => json!(SOUGHT),
            ("offset", _) => json!(0),
            (_, "integer") => property["maximum"].clone(),
            (_, "boolean") => json!(false),
            (_, kind) => panic!("what is a {kind} for?"),
        };
        arguments.insert(name.clone(), value);
    }
    Value::Object(arguments)
}

/// Runs every spelling in every parameter; what got through.
async fn attack(trap: &Trap, planted: WorkspaceBug) -> Vec<String> {
    let tools = trap.tools(planted);
    let specs = tools.tools();
    let parameters = path_parameters(&specs);
    assert_eq!(parameters.len(), 4);
    let spellings = trap.spellings();
    assert!(spellings.len() >= 500, "{}", spellings.len());
    let before = trap.outside();
    let mut through = Vec::new();
    for (spec, parameter) in parameters {
        for spelling in spellings.iter().filter(|spelling| spelling.len() <= 1_024) {
            let arguments = arguments(spec, &parameter, spelling);
            let outcome = call(tools.clone(), spec.name.as_str(), &arguments).await;
            let is_late = outcome.failure == Some(ToolFailure::TimedOut);
            if is_late || text(&outcome).contains(CANARY) || trap.outside() != before {
                through.push(format!("{} {spelling:?}: {outcome:?}", spec.name));
                if planted != WorkspaceBug::None {
                    return through;
                }
            }
        }
    }
    through
}

#[tokio::test]
async fn s17_no_spelling_of_a_path_leads_out() {
    let through = attack(&Trap::new(), WorkspaceBug::None).await;
    assert!(through.is_empty(), "{through:#?}");
}

#[tokio::test]
async fn s17_paths_that_are_only_joined_are_found() {
    // Without the pipe and the endless device: a bug would wait there.
    let trap = Trap::new();
    for name in ["fifo", "link_zero"] {
        fs::remove_file(trap.at("root/main").join(name)).unwrap();
    }
    assert!(!attack(&trap, WorkspaceBug::JoinOnly).await.is_empty(), "the attack is none");
}

#[tokio::test]
async fn s17_what_is_no_file_is_named_and_not_waited_for() {
    let trap = Trap::new();
    let device = trap.at("root/main/device");
    // Only root may make one: `/dev/zero`.
    let made = mknodat(CWD, &device, FileType::CharacterDevice, Mode::from_raw_mode(0o600), 0x105);
    let tools = trap.tools(WorkspaceBug::None);
    for (path, why) in [
        ("fifo", "`fifo` is a pipe, not a file"),
        ("socket", "`socket` is a socket, not a file"),
        ("device", "`device` is a device, not a file"),
        ("link_zero", "`link_zero` leads out of the workspace"),
        ("link_file", "`link_file` leads out of the workspace"),
        ("link_out/canary.txt", "leads out of the workspace"),
        ("hard.txt", "`hard.txt` has several names"),
        ("/etc/passwd", "it is absolute"),
        ("../canary.txt", "it has `..` in it"),
    ] {
        if path == "device" && made.is_err() {
            continue;
        }
        let told = call(tools.clone(), "file_read", &json!({"path": path})).await;
        assert!(told.failure.is_some() && text(&told).contains(why), "{told:?}");
        let arguments = json!({"path": path, "content": "overwritten"});
        let told = call(tools.clone(), "file_write", &arguments).await;
        // The name of a hard link is replaced: the file with the other name is not touched.
        assert_eq!(told.failure.is_none(), path == "hard.txt", "{path}: {told:?}");
    }
    assert_eq!(fs::read_to_string(trap.at("outside/canary.txt")).unwrap(), CANARY);
    let told = call(tools.clone(), "file_read", &json!({"path": "link_in"})).await;
    assert_eq!(text(&told), "fine");
    let told = call(tools, "file_search", &json!({"pattern": SOUGHT})).await;
    assert!(text(&told).starts_with("[nothing found"), "{told:?}");
}

#[tokio::test]
async fn s17_hard_links_are_read_where_they_are_allowed() {
    let trap = Trap::new();
    let mut options = WorkspaceOptions::new(trap.at("root"));
    options.hard_links = true;
    let tools = Arc::new(Workspace::open(&options).unwrap());
    let told = call(tools, "file_read", &json!({"path": "hard.txt"})).await;
    assert_eq!(text(&told), CANARY);
}

#[tokio::test]
async fn s17_no_name_of_an_agent_is_a_way_out() {
    let trap = Trap::new();
    symlink("other", trap.at("root/linked")).unwrap();
    symlink("../outside", trap.at("root/escaped")).unwrap();
    fs::write(trap.at("root/file"), CANARY).unwrap();
    let tools = trap.tools(WorkspaceBug::None);
    let before = trap.outside();
    for agent in [".", "..", "linked", "escaped", "file", "canary.txt"] {
        for (tool, arguments) in [
            ("file_read", json!({"path": "canary.txt"})),
            ("file_write", json!({"path": "canary.txt", "content": "overwritten"})),
            ("file_list", json!({})),
            ("file_search", json!({"pattern": SOUGHT})),
        ] {
            let told = call_as(agent, tools.clone(), tool, &arguments).await;
            assert!(told.failure.is_some() && !text(&told).contains(CANARY), "{agent}: {told:?}");
        }
    }
    assert_eq!(trap.outside(), before);
}

/// A thread that swaps a directory of the workspace with a link that leads out, until it is dropped.
struct Swapper {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Swapper {
    fn start(folder: &Path, one: &str, other: &str) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (one, other, stopped) = (folder.join(one), folder.join(other), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Swapper {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

/// Rounds until something got through, or enough of them.
async fn race(planted: WorkspaceBug, rounds: usize, longest: Duration) -> (Option<String>, usize) {
    let trap = Trap::new();
    // `dir/x` is sometimes a file of the agent, sometimes one outside; `dir/x` itself changes too.
    symlink(trap.at("outside/inner"), trap.at("root/main/swapped")).unwrap();
    fs::write(trap.at("root/main/file"), "fine").unwrap();
    symlink(trap.at("outside/canary.txt"), trap.at("root/main/file_link")).unwrap();
    let main = trap.at("root/main");
    let tools = trap.tools(planted);
    let (before, until) = (trap.outside(), Instant::now() + longest);
    let _folders = Swapper::start(&main, "dir", "swapped");
    let _files = Swapper::start(&main, "file", "file_link");
    let mut served = 0;
    for round in 0..rounds {
        for (tool, arguments) in [
            ("file_read", json!({"path": "dir/x"})),
            ("file_read", json!({"path": "file"})),
            ("file_list", json!({"path": "dir"})),
            ("file_search", json!({"pattern": SOUGHT, "path": "dir"})),
            ("file_write", json!({"path": format!("dir/new{}", round % 8), "content": "written"})),
        ] {
            let told = call(tools.clone(), tool, &arguments).await;
            served += usize::from(told.failure.is_none());
            if text(&told).contains(CANARY) {
                return (Some(format!("{tool} {arguments}: {told:?}")), served);
            }
        }
        if trap.outside() != before {
            return (Some("something outside was changed".to_owned()), served);
        }
        if Instant::now() > until {
            break;
        }
    }
    (None, served)
}

#[tokio::test]
async fn s17_a_link_swapped_in_between_leads_nowhere() {
    let (through, served) = race(WorkspaceBug::None, ROUNDS, RACE).await;
    assert_eq!(through, None);
    assert!(served > 100, "only {served} calls met the directory itself");
}

#[tokio::test]
async fn s17_a_check_before_the_use_is_found() {
    let (through, _) = race(WorkspaceBug::CheckThenUse, usize::MAX, RACE).await;
    assert!(through.is_some(), "the attack is none");
}
