//! Compiled code on disk. Code that is loaded is run, so nothing is loaded that this cache did not
//! write: each file begins with a hash of the rest under a key that lies beside it, readable by
//! its owner alone. Who can read that key can change the program itself.
//!
//! A file that is missing, damaged, foreign or of another engine is no error: the component is
//! compiled again.

use std::{
    fmt,
    fs::{self, DirBuilder, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::Mutex,
};

use rand::RngCore;
use tracing::{debug, warn};
use wasmtime::component::Component;

use crate::{engine::WasmEngine, error::said};

/// The file with the key.
const KEY: &str = "key";
/// The end of the names of the others.
const COMPILED: &str = "cwasm";
/// Bytes of a key and of a hash.
const HASH_BYTES: usize = blake3::OUT_LEN;
/// Bytes of a file (1 GiB); code is about four times as large as what it was compiled from.
const FILE_BYTES: u64 = 1 << 30;

/// A directory with compiled code.
pub struct Cache {
    dir: PathBuf,
    key: [u8; HASH_BYTES],
    /// The files that were asked for since it was opened.
    used: Mutex<Vec<String>>,
}

/// Where one component's code is kept: the name says from which bytes and by which engine.
#[derive(Debug)]
pub(crate) struct CacheEntry(String);

/// Bytes that are proven to be written by a cache.
struct Authentic(Vec<u8>);

// === impl Cache ===

impl Cache {
    /// Opens the cache in `dir`, which is made if it is not there.
    pub fn open(dir: &Path) -> io::Result<Self> {
        DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let key = match read_key(&dir.join(KEY))? {
            Some(key) => key,
            None => make_key(&dir.join(KEY))?,
        };
        Ok(Self { dir: dir.to_owned(), key, used: Mutex::default() })
    }

    /// Removes what no plugin has asked for since the cache was opened: versions before.
    pub fn sweep(&self) -> io::Result<()> {
        let used = self.used.lock().map(|used| used.clone()).unwrap_or_default();
        for entry in fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned());
            let is_used = name.is_some_and(|name| name == KEY || used.contains(&name));
            if !is_used && path.is_file() {
                fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    pub(crate) fn entry(&self, engine: &WasmEngine, wasm: &[u8]) -> CacheEntry {
        let mut hasher = DefaultHasher::new();
        engine.wasmtime().precompile_compatibility_hash().hash(&mut hasher);
        let name = format!("{}-{:016x}.{COMPILED}", blake3::hash(wasm).to_hex(), hasher.finish());
        if let Ok(mut used) = self.used.lock() {
            used.push(name.clone());
        }
        CacheEntry(name)
    }

    /// What was compiled before.
    pub(crate) fn component(&self, engine: &WasmEngine, entry: &CacheEntry) -> Option<Component> {
        let path = self.dir.join(&entry.0);
        let bytes = match read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                warn!(file = %path.display(), %error, "compiled code cannot be read, compiling");
                return None;
            }
        };
        let Some(code) = self.authentic(entry, bytes, engine.bugs().verifies()) else {
            warn!(file = %path.display(), "this is not what was compiled here, compiling again");
            return None;
        };
        match revive(engine.wasmtime(), &code) {
            Ok(component) => {
                debug!(file = %path.display(), "compiled before");
                Some(component)
            }
            Err(error) => {
                let error = said(&error);
                warn!(file = %path.display(), error, "of no use to this engine, compiling again");
                None
            }
        }
    }

    /// Keeps what was compiled; that it could not is a warning, and costs time at the next start.
    pub(crate) fn keep(&self, entry: &CacheEntry, component: &Component) {
        let path = self.dir.join(&entry.0);
        let kept = component.serialize().map_err(|error| said(&error)).and_then(|code| {
            let hash = self.hash(entry, &code);
            write(&path, &[hash.as_bytes(), &code]).map_err(|error| error.to_string())
        });
        if let Err(error) = kept {
            warn!(file = %path.display(), error, "compiled code cannot be kept");
        }
    }

    fn hash(&self, entry: &CacheEntry, code: &[u8]) -> blake3::Hash {
        let mut hasher = blake3::Hasher::new_keyed(&self.key);
        // Names have one length, so where they end is known.
        hasher.update(entry.0.as_bytes());
        hasher.update(code);
        hasher.finalize()
    }

    fn authentic(&self, entry: &CacheEntry, mut bytes: Vec<u8>, verify: bool) -> Option<Authentic> {
        let hash: [u8; HASH_BYTES] = bytes.get(..HASH_BYTES)?.try_into().ok()?;
        let code = bytes.split_off(HASH_BYTES);
        // Compared in constant time, as `Hash` does.
        let is_own = self.hash(entry, &code) == blake3::Hash::from_bytes(hash);
        (is_own || !verify).then_some(Authentic(code))
    }
}

impl fmt::Debug for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cache").field("dir", &self.dir).finish_non_exhaustive()
    }
}

/// Makes code of its bytes again.
#[expect(unsafe_code, reason = "compiled code is run as it is; see `Authentic`")]
fn revive(engine: &wasmtime::Engine, code: &Authentic) -> wasmtime::Result<Component> {
    // SAFETY: the bytes must be what `Component::serialize` made. `Authentic` is made by
    // `Cache::authentic` alone, of bytes whose keyed hash this cache wrote, and it hashes nothing
    // but what `serialize` returned; the key is in a file that only the owner of this process can
    // read. The bytes are in memory and change no more. That they fit this engine is checked by
    // the engine itself.
    unsafe { Component::deserialize(engine, &code.0) }
}

fn read_key(path: &Path) -> io::Result<Option<[u8; HASH_BYTES]>> {
    match read(path) {
        // One of another length is not ours: another is made, and what it signed is compiled again.
        Ok(bytes) => Ok(bytes.try_into().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn make_key(path: &Path) -> io::Result<[u8; HASH_BYTES]> {
    let mut key = [0; HASH_BYTES];
    rand::rng().fill_bytes(&mut key);
    write(path, &[&key])?;
    Ok(key)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES {
        return Err(io::Error::other(format!("it has more than {FILE_BYTES} bytes")));
    }
    Ok(bytes)
}

/// Writes a file that is there whole or not at all, for its owner alone.
fn write(path: &Path, parts: &[&[u8]]) -> io::Result<()> {
    let new = path.with_extension("new");
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    for part in parts {
        file.write_all(part)?;
    }
    file.sync_all()?;
    fs::rename(&new, path)
}
