//! A disk that can lose power, for tests: it keeps synced bytes apart from others.
//!
//! After [`PowerCutDisk::cut_power`] each file has its synced bytes and any part of the rest, torn
//! at sectors; each directory has its synced names and any part of the later changes. Handles from
//! before the cut are dead.
//!
//! A failed sync does the same as on Linux: any part of the dirty sectors reaches the disk, all of
//! them become clean, and the page cache keeps the written bytes. No later sync writes them again.
//! The length of a file is metadata: it stays to be written.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::disk::{Disk, DiskFile};

/// The smallest piece that a disk writes as a whole.
const SECTOR: usize = 512;

/// A disk in memory.
#[derive(Clone, Debug, Default)]
pub struct PowerCutDisk {
    state: Arc<Mutex<DiskState>>,
    /// The life of the process that uses it; absent for the test that cuts the power.
    life: Option<u64>,
    held: Arc<Held>,
}

/// Whether syncs of files wait.
#[derive(Debug, Default)]
struct Held {
    state: Mutex<Hold>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Hold {
    holds: bool,
    /// Syncs that wait.
    waiting: usize,
}

#[derive(Debug, Default)]
struct DiskState {
    /// Names as the running system sees them.
    names: BTreeMap<PathBuf, usize>,
    /// The names that a cut would leave at least.
    synced_names: BTreeMap<PathBuf, usize>,
    files: Vec<File>,
    dirs: BTreeSet<PathBuf>,
    /// How often the power was cut or the process was killed.
    lives: u64,
    /// Bytes that may still be written.
    free: Option<u64>,
    /// Whether syncs fail until further notice.
    syncs_fail: bool,
    /// Whether the next sync fails.
    next_sync_fails: bool,
    /// Decides which sectors reach the disk when a sync fails.
    chance: Option<ChaCha8Rng>,
    /// Changes until a fault, the fault, and the chance that it uses.
    fault_in: Option<(u64, DiskFault, ChaCha8Rng)>,
}

/// What happens to a disk, or to the process that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiskFault {
    /// The power fails: the process ends, and bytes that are not on the disk are lost.
    PowerCut,
    /// The process is killed: its bytes stay in the page cache, and are not synced.
    Kill,
    /// The next sync of a file fails, once.
    FailedSync,
}

#[derive(Clone, Debug, Default)]
struct File {
    /// The content in the page cache.
    live: Vec<u8>,
    /// The content on the disk.
    stored: Vec<u8>,
    /// Sectors that the next sync writes.
    dirty: BTreeSet<usize>,
}

#[derive(Debug)]
struct PowerCutHandle {
    disk: PowerCutDisk,
    file: usize,
    life: u64,
}

// === impl PowerCutDisk ===

impl PowerCutDisk {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// The power fails and comes back; chance decides which of the rest was written.
    pub fn cut_power(&self, rng: &mut impl Rng) {
        self.lock().lose_power(rng);
    }

    /// The fault comes in the middle of the `changes`th change (write, sync, name) from now.
    pub fn fail_after(&self, changes: u64, fault: DiskFault, seed: u64) {
        self.lock().fault_in = Some((changes, fault, ChaCha8Rng::seed_from_u64(seed)));
    }

    /// The process is killed; its bytes stay readable for the next.
    pub fn kill(&self) {
        self.lock().lives += 1;
    }

    /// Memory pressure: the page cache forgets all clean pages, and they are read from the disk.
    pub fn drop_cache(&self) {
        self.lock().files.iter_mut().for_each(File::drop_clean);
    }

    /// From now on only `free` more bytes can be written; `None` for no bound.
    pub fn set_free(&self, free: Option<u64>) {
        self.lock().free = free;
    }

    /// Whether syncs fail from now on; `seed` decides which sectors reach the disk all the same.
    pub fn fail_syncs(&self, fail: bool, seed: u64) {
        let mut state = self.lock();
        state.syncs_fail = fail;
        state.chance = Some(ChaCha8Rng::seed_from_u64(seed));
    }

    /// Whether syncs of files wait from now on.
    pub fn hold_syncs(&self, hold: bool) {
        self.held.lock().holds = hold;
        self.held.bell.notify_all();
    }

    /// Blocks until the sync of a file waits.
    pub fn wait_for_held_sync(&self) {
        let waited = self.held.bell.wait_while(self.held.lock(), |hold| hold.waiting == 0);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn wait_while_held(&self) {
        let mut hold = self.held.lock();
        hold.waiting += 1;
        self.held.bell.notify_all();
        let waited = self.held.bell.wait_while(hold, |hold| hold.holds);
        waited.unwrap_or_else(PoisonError::into_inner).waiting -= 1;
    }

    /// The files, with the content that the running system sees.
    pub fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let state = self.lock();
        let content = |file: &usize| state.files.get(*file).map(|file| file.live.clone());
        state.names.iter().filter_map(|(path, file)| Some((path.clone(), content(file)?))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The disk for a process that starts now: when the power fails, the process is gone, and
    /// nothing that one of its threads still does reaches the disk.
    pub(super) fn in_this_life(&self) -> Self {
        let life = self.lock().lives;
        Self { life: Some(life), ..self.clone() }
    }

    fn alive(&self) -> io::Result<MutexGuard<'_, DiskState>> {
        let state = self.lock();
        match self.life {
            Some(life) if life != state.lives => Err(ended()),
            _ => Ok(state),
        }
    }

    fn handle(&self, file: usize, life: u64) -> Arc<dyn DiskFile> {
        Arc::new(PowerCutHandle { disk: self.clone(), file, life })
    }
}

fn ended() -> io::Error {
    io::Error::other("the power was cut, or the process was killed")
}

impl Disk for PowerCutDisk {
    fn create(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let mut state = self.alive()?;
        state.change()?;
        let file = state.files.len();
        state.files.push(File::default());
        state.names.insert(path.to_owned(), file);
        let life = state.lives;
        drop(state);
        Ok(self.handle(file, life))
    }

    fn open(&self, path: &Path, _writable: bool) -> io::Result<Arc<dyn DiskFile>> {
        let state = self.alive()?;
        let file = *state.names.get(path).ok_or(io::ErrorKind::NotFound)?;
        let life = state.lives;
        drop(state);
        Ok(self.handle(file, life))
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
        // Names are metadata of a journalling file system: one that cannot write them goes
        // read-only, so a later success is one.
        if state.syncs_fail {
            return Err(io::Error::other("the disk failed"));
        }
        let DiskState { names, synced_names, .. } = &mut *state;
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

// === impl Held, State, File, Handle ===

impl Held {
    fn lock(&self) -> MutexGuard<'_, Hold> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DiskState {
    fn lose_power(&mut self, rng: &mut impl Rng) {
        self.lives += 1;
        self.fault_in = None;
        self.next_sync_fails = false;
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

    /// Counts a change; a fault may come in the middle of it.
    fn change(&mut self) -> io::Result<()> {
        let Some((left, fault, mut rng)) = self.fault_in.take() else { return Ok(()) };
        if left > 1 {
            self.fault_in = Some((left - 1, fault, rng));
            return Ok(());
        }
        match fault {
            DiskFault::PowerCut => self.lose_power(&mut rng),
            DiskFault::Kill => self.lives += 1,
            DiskFault::FailedSync => {
                self.next_sync_fails = true;
                self.chance = Some(rng);
                return Ok(());
            }
        }
        Err(ended())
    }

    fn sync(&mut self, file: usize) -> io::Result<()> {
        let fails = std::mem::take(&mut self.next_sync_fails) || self.syncs_fail;
        let file = &mut self.files[file];
        if fails {
            let chance = self.chance.get_or_insert_with(|| ChaCha8Rng::seed_from_u64(0));
            file.fail_sync(chance);
            return Err(io::Error::other("the disk failed"));
        }
        file.sync();
        Ok(())
    }
}

impl File {
    fn touch(&mut self, from: usize, to: usize) {
        self.dirty.extend(from / SECTOR..to.div_ceil(SECTOR));
    }

    /// Puts a sector on the disk, as far as the file goes there.
    fn store(&mut self, sector: usize) {
        let from = sector * SECTOR;
        let to = (from + SECTOR).min(self.stored.len()).min(self.live.len());
        if from < to {
            self.stored[from..to].copy_from_slice(&self.live[from..to]);
        }
    }

    fn sync(&mut self) {
        self.stored.resize(self.live.len(), 0);
        for sector in std::mem::take(&mut self.dirty) {
            self.store(sector);
        }
    }

    fn fail_sync(&mut self, rng: &mut impl Rng) {
        for sector in std::mem::take(&mut self.dirty) {
            if rng.random_bool(0.5) {
                // If the disk's file is shorter, blocks are written and the length is not.
                let end = ((sector + 1) * SECTOR).min(self.live.len());
                self.stored.resize(self.stored.len().max(end), 0);
                self.store(sector);
            }
        }
    }

    fn drop_clean(&mut self) {
        for sector in 0..self.live.len().div_ceil(SECTOR) {
            if self.dirty.contains(&sector) {
                continue;
            }
            let from = sector * SECTOR;
            let to = (from + SECTOR).min(self.live.len());
            for at in from..to {
                self.live[at] = self.stored.get(at).copied().unwrap_or(0);
            }
        }
    }

    fn lose_power(&mut self, rng: &mut impl Rng) {
        let longest = self.live.len().max(self.stored.len());
        let shortest = self.live.len().min(self.stored.len());
        if longest != shortest || !self.dirty.is_empty() {
            self.stored.resize(rng.random_range(shortest..=longest), 0);
        }
        for sector in std::mem::take(&mut self.dirty) {
            if rng.random_bool(0.5) {
                self.store(sector);
            }
        }
        self.live.clone_from(&self.stored);
    }
}

impl PowerCutHandle {
    fn with<T>(&self, act: impl FnOnce(&mut DiskState, usize) -> io::Result<T>) -> io::Result<T> {
        let mut state = self.disk.lock();
        if state.lives != self.life {
            return Err(ended());
        }
        act(&mut state, self.file)
    }
}

impl DiskFile for PowerCutHandle {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.with(|state, file| {
            let from = usize::try_from(offset).map_err(io::Error::other)?;
            let len = state.files[file].live.len();
            // Overwritten bytes take no room.
            let room = usize::try_from(state.free.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
            let end = len.max(from).saturating_add(room);
            let to = from.saturating_add(bytes.len()).min(end);
            let fits = to - from;
            if let Some(free) = &mut state.free {
                *free -= to.saturating_sub(len.max(from)) as u64;
            }
            let file = &mut state.files[file];
            if file.live.len() < to {
                file.live.resize(to, 0);
            }
            file.live[from..to].copy_from_slice(&bytes[..fits]);
            file.touch(from, to);
            // The power fails while these bytes are on their way.
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
        self.disk.wait_while_held();
        self.with(|state, file| {
            state.change()?;
            state.sync(file)
        })
    }
}
