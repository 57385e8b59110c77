//! Long reads run on threads of their own, so that they block no thread of the async runtime.

use std::sync::Arc;

use clawnode_cluster::StoreError;

use super::{index::Loc, shared::OpenDirectory};

/// Records that are read at once without another thread: from the page cache that takes less than a
/// millisecond, and another thread costs some tens of microseconds.
pub(super) const INLINE_RECORDS: usize = 64;
/// Bytes (64 KiB) that are read at once without another thread.
const INLINE_BYTES: u64 = 64 << 10;

/// Whether records can be read here. One record always can: a body is small.
pub(super) fn is_small(locs: impl IntoIterator<Item = Loc>) -> bool {
    let (mut records, mut bytes) = (0, 0);
    for loc in locs {
        records += 1;
        bytes += u64::from(loc.len);
        if records > 1 && (records > INLINE_RECORDS || bytes > INLINE_BYTES) {
            return false;
        }
    }
    true
}

/// Runs a read on a thread that may block on the disk.
pub(super) async fn blocking<T: Send + 'static>(
    shared: &Arc<OpenDirectory>,
    store: &'static str,
    read: impl FnOnce(&OpenDirectory) -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let shared = Arc::clone(shared);
    tokio::task::spawn_blocking(move || read(&shared)).await.unwrap_or_else(|error| {
        // It panicked, or the runtime ends.
        Err(StoreError::Unavailable { store, detail: error.to_string() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_records_and_many_bytes_are_not_small() {
        let loc = |len| Loc { segment: 1, offset: 0, len };
        assert!(is_small([loc(1 << 20)]));
        assert!(is_small([loc(1); INLINE_RECORDS]));
        assert!(!is_small([loc(1); INLINE_RECORDS + 1]));
        assert!(!is_small([loc(1), loc(64 << 10)]));
    }
}
