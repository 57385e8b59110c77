//! Another model of vectors: the files of the store that was used before are taken over, without their vectors, so that
//! everything is found by its words from the beginning, and a second copy takes no disk.
//!
//! Each step can be made again after a crash: vectors leave one file after another, and then the folder gets its new
//! name at once.

use std::{
    fs::{self, File},
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use super::{
    contract::MemoryStoreError,
    file::{self, Records, StoreFileError, StoreRecord},
    resident::failed,
};

/// The folder of a store without vectors.
const WORDS: &str = "words";
/// What the names of folders with vectors begin with.
const MODEL: &str = "model-";
/// The file that says how many numbers the vectors of a model have.
const DIMENSIONS: &str = "dimensions";

/// The folder of a store whose vectors are of this model.
pub(super) fn name(model: Option<(&str, usize)>) -> String {
    let Some((name, dimensions)) = model else { return WORDS.to_owned() };
    let hash = blake3::hash(format!("{name}\0{dimensions}").as_bytes()).to_hex();
    format!("{MODEL}{}", hash.chars().take(32).collect::<String>())
}

/// Makes the files of the store that `folder` had before those of one with vectors of `model`. What further models left
/// there is removed. No store may be open in it; blocks.
pub fn take_over(folder: &Path, model: Option<(&str, usize)>) -> Result<(), MemoryStoreError> {
    let own = folder.join(name(model));
    let mut others = others(folder, &own).map_err(|source| failed(folder, source))?;
    if !own.exists()
        && let Some(last) = others.pop()
    {
        adopt(&last, &own).map_err(|source| failed(&last, source))?;
    }
    for other in others {
        fs::remove_dir_all(&other).map_err(|source| failed(&other, source))?;
    }
    Ok(())
}

/// The folders of other models, the one that was changed last at the end.
fn others(folder: &Path, own: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut others = Vec::new();
    for entry in entries.flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let is_store = name.to_str().is_some_and(|name| name == WORDS || name.starts_with(MODEL));
        if is_store && path != own {
            others.push((entry.metadata()?.modified()?, path));
        }
    }
    others.sort();
    Ok(others.into_iter().map(|(_, path)| path).collect())
}

fn adopt(last: &Path, own: &Path) -> io::Result<()> {
    if last.file_name().is_none_or(|name| name != WORDS) {
        for entry in fs::read_dir(last)? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "scope") {
                strip(&path)?;
            }
        }
        match fs::remove_file(last.join(DIMENSIONS)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    fs::rename(last, own)?;
    file::sync_folder(own)
}

/// Writes a file again without vectors. A damaged one stays as it is, and is reported when it is used.
fn strip(path: &Path) -> io::Result<()> {
    let Some(scope) = file::scope_of(path)? else { return Ok(()) };
    let (mut records, masked) = match Records::open(path, &scope) {
        Ok(Some(opened)) => opened,
        Ok(None) | Err(StoreFileError::Damaged(_)) => return Ok(()),
        Err(StoreFileError::Io(error)) => return Err(error),
    };
    let temporary = path.with_extension("new");
    let mut new = BufWriter::new(File::create(&temporary)?);
    new.write_all(&StoreRecord::begin(&scope, &masked).framed()?)?;
    loop {
        let mut record = match records.next() {
            Ok(Some((_, record))) => record,
            Ok(None) => break,
            Err(StoreFileError::Damaged(_)) => return fs::remove_file(&temporary),
            Err(StoreFileError::Io(error)) => return Err(error),
        };
        if let StoreRecord::Document(stored) = &mut record {
            stored.vector = None;
        }
        new.write_all(&record.framed()?)?;
    }
    let new = new.into_inner().map_err(io::IntoInnerError::into_error)?;
    new.sync_all()?;
    fs::rename(&temporary, path)
}

/// How many numbers the vectors in a folder have; 0 if there are none yet.
pub(super) fn dimensions(folder: &Path) -> usize {
    let said = fs::read_to_string(folder.join(DIMENSIONS)).ok();
    said.and_then(|said| said.trim().parse().ok()).unwrap_or_default()
}

/// Writes how many numbers the vectors in a folder have. It is there whole, or not at all.
pub(super) fn keep_dimensions(folder: &Path, dimensions: usize) -> io::Result<()> {
    let (path, temporary) = (folder.join(DIMENSIONS), folder.join("dimensions.new"));
    let mut file = File::create(&temporary)?;
    file.write_all(dimensions.to_string().as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, &path)?;
    File::open(folder)?.sync_all()
}
