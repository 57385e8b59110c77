//! The one encoding of everything that is stored or sent: `MessagePack` with named fields.
//!
//! Named fields cost bytes and buy evolution: a reader skips fields it does not know and fills
//! those that an older writer did not send from their defaults.

use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Most values need no more bytes than these, so that what they are written to seldom grows.
const COMMON_SIZE: usize = 256;

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
    let what = std::any::type_name::<T>;
    let len = bytes.len();
    // `from_slice` would ignore what follows the value, and so a list whose length was damaged.
    let mut rest = bytes;
    let value = rmp_serde::from_read(&mut rest).map_err(|source| CodecError::Decode {
        what: what(),
        len,
        source,
    })?;
    match rest.len() {
        0 => Ok(value),
        rest => Err(CodecError::Trailing { what: what(), len, rest }),
    }
}
