//! Numbers at a place of a record or key, most significant byte first.

pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_be_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

pub(super) fn u128_at(bytes: &[u8], at: usize) -> Option<u128> {
    Some(u128::from_be_bytes(bytes.get(at..at + 16)?.try_into().ok()?))
}
