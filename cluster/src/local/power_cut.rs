//! A disk that can lose power, for tests: it keeps what was synced apart from what was not.
//!
//! After [`PowerCutDisk::cut_power`] each file has its synced bytes and any part of the rest, torn
//! at sectors; each directory has its synced names and any part of the later changes. Handles from
//! before the cut are dead.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::disk::{Disk, DiskFile};

/// The least that a disk writes as a whole.
const SECTOR: usize = 512;

/// A disk in memory.
#[derive(Clone, Debug, Default)]
pub struct PowerCutDisk {
    state: Arc<Mutex<State>>,
    /// The power cuts before the process that uses it; absent for whoever holds the plug.
    life: Option<u64>,
}

#[derive(Debug, Default)]
struct State {
    /// Names as the running system sees them.
    names: BTreeMap<PathBuf, usize>,
    /// Names as a cut would leave them at least.
    synced_names: BTreeMap<PathBuf, usize>,
    files: Vec<File>,
    dirs: BTreeSet<PathBuf>,
    /// How often the power was cut.
    cuts: u64,
    /// Bytes that may still be written.
    free: Option<u64>,
    /// Whether syncs fail.
    syncs_fail: bool,
    /// Changes until the power goes, and what chance then does.
    cut_in: Option<(u64, ChaCha8Rng)>,
}

#[derive(Clone, Debug, Default)]
struct File {
    live: Vec<u8>,
    synced: Vec<u8>,
    /// Sectors that were written since the last sync, and whether the length changed.
    dirty: BTreeSet<usize>,
}

#[derive(Debug)]
struct Handle {
    disk: PowerCutDisk,
    file: usize,
    cuts: u64,
}

// === impl PowerCutDisk ===

impl PowerCutDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The power goes and comes back; chance decides what of the rest was written.
    pub fn cut_power(&self, rng: &mut impl Rng) {
        self.lock().lose_power(rng);
    }

    /// The power goes in the middle of the `changes`th change (write, sync, name) from now.
    pub fn cut_after(&self, changes: u64, seed: u64) {
        self.lock().cut_in = Some((changes, ChaCha8Rng::seed_from_u64(seed)));
    }

    /// From now on only `free` more bytes can be written; `None` for no bound.
    pub fn set_free(&self, free: Option<u64>) {
        self.lock().free = free;
    }

    /// Whether syncs fail from now on.
    pub fn fail_syncs(&self, fail: bool) {
        self.lock().syncs_fail = fail;
    }

    /// The files there are, with what the running system sees in them.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.lock();
        let content = |file: &usize| state.files.get(*file).map(|file| file.live.clone());
        state.names.iter().filter_map(|(path, file)| Some((path.clone(), content(file)?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk as a process sees it that starts now: with the power, the process is gone, and
    /// nothing that a thread of it still does reaches the disk.
    pub(super) fn in_this_life(&self) -> Self {
        let life = self.lock().cuts;
        Self { state: Arc::clone(&self.state), life: Some(life) }
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.lock();
        match self.life {
            Some(life) if life != state.cuts => Err(io::Error::other("the power was cut")),
            _ => Ok(state),
        }
    }

    fn handle(&self, file: usize, cuts: u64) -> Arc<dyn DiskFile> {
        Arc::new(Handle { disk: self.clone(), file, cuts })
    }
}

impl Disk for PowerCutDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.alive()?;
        state.change()?;
        let file = state.files.len();
        state.files.push(File::default());
        state.names.insert(path.to_owned(), file);
        let cuts = state.cuts;
        drop(state);
        Ok(self.handle(file, cuts))
    }

    fn open(&self, path: &Path, _writable: bool) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.alive()?;
        let file = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let cuts = state.cuts;
        drop(state);
        Ok(self.handle(file, cuts))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        let state = self.alive()?;
        let here = state.names.keys().filter(|path| path.parent() == Some(dir));
        Ok(here.filter_map(|path| Some(path.file_name()?.to_str()?.to_owned())).collect())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.change()?;
        let file = state.names.remove(from).ok_or(io::ErrorKind::NotFound)?;
        state.names.insert(to.to_owned(), file);
        Ok(())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.change()?;
        match state.names.remove(path) {
            Some(_) => Ok(()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn create_dir(&self, path: &Path) -> io::Result<()> {
        // Directories are made once, at birth; losing one of them is losing the store.
        self.alive()?.dirs.insert(path.to_owned());
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.alive()?;
        state.change()?;
        state.sync_allowed()?;
        let State { names, synced_names, .. } = &mut *state;
        let is_here = |path: &PathBuf| path.parent() == Some(dir);
        synced_names.retain(|path, _| !is_here(path));
        let here = names.iter().filter(|(path, _)| is_here(path));
        synced_names.extend(here.map(|(path, file)| (path.clone(), *file)));
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        Ok(self.alive()?.free.unwrap_or(u64::MAX))
    }
}

// === impl State, File, Handle ===

impl State {
    fn lose_power(&mut self, rng: &mut impl Rng) {
        self.cuts += 1;
        self.cut_in = None;
        let (live, mut names) = (std::mem::take(&mut self.names), self.synced_names.clone());
        let paths: BTreeSet<PathBuf> = live.keys().chain(names.keys()).cloned().collect();
        for path in paths {
            if rng.random_bool(0.5) {
                match live.get(&path) {
                    Some(file) => drop(names.insert(path, *file)),
                    None => drop(names.remove(&path)),
                }
            }
        }
        for file in &mut self.files {
            file.lose_power(rng);
        }
        self.synced_names.clone_from(&names);
        self.names = names;
    }

    /// Counts a change; it may be the one in which the power goes.
    fn change(&mut self) -> io::Result<()> {
        match self.cut_in.take() {
            Some((0 | 1, mut rng)) => {
                self.lose_power(&mut rng);
                Err(io::Error::other("the power was cut"))
            }
            Some((left, rng)) => {
                self.cut_in = Some((left - 1, rng));
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn sync_allowed(&self) -> io::Result<()> {
        if self.syncs_fail { Err(io::Error::other("the disk failed")) } else { Ok(()) }
    }
}

impl File {
    fn touch(&mut self, from: usize, to: usize) {
        self.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
    }

    fn lose_power(&mut self, rng: &mut impl Rng) {
        let longest = self.live.len().max(self.synced.len());
        let shortest = self.live.len().min(self.synced.len());
        let mut after = self.synced.clone();
        if !self.dirty.is_empty() {
            after.resize(rng.random_range(shortest..=longest), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            let from = sector * SECTOR;
            let to = (from + SECTOR).min(after.len()).min(self.live.len());
            if from < to && rng.random_bool(0.5) {
                after[from..to].copy_from_slice(&self.live[from..to]);
            }
        }
        self.live.clone_from(&after);
        self.synced = after;
    }
}

impl Handle {
    fn with<T>(&self, act: impl FnOnce(&mut State, usize) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock();
        if state.cuts != self.cuts {
            return Err(io::Error::other("the power was cut"));
        }
        act(&mut state, self.file)
    }
}

impl DiskFile for Handle {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|state, file| {
            let room = usize::try_from(state.free.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
            let fits = bytes.len().min(room);
            if let Some(free) = &mut state.free {
                *free -= fits as u64;
            }
            let file = &mut state.files[file];
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            let to = from + fits;
            if file.live.len() < to {
                file.live.resize(to, 0);
            }
            file.live[from..to].copy_from_slice(&bytes[..fits]);
            file.touch(from, to);
            // The power goes while these bytes are on their way.
            state.change()?;
            if fits < bytes.len() { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> io::Result<()> {
        self.with(|state, file| {
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            let found = state.files[file].live.get(from..from + into.len());
            into.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
            Ok(())
        })
    }

    fn len(&self) -> io::Result<u64> {
        self.with(|state, file| Ok(state.files[file].live.len() as u64))
    }

    fn truncate(&self, len: u64) -> io::Result<()> {
        self.with(|state, file| {
            let file = &mut state.files[file];
            let len = usize::try_from(len).map_err(io::Error::other)?;
            let end = file.live.len().max(len);
            file.touch(len, end);
            file.live.resize(len, 0);
            Ok(())
        })
    }

    fn sync(&self) -> io::Result<()> {
        self.with(|state, file| {
            state.change()?;
            state.sync_allowed()?;
            let file = &mut state.files[file];
            file.synced.clone_from(&file.live);
            file.dirty.clear();
            Ok(())
        })
    }
}
