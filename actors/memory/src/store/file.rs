//! The file of a scope: records, each with its length and a checksum.
//!
//! The first record says which scope it is and what was masked. Documents follow, and after each batch the event up to
//! which the file is filled. A process that dies in mid-write leaves a record without its end; the file is cut before it,
//! and what it lacks is put again, because the event that it is filled up to is an earlier one. Every other damage is
//! reported.

use std::{
    collections::BTreeSet,
    fs::{self, File, OpenOptions},
    io::{self, BufReader, BufWriter, Read as _, Seek as _, SeekFrom, Write as _},
    path::Path,
};

use serde::{Deserialize, Serialize};

use super::document::{Document, DocumentId, StoreScope};

/// The form of these files. A file of another one is built again.
const VERSION: u32 = 1;
/// Bytes before a record: its length and its checksum.
const HEAD: u64 = 8;
/// Bytes of a record at most: as many masked ids as a scope may have.
const RECORD_BYTES: u32 = 32 << 20;

/// Where a record is in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordPlace {
    pub(super) offset: u64,
    /// With its head.
    pub(super) bytes: u32,
}

/// One record.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum StoreRecord {
    /// The first one.
    Begin { version: u32, scope: StoreScope, masked: BTreeSet<DocumentId> },
    /// A document; its embedding is in bytes.
    Document(Box<StoredDocument>),
    /// The event up to which the file is filled.
    Upto(u64),
}

/// A document as it is stored.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredDocument {
    /// Without its embedding.
    pub(super) document: Document,
    pub(super) vector: Option<Vec<i8>>,
}

/// Why a file cannot be used.
#[derive(Debug)]
pub(super) enum StoreFileError {
    Io(io::Error),
    /// It is damaged; in words.
    Damaged(String),
}

/// Reads records in their order.
pub(super) struct Records {
    file: BufReader<File>,
    offset: u64,
    bytes: u64,
}

// === impl StoreRecord ===

impl StoreRecord {
    pub(super) fn begin(scope: &StoreScope, masked: &BTreeSet<DocumentId>) -> Self {
        Self::Begin { version: VERSION, scope: scope.clone(), masked: masked.clone() }
    }

    /// Its bytes in a file.
    pub(super) fn framed(&self) -> io::Result<Vec<u8>> {
        let body = rmp_serde::to_vec(self).map_err(io::Error::other)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut framed = Vec::with_capacity(body.len() + 8);
        framed.extend_from_slice(&length.to_le_bytes());
        framed.extend_from_slice(&crc32fast::hash(&body).to_le_bytes());
        framed.extend_from_slice(&body);
        Ok(framed)
    }

    fn read(body: &[u8], offset: u64) -> Result<Self, StoreFileError> {
        rmp_serde::from_slice(body)
            .map_err(|error| damaged(offset, &format!("holds no record: {error}")))
    }
}

// === impl Records ===

impl Records {
    /// The records of a file, or none if there is no file. A file without its first record, or of another scope, is
    /// damaged.
    pub(super) fn open(
        path: &Path,
        scope: &StoreScope,
    ) -> Result<Option<(Self, BTreeSet<DocumentId>)>, StoreFileError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(StoreFileError::Io(error)),
        };
        let bytes = file.metadata().map_err(StoreFileError::Io)?.len();
        let mut records = Self { file: BufReader::new(file), offset: 0, bytes };
        match records.next()? {
            Some((_, StoreRecord::Begin { version: VERSION, scope: own, masked }))
                if own == *scope =>
            {
                Ok(Some((records, masked)))
            }
            Some((_, StoreRecord::Begin { version, .. })) if version != VERSION => {
                Err(damaged(0, &format!("is of version {version}, and this build has {VERSION}")))
            }
            Some((_, StoreRecord::Begin { .. })) => Err(damaged(0, "is of another scope")),
            _ => Err(damaged(0, "has no beginning")),
        }
    }

    /// The next record; none after the last one that was wholly written.
    pub(super) fn next(&mut self) -> Result<Option<(RecordPlace, StoreRecord)>, StoreFileError> {
        let (offset, left) = (self.offset, self.bytes.saturating_sub(self.offset));
        if left < HEAD {
            return Ok(None);
        }
        let (length, sum) = head(&mut self.file).map_err(StoreFileError::Io)?;
        if u64::from(length) > left - HEAD {
            return Ok(None);
        }
        if length == 0 || length > RECORD_BYTES {
            return Err(damaged(offset, &format!("has a record of {length} bytes")));
        }
        let body = body(&mut self.file, length).map_err(StoreFileError::Io)?;
        if crc32fast::hash(&body) != sum {
            let is_last = u64::from(length) == left - HEAD;
            return if is_last { Ok(None) } else { Err(damaged(offset, "fails its checksum")) };
        }
        let record = StoreRecord::read(&body, offset)?;
        self.offset += HEAD + u64::from(length);
        let bytes = length.saturating_add(8);
        Ok(Some((RecordPlace { offset, bytes }, record)))
    }

    /// Bytes of the records that were read so far.
    pub(super) fn read_bytes(&self) -> u64 {
        self.offset
    }
}

/// The scope of a file; none if there is no file, or no scope can be read from it.
pub(super) fn scope_of(path: &Path) -> io::Result<Option<StoreScope>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let bytes = file.metadata()?.len();
    match (Records { file: BufReader::new(file), offset: 0, bytes }).next() {
        Ok(Some((_, StoreRecord::Begin { scope, .. }))) => Ok(Some(scope)),
        Ok(_) | Err(StoreFileError::Damaged(_)) => Ok(None),
        Err(StoreFileError::Io(error)) => Err(error),
    }
}

/// Has what a file has survive a power cut; one that is gone has nothing.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    match File::open(path) {
        Ok(file) => file.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Adds `bytes` to a file that is `length` bytes long; what is behind that is no record.
pub(super) fn append(path: &Path, length: u64, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.set_len(length)?;
    file.seek(SeekFrom::Start(length))?;
    file.write_all(bytes)
}

/// The document of a record.
pub(super) fn document(file: &mut File, place: RecordPlace) -> Result<Document, StoreFileError> {
    stored(file, place).map(|stored| stored.document)
}

/// The document of a record with its vector.
pub(super) fn stored(
    file: &mut File,
    place: RecordPlace,
) -> Result<StoredDocument, StoreFileError> {
    let raw = raw(file, place)?;
    match StoreRecord::read(raw.get(8..).unwrap_or_default(), place.offset)? {
        StoreRecord::Document(stored) => Ok(*stored),
        _ => Err(damaged(place.offset, "has another record in the place of a document")),
    }
}

/// Writes a file whole, in the place of one that may be there: its beginning, these records of the old one, and the event
/// up to which it is filled. After it nothing else of the old file is on the disk. Gives the new places, and the length.
pub(super) fn rewrite(
    path: &Path,
    begin: &StoreRecord,
    kept: &[RecordPlace],
    upto: u64,
) -> Result<(Vec<RecordPlace>, u64), StoreFileError> {
    let temporary = path.with_extension("new");
    let mut new = BufWriter::new(File::create(&temporary).map_err(StoreFileError::Io)?);
    let mut write = |bytes: &[u8]| new.write_all(bytes).map_err(StoreFileError::Io);
    let begin = begin.framed().map_err(StoreFileError::Io)?;
    write(&begin)?;
    let mut offset = u64::try_from(begin.len()).unwrap_or(u64::MAX);
    let mut places = Vec::with_capacity(kept.len());
    if !kept.is_empty() {
        let mut old = File::open(path).map_err(StoreFileError::Io)?;
        for place in kept {
            write(&raw(&mut old, *place)?)?;
            places.push(RecordPlace { offset, bytes: place.bytes });
            offset += u64::from(place.bytes);
        }
    }
    let end = StoreRecord::Upto(upto).framed().map_err(StoreFileError::Io)?;
    write(&end)?;
    offset += u64::try_from(end.len()).unwrap_or(u64::MAX);
    let new = new.into_inner().map_err(|error| StoreFileError::Io(error.into_error()))?;
    // A new file has nothing that must not come back after a power cut.
    let is_new = !path.exists();
    if !is_new {
        new.sync_all().map_err(StoreFileError::Io)?;
    }
    fs::rename(&temporary, path).map_err(StoreFileError::Io)?;
    if !is_new {
        sync_folder(path).map_err(StoreFileError::Io)?;
    }
    Ok((places, offset))
}

/// Makes durable which files the folder of `path` has.
pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// A record with its head, after its checksum was looked at.
fn raw(file: &mut File, place: RecordPlace) -> Result<Vec<u8>, StoreFileError> {
    file.seek(SeekFrom::Start(place.offset)).map_err(StoreFileError::Io)?;
    let mut raw = Vec::new();
    file.take(u64::from(place.bytes)).read_to_end(&mut raw).map_err(StoreFileError::Io)?;
    let Ok((length, sum)) = head(&mut raw.as_slice()) else {
        return Err(damaged(place.offset, "ends within a record"));
    };
    let body = raw.get(8..).unwrap_or_default();
    let is_whole = u32::try_from(body.len()) == Ok(length) && crc32fast::hash(body) == sum;
    if is_whole { Ok(raw) } else { Err(damaged(place.offset, "fails its checksum")) }
}

fn head(file: &mut impl io::Read) -> io::Result<(u32, u32)> {
    let (mut length, mut sum) = ([0; 4], [0; 4]);
    file.read_exact(&mut length)?;
    file.read_exact(&mut sum)?;
    Ok((u32::from_le_bytes(length), u32::from_le_bytes(sum)))
}

fn body(file: &mut impl io::Read, length: u32) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    file.take(u64::from(length)).read_to_end(&mut body)?;
    Ok(body)
}

fn damaged(offset: u64, what: &str) -> StoreFileError {
    StoreFileError::Damaged(format!("its file {what}, at byte {offset}"))
}
