//! Reads the table of vectors of a static model from a file in the format safetensors: the length of a header, the header as
//! JSON, and the numbers.

use std::{collections::BTreeMap, fmt};

use clawnode_proto::limits::EMBED_DIMENSIONS;
use serde::Deserialize;
use serde_json::Value;

use super::word_pieces::TOKENS_MOST;

/// How large a header may be.
const HEADER_BYTES: usize = 1 << 20;
/// The entry of a header that is no table.
const METADATA: &str = "__metadata__";
/// What model2vec and sentence-transformers call the table.
const NAMES: [&str; 2] = ["embeddings", "embedding.weight"];
/// As many names of other tables as are repeated.
const NAMES_TOLD: usize = 4;

/// A vector for each token.
pub(super) struct VectorTable {
    bytes: Vec<u8>,
    /// Where its numbers begin.
    begin: usize,
    number: NumberForm,
    rows: usize,
    dimensions: usize,
}

/// How numbers are written.
#[derive(Clone, Copy, Debug)]
enum NumberForm {
    F16,
    F32,
}

#[derive(Deserialize)]
struct TensorEntry {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

// === impl VectorTable ===

impl fmt::Debug for VectorTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VectorTable")
            .field("rows", &self.rows)
            .field("dimensions", &self.dimensions)
            .finish_non_exhaustive()
    }
}

impl VectorTable {
    /// Reads the file; says what is wrong with it.
    pub(super) fn read(bytes: Vec<u8>) -> Result<Self, String> {
        let (entry, data) = header(&bytes)?;
        let number = match entry.dtype.as_str() {
            "F16" => NumberForm::F16,
            "F32" => NumberForm::F32,
            other => {
                let other: String = other.chars().take(40).collect();
                return Err(format!("its numbers are {other:?}; `F16` and `F32` can be used"));
            }
        };
        let &[rows, dimensions] = entry.shape.as_slice() else {
            return Err(format!("its table has {} dimensions instead of 2", entry.shape.len()));
        };
        if !(1..=TOKENS_MOST).contains(&rows) || !(1..=EMBED_DIMENSIONS).contains(&dimensions) {
            return Err(format!(
                "its table has {rows} vectors of {dimensions} numbers; up to {TOKENS_MOST} of {EMBED_DIMENSIONS} \
                 can be used"
            ));
        }
        let size = rows.saturating_mul(dimensions).saturating_mul(number.bytes());
        let [from, to] = entry.data_offsets;
        let end = bytes.len().saturating_sub(data);
        if to.checked_sub(from) != Some(size) || to > end {
            return Err(format!(
                "its table needs {size} bytes, and the header says {from} to {to} of {end}; copy the file again"
            ));
        }
        let table = Self { bytes, begin: data + from, number, rows, dimensions };
        match (0..rows).find(|row| table.row(*row).any(|number| !number.is_finite())) {
            Some(row) => Err(format!("the vector of token {row} has a value that is not a number")),
            None => Ok(table),
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    /// Numbers of a vector.
    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// The numbers of a vector; none if there is no such row.
    pub(super) fn row(&self, row: usize) -> impl Iterator<Item = f32> {
        let (bytes, number) = (self.dimensions * self.number.bytes(), self.number);
        let begin = row.saturating_mul(bytes).saturating_add(self.begin);
        let is_there = row < self.rows;
        let row = self.bytes.get(begin..begin.saturating_add(bytes)).filter(|_| is_there);
        row.unwrap_or_default().chunks_exact(number.bytes()).map(move |bytes| number.read(bytes))
    }
}

/// What the header says of the table, and where the numbers of the file begin.
fn header(bytes: &[u8]) -> Result<(TensorEntry, usize), String> {
    let Some((length, rest)) = bytes.split_first_chunk::<8>() else {
        return Err("it ends before its header".to_owned());
    };
    let length = usize::try_from(u64::from_le_bytes(*length)).unwrap_or(usize::MAX);
    if length > HEADER_BYTES {
        return Err(format!(
            "its header has {length} bytes, and {HEADER_BYTES} are the most; is it a safetensors file?"
        ));
    }
    let Some(header) = rest.get(..length) else {
        return Err("it ends within its header; copy the file again".to_owned());
    };
    let mut entries: BTreeMap<String, Value> = serde_json::from_slice(header)
        .map_err(|failure| format!("its header cannot be read: {failure}"))?;
    entries.remove(METADATA);
    let entry = NAMES.iter().find_map(|name| entries.remove(*name));
    // Weights of tokens, for example: vectors would be wrong without them.
    let others: Vec<String> = entries
        .keys()
        .take(NAMES_TOLD)
        .map(|name| format!("{:?}", name.chars().take(40).collect::<String>()))
        .collect();
    let Some(entry) = entry.filter(|_| others.is_empty()) else {
        let found = if others.is_empty() { "nothing else".to_owned() } else { others.join(", ") };
        return Err(format!(
            "a static model has one table, `{}` or `{}`, and this file has {found}",
            NAMES[0], NAMES[1]
        ));
    };
    let entry = serde_json::from_value(entry)
        .map_err(|failure| format!("its header does not describe the table: {failure}"))?;
    Ok((entry, 8 + length))
}

// === impl NumberForm ===

impl NumberForm {
    fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }

    fn read(self, bytes: &[u8]) -> f32 {
        match self {
            Self::F16 => {
                bytes.first_chunk().map_or(f32::NAN, |bytes| half(u16::from_le_bytes(*bytes)))
            }
            Self::F32 => bytes.first_chunk().map_or(f32::NAN, |bytes| f32::from_le_bytes(*bytes)),
        }
    }
}

/// The number that these 16 bits are in the format binary16 of IEEE 754.
fn half(bits: u16) -> f32 {
    let (sign, exponent, fraction) = (bits >> 15, (bits >> 10) & 0x1f, bits & 0x3ff);
    let (wide_sign, wide_fraction) = (u32::from(sign) << 31, u32::from(fraction) << 13);
    match exponent {
        // In units of 2^-24.
        0 => {
            let size = f32::from(fraction) / 16_777_216.0;
            if sign == 0 { size } else { -size }
        }
        0x1f => f32::from_bits(wide_sign | 0x7f80_0000 | wide_fraction),
        _ => f32::from_bits(wide_sign | ((u32::from(exponent) + 112) << 23) | wide_fraction),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    fn framed(header: &str, data: &[u8]) -> Vec<u8> {
        let length = u64::try_from(header.len()).unwrap_or_default().to_le_bytes();
        [&length[..], header.as_bytes(), data].concat()
    }

    /// A file with these vectors as `F32`, all of one length.
    pub(in crate::embed) fn table(rows: &[&[f32]]) -> Vec<u8> {
        let data: Vec<u8> = rows.iter().copied().flatten().flat_map(|n| n.to_le_bytes()).collect();
        let (count, length) = (rows.len(), rows.first().map_or(0, |row| row.len()));
        let header = format!(
            r#"{{"__metadata__":{{"format":"pt"}},"embeddings":{{"dtype":"F32","shape":[{count},{length}],"data_offsets":[0,{}]}}}}"#,
            data.len()
        );
        framed(&header, &data)
    }

    #[test]
    fn numbers_are_read_in_both_forms() {
        let read = VectorTable::read(table(&[&[1.0, -2.5], &[0.0, 3.25]])).unwrap();
        assert_eq!((read.rows(), read.dimensions()), (2, 2));
        assert_eq!(read.row(1).collect::<Vec<_>>(), [0.0, 3.25]);
        assert_eq!((read.row(2).count(), read.row(usize::MAX).count()), (0, 0));
        let header = r#"{"embedding.weight":{"dtype":"F16","shape":[1,3],"data_offsets":[2,8]}}"#;
        let data = [0, 0, 0x00, 0x3c, 0x00, 0xc1, 0x01, 0x00];
        let read = VectorTable::read(framed(header, &data)).unwrap();
        assert_eq!(read.row(0).collect::<Vec<_>>(), [1.0, -2.5, 2.0_f32.powi(-24)]);
    }

    #[test]
    fn halves_are_what_ieee_754_says() {
        for (bits, number) in [
            (0x0000, 0.0),
            (0x8001, -(2.0_f32.powi(-24))),
            (0x03ff, 1_023.0 * 2.0_f32.powi(-24)),
            (0x0400, 2.0_f32.powi(-14)),
            (0x3555, 0.333_251_95),
            (0x7bff, 65_504.0),
            (0xfbff, -65_504.0),
            (0x7c00, f32::INFINITY),
            (0xfc00, f32::NEG_INFINITY),
        ] {
            assert_eq!(half(bits).to_bits(), f32::to_bits(number), "{bits:04x}");
        }
        assert!(half(0x8000).is_sign_negative());
        assert!(half(0x7c01).is_nan());
    }

    #[test]
    fn what_is_no_table_is_refused() {
        let entry = |dtype: &str, shape: &str, offsets: &str| {
            format!(
                r#"{{"embeddings":{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}}}"#
            )
        };
        let two =
            r#"{"embeddings":{"dtype":"F32","shape":[1,1],"data_offsets":[0,4]},"weights":{}}"#;
        for (header, says) in [
            (entry("F32", "[1,2]", "[0,8]"), "needs 8 bytes"),
            (entry("F32", "[1,1]", "[4,8]"), "4 to 8 of 4"),
            (entry("F32", "[1,1]", "[8,4]"), "8 to 4 of 4"),
            (entry("F32", "[1,1]", "[0,18446744073709551615]"), "needs 4 bytes"),
            (entry("I8", "[1,4]", "[0,4]"), "its numbers are \"I8\""),
            (entry("F32", "[1]", "[0,4]"), "1 dimensions instead of 2"),
            (entry("F32", "[0,1]", "[0,0]"), "0 vectors"),
            (entry("F32", "[1,9000]", "[0,36000]"), "9000 numbers"),
            (entry("F32", "[18446744073709551615,2]", "[0,4]"), "vectors of 2 numbers"),
            (entry("F32", "[-1,1]", "[0,4]"), "does not describe the table"),
            (two.to_owned(), "this file has \"weights\""),
            ("{}".to_owned(), "has nothing else"),
            ("[]".to_owned(), "cannot be read"),
        ] {
            let why = VectorTable::read(framed(&header, &[0; 4])).unwrap_err();
            assert!(why.contains(says), "{why}");
        }
        let whole = table(&[&[1.0, 2.0]]);
        for length in 0..whole.len() {
            let cut = whole.get(..length).unwrap_or_default().to_vec();
            assert!(VectorTable::read(cut).is_err(), "{length}");
        }
        let why = VectorTable::read(vec![0xff; 64]).unwrap_err();
        assert!(why.contains("is it a safetensors file?"), "{why}");
        let why = VectorTable::read(table(&[&[1.0], &[f32::NAN]])).unwrap_err();
        assert!(why.contains("token 1"), "{why}");
    }

    proptest! {
        #[test]
        fn any_file_is_read_or_refused(
            bytes in proptest::collection::vec(any::<u8>(), 0..200), place in 0_usize..140, byte in any::<u8>(),
        ) {
            drop(VectorTable::read(bytes));
            let mut bytes = table(&[&[1.0, 2.0], &[3.0, 4.0]]);
            if let Some(changed) = bytes.get_mut(place) {
                *changed = byte;
            }
            if let Ok(read) = VectorTable::read(bytes) {
                for row in 0..read.rows() {
                    prop_assert_eq!(read.row(row).count(), read.dimensions());
                }
            }
        }
    }
}
