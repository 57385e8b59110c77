//! The one encoding of everything that is stored or sent: `MessagePack` with named fields.
//!
//! Named fields cost bytes and buy evolution: a reader skips fields it does not know and fills
//! those that an older writer did not send from their defaults.

use std::io;

use serde::{
    Deserialize, Serialize,
    de::{DeserializeOwned, IgnoredAny},
};

use crate::id::Digest;

/// Most values need no more bytes than these, so that what they are written to seldom grows.
const COMMON_SIZE: usize = 256;
/// Bytes that are hashed together: hashing many at a time takes less time for each.
const HASHED_SIZE: usize = 32 << 10;

/// Why bytes could not be turned into a value, or a value into bytes.
#[derive(Debug, thiserror::Error)]
pub enum CodecError {
    /// The value cannot be written as `MessagePack`.
    #[error("cannot encode `{what}`")]
    Encode {
        /// The Rust type.
        what: &'static str,
        /// What the encoder said.
        source: rmp_serde::encode::Error,
    },
    /// The bytes are not this type.
    #[error("cannot decode `{what}` from {len} bytes")]
    Decode {
        /// The Rust type.
        what: &'static str,
        /// How many bytes there were.
        len: usize,
        /// What the decoder said.
        source: rmp_serde::decode::Error,
    },
    /// The bytes are this type and something more: a part of them was not read.
    #[error("`{what}` ends {rest} bytes before its {len} bytes do")]
    Trailing {
        /// The Rust type.
        what: &'static str,
        /// How many bytes there were.
        len: usize,
        /// How many of them were left over.
        rest: usize,
    },
}

/// Encodes `value` as `MessagePack` with named fields.
pub fn encode<T: Serialize>(value: &T) -> Result<Vec<u8>, CodecError> {
    let mut bytes = Vec::with_capacity(COMMON_SIZE);
    match rmp_serde::encode::write_named(&mut bytes, value) {
        Ok(()) => Ok(bytes),
        Err(source) => Err(CodecError::Encode { what: std::any::type_name::<T>(), source }),
    }
}

/// The digest of the bytes that [`encode`] gives, without all of them in memory at a time.
pub fn digest<T: Serialize>(value: &T) -> Result<Digest, CodecError> {
    let mut hashed = Hashed::default();
    match rmp_serde::encode::write_named(&mut hashed, value) {
        Ok(()) => Ok(hashed.digest()),
        Err(source) => Err(CodecError::Encode { what: std::any::type_name::<T>(), source }),
    }
}

/// Hashes what is written to it.
#[derive(Default)]
struct Hashed {
    hasher: blake3::Hasher,
    /// Fewer bytes than are hashed together.
    waiting: Vec<u8>,
}

// === impl Hashed ===

impl Hashed {
    fn hash(&mut self) {
        self.hasher.update(&self.waiting);
        self.waiting.clear();
    }

    fn digest(mut self) -> Digest {
        self.hash();
        Digest::from_bytes(*self.hasher.finalize().as_bytes())
    }
}

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= HASHED_SIZE {
            self.hash();
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Decodes a value that may borrow from its bytes. What follows it is not noticed: for bytes whose
/// digest was compared.
pub fn decode_part<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, CodecError> {
    rmp_serde::from_slice(bytes).map_err(|source| CodecError::Decode {
        what: std::any::type_name::<T>(),
        len: bytes.len(),
        source,
    })
}

/// Decodes a value that [`encode`] wrote, now or in an earlier version: these bytes and no more.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(bytes);
    let value = T::deserialize(&mut reader).map_err(|source| CodecError::Decode {
        what: std::any::type_name::<T>(),
        len: bytes.len(),
        source,
    })?;
    // `from_slice` would ignore what follows the value, and so a list whose length was damaged. The reader
    // does not say what is left. It finds no further value only where nothing is left.
    match bool::deserialize(&mut reader) {
        Err(rmp_serde::decode::Error::InvalidMarkerRead(_)) => Ok(value),
        Ok(_) | Err(_) => match after_the_first(bytes) {
            0 => Ok(value),
            rest => {
                let (what, len) = (std::any::type_name::<T>(), bytes.len());
                Err(CodecError::Trailing { what, len, rest })
            }
        },
    }
}

/// How many bytes follow the first value, which could be read.
#[cold]
fn after_the_first(bytes: &[u8]) -> usize {
    let mut rest = bytes;
    drop(rmp_serde::from_read::<_, IgnoredAny>(&mut rest));
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_encoded_value() {
        for texts in [0, 1, 7, 500] {
            let value: Vec<(String, u64)> =
                (0..texts).map(|n| ("x".repeat(n * 37 % 1_000), n as u64)).collect();
            let bytes = encode(&value).unwrap();
            assert_eq!(digest(&value).unwrap(), Digest::of(&bytes), "of {} bytes", bytes.len());
        }
        let long = "x".repeat(3 * HASHED_SIZE);
        assert_eq!(digest(&long).unwrap(), Digest::of(&encode(&long).unwrap()));
    }

    /// Every kind of value may follow, whole or cut: none of it passes for the end.
    #[test]
    fn what_follows_a_value_is_an_error_that_counts_it() {
        let value = vec![("a".to_owned(), 1_u64), ("b".to_owned(), 2)];
        let bytes = encode(&value).unwrap();
        assert_eq!(decode::<Vec<(String, u64)>>(&bytes).unwrap(), value);
        // Of all markers of the format: numbers, nil, booleans, texts, bytes, lists, maps, extensions.
        for marker in 0..=u8::MAX {
            for more in [0, 1, 9] {
                let mut bytes = bytes.clone();
                bytes.push(marker);
                bytes.resize(bytes.len() + more, 0);
                match decode::<Vec<(String, u64)>>(&bytes) {
                    Err(CodecError::Trailing { rest, len, .. }) => {
                        assert_eq!((rest, len), (1 + more, bytes.len()), "{marker:#x}");
                    }
                    other => panic!("{marker:#x} and {more} zeros follow: {other:?}"),
                }
            }
        }
        for cut in 0..bytes.len() {
            let part = decode::<Vec<(String, u64)>>(&bytes[..cut]);
            assert!(matches!(part, Err(CodecError::Decode { .. })), "{cut}: {part:?}");
        }
    }
}
