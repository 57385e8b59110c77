//! The log of a node that shares its terminal with a chat: a file of bounded size.
//!
//! A full file is renamed, and replaces the one that was renamed before it: there are two at most. A
//! log that cannot be written to the file goes to standard error instead.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// Bytes of one file (4 MiB): days of a quiet node, and hours of a busy one.
const FILE_BYTES: u64 = 4 << 20;
/// Bytes of lines that wait until their folder exists (64 KiB).
const EARLY_BYTES: usize = 64 << 10;

/// The file. Each write is one line or more, and stays in one file.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    most: u64,
    state: LogFileState,
}

#[derive(Debug)]
enum LogFileState {
    /// The node has not made its data directory yet; only the node may, because it makes it
    /// durable.
    Early(Vec<u8>),
    Open {
        file: File,
        bytes: u64,
    },
    /// It cannot be written.
    Failed,
}

// === impl LogFile ===

impl LogFile {
    /// The log at this path; nothing is opened yet.
    pub const fn new(path: PathBuf) -> Self {
        Self { path, most: FILE_BYTES, state: LogFileState::Early(Vec::new()) }
    }

    /// The file that was full last.
    fn previous(&self) -> PathBuf {
        self.path.with_extension("log.1")
    }

    fn add(&mut self, line: &[u8]) -> io::Result<()> {
        if let LogFileState::Early(early) = &mut self.state {
            if !self.path.parent().is_some_and(Path::is_dir) {
                if early.len() + line.len() <= EARLY_BYTES {
                    early.extend_from_slice(line);
                }
                return Ok(());
            }
            let early = std::mem::take(early);
            self.open()?;
            self.put(&early)?;
        }
        self.put(line)
    }

    fn open(&mut self) -> io::Result<()> {
        let mut options = OpenOptions::new();
        let file = options.append(true).create(true).mode(0o600).open(&self.path)?;
        let bytes = file.metadata()?.len();
        self.state = LogFileState::Open { file, bytes };
        Ok(())
    }

    fn put(&mut self, line: &[u8]) -> io::Result<()> {
        let length = line.len() as u64;
        if let LogFileState::Open { bytes, .. } = &self.state
            && *bytes > 0
            && bytes.saturating_add(length) > self.most
        {
            fs::rename(&self.path, self.previous())?;
            self.open()?;
        }
        match &mut self.state {
            LogFileState::Open { file, bytes } => {
                *bytes = bytes.saturating_add(length);
                file.write_all(line)
            }
            LogFileState::Early(_) | LogFileState::Failed => io::stderr().write_all(line),
        }
    }
}

impl Write for LogFile {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(error) = self.add(line) {
            self.state = LogFileState::Failed;
            let mut err = io::stderr();
            writeln!(err, "cannot write the log to `{}`: {error}", self.path.display())?;
            err.write_all(line)?;
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn log(path: &Path, most: u64) -> LogFile {
        LogFile { most, ..LogFile::new(path.to_owned()) }
    }

    #[test]
    fn there_are_two_files_at_most_and_lines_stay_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node.log");
        let mut file = log(&path, 100);
        for n in 0..40 {
            file.write_all(format!("this is line {n:03}\n").as_bytes()).unwrap();
        }
        let mut names: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["node.log", "node.log.1"]);
        let read = |name| fs::read_to_string(dir.path().join(name)).unwrap();
        let (older, newer) = (read("node.log.1"), read("node.log"));
        assert!(older.len() <= 100 && newer.len() <= 100, "{older}{newer}");
        let lines: Vec<&str> = older.lines().chain(newer.lines()).collect();
        let expected: Vec<String> =
            (40 - lines.len()..40).map(|n| format!("this is line {n:03}")).collect();
        assert_eq!(lines, expected);
        for name in names {
            let mode = fs::metadata(dir.path().join(name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        // A further start goes on where the last one was.
        log(&path, 1_000).write_all(b"more\n").unwrap();
        assert_eq!(read("node.log"), format!("{newer}more\n"));
    }

    #[test]
    fn what_comes_before_the_folder_is_written_later_and_makes_none() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("data");
        let mut file = log(&folder.join("node.log"), 1_000);
        file.write_all(b"one\n").unwrap();
        assert!(!folder.exists());
        fs::create_dir(&folder).unwrap();
        file.write_all(b"two\n").unwrap();
        assert_eq!(fs::read_to_string(folder.join("node.log")).unwrap(), "one\ntwo\n");
    }
}
