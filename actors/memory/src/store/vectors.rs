//! Vectors of one scope, with a byte for each number, and an exact search over all of them.

/// The greatest number of a vector, as a byte.
const GREATEST: f32 = 127.0;
/// Numbers of two vectors that are multiplied without a loop: that takes half as long as one by one.
const CHUNK: usize = 32;

/// Vectors in the order of the documents; a document may have none.
#[derive(Debug, Default)]
pub(super) struct Vectors {
    /// Numbers of a vector; 0 if the store has none.
    dimensions: usize,
    values: Vec<i8>,
    /// One divided by the length of each vector; 0 for none.
    inverse_lengths: Vec<f64>,
}

/// The vector with a byte for each number, in its own scale. An angle does not depend on that scale.
pub(super) fn in_bytes(vector: &[f32]) -> Vec<i8> {
    let greatest = vector.iter().fold(0.0_f32, |greatest, value| greatest.max(value.abs()));
    if !greatest.is_normal() {
        return vec![0; vector.len()];
    }
    let byte = |value: &f32| {
        let scaled = (value / greatest * GREATEST).round();
        #[expect(clippy::cast_possible_truncation, reason = "a cast keeps it within -127 and 127")]
        let byte = scaled as i8;
        byte
    };
    vector.iter().map(byte).collect()
}

// === impl Vectors ===

impl Vectors {
    pub(super) fn new(dimensions: usize) -> Self {
        Self { dimensions, ..Self::default() }
    }

    pub(super) fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// Adds the vector of the next document.
    pub(super) fn push(&mut self, vector: Option<&[i8]>) {
        if self.dimensions == 0 {
            return;
        }
        let vector = vector.filter(|vector| vector.len() == self.dimensions);
        match vector {
            Some(vector) => self.values.extend_from_slice(vector),
            None => self.values.resize(self.values.len() + self.dimensions, 0),
        }
        self.inverse_lengths.push(vector.map_or(0.0, inverse_length));
    }

    /// How near each document is to `query`: the cosine of the angle between them; none where a document has no vector.
    pub(super) fn cosines(&self, query: &[i8]) -> impl Iterator<Item = Option<f64>> {
        let own = inverse_length(query);
        let wide: Vec<i16> = query.iter().map(|value| i16::from(*value)).collect();
        let vectors = self.values.chunks_exact(self.dimensions.max(1));
        vectors.zip(&self.inverse_lengths).map(move |(vector, inverse)| {
            let known = *inverse > 0.0 && own > 0.0;
            known.then(|| f64::from(product(vector, &wide)) * inverse * own)
        })
    }
}

/// The products of two bytes fit into 16 bits, and those of 8,192 of them into 32.
fn product(vector: &[i8], query: &[i16]) -> i32 {
    let (chunks, rest) = vector.as_chunks::<CHUNK>();
    let (query_chunks, query_rest) = query.as_chunks::<CHUNK>();
    let products = chunks.iter().zip(query_chunks).map(|(one, other)| sum(one, other));
    products.sum::<i32>() + sum(rest, query_rest)
}

/// Where the length is known when it is compiled, it becomes multiplications of eight numbers at once.
fn sum<'a>(
    vector: impl IntoIterator<Item = &'a i8>,
    query: impl IntoIterator<Item = &'a i16>,
) -> i32 {
    let pairs = vector.into_iter().zip(query);
    pairs.map(|(one, other)| i32::from(*one) * i32::from(*other)).sum()
}

fn inverse_length(vector: &[i8]) -> f64 {
    let square: i32 = vector.iter().map(|value| i32::from(*value) * i32::from(*value)).sum();
    if square == 0 { 0.0 } else { 1.0 / f64::from(square).sqrt() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_keep_the_angle_between_vectors() {
        let one: Vec<f32> = (0..64_u8).map(|at| (f32::from(at) * 0.7).sin()).collect();
        let other: Vec<f32> = (0..64_u8).map(|at| (f32::from(at) * 0.9).cos() * 30.0).collect();
        let exact = {
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            f64::from(dot(&one, &other) / (dot(&one, &one) * dot(&other, &other)).sqrt())
        };
        let mut vectors = Vectors::new(64);
        vectors.push(Some(&in_bytes(&one)));
        vectors.push(None);
        vectors.push(Some(&in_bytes(&other)));
        let found: Vec<Option<f64>> = vectors.cosines(&in_bytes(&other)).collect();
        assert!((found[0].unwrap() - exact).abs() < 0.01, "{found:?}, exactly {exact}");
        assert_eq!(found[1], None);
        assert!((found[2].unwrap() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn vectors_of_any_length_are_compared_whole() {
        for dimensions in 1..=2 * CHUNK + 1 {
            for place in 0..dimensions {
                let with = |value| {
                    let mut vector = vec![0; dimensions];
                    vector[place] = value;
                    vector
                };
                let mut vectors = Vectors::new(dimensions);
                vectors.push(Some(&with(-127)));
                let found: Vec<Option<f64>> = vectors.cosines(&with(127)).collect();
                assert!((found[0].unwrap() + 1.0).abs() < 1e-9, "{place} of {dimensions}");
            }
        }
        let greatest = [i8::MIN; 8_192];
        let wide = greatest.map(i16::from);
        assert_eq!(product(&greatest, &wide), 8_192 * 128 * 128);
    }

    #[test]
    fn a_vector_that_points_nowhere_is_none() {
        let mut vectors = Vectors::new(2);
        vectors.push(Some(&in_bytes(&[0.0, 0.0])));
        vectors.push(Some(&in_bytes(&[f32::NAN, f32::INFINITY])));
        vectors.push(Some(&[1, 1]));
        let found: Vec<Option<f64>> = vectors.cosines(&[1, 0]).collect();
        assert_eq!((found[0], found[1]), (None, None));
        assert!(found[2].is_some());
        assert!(vectors.cosines(&[0, 0]).all(|cosine| cosine.is_none()));
    }
}
