//! Embeddings: texts as vectors. A wire that has them has an [`EmbedDialect`] beside its other half, which
//! writes requests and reads answers without I/O; sending, retries, circuit and pacing are those of other calls.

use std::fmt;

use clawnode_proto::{
    embed::Vector,
    limits::{EMBED_BATCH, EMBED_DIMENSIONS, EMBED_TEXT_BYTES},
    llm::{FailureClass, ModelFailure},
};

use super::{
    http::{AttemptFailure, Prepared},
    prompt::not_sent,
};

/// Texts for which a model is asked for vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedRequest {
    /// The model's name at its provider.
    pub model: String,
    /// The texts, at most [`EMBED_BATCH`].
    pub texts: Vec<String>,
    /// How many numbers each vector shall have; absent leaves it to the model.
    pub dimensions: Option<u32>,
}

/// The vectors of texts, in their order and of one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbedReply {
    /// One for each text.
    pub vectors: Vec<Vector>,
    /// Tokens that the model read; 0 if its provider does not count them.
    pub input_tokens: u64,
}

/// What is particular to one wire.
pub(super) trait EmbedDialect: fmt::Debug + Send + Sync + 'static {
    /// The request on the wire.
    fn request(&self, request: &EmbedRequest) -> Result<Prepared, ModelFailure>;
    /// What the answer says.
    fn read(&self, body: &[u8]) -> Result<ReadVectors, AttemptFailure>;
    /// Texts of one request at most.
    fn most_texts(&self) -> usize {
        EMBED_BATCH
    }
}

/// What an answer has, before it is compared with what was asked.
#[derive(Debug, PartialEq)]
pub(super) struct ReadVectors {
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) input_tokens: Option<u64>,
}

// === impl EmbedRequest ===

impl EmbedRequest {
    /// Refuses what no provider takes.
    pub(super) fn check(&self) -> Result<(), ModelFailure> {
        if self.texts.is_empty() || self.texts.len() > EMBED_BATCH {
            let count = self.texts.len();
            return Err(not_sent(format_args!("{count} texts instead of 1 to {EMBED_BATCH}")));
        }
        if self.texts.iter().any(|text| text.is_empty() || text.len() > EMBED_TEXT_BYTES) {
            return Err(not_sent(format_args!(
                "a text is empty, or longer than {EMBED_TEXT_BYTES} bytes"
            )));
        }
        Ok(())
    }

    /// Requests for all texts of which each has so many at most.
    pub(super) fn parts(&self, most: usize) -> Vec<Self> {
        let part = |texts: &[String]| Self { texts: texts.to_vec(), ..self.clone() };
        self.texts.chunks(most.max(1)).map(part).collect()
    }

    /// The vectors of an answer, if they are what was asked for.
    pub(super) fn judge(&self, read: ReadVectors) -> Result<EmbedReply, AttemptFailure> {
        let ReadVectors { vectors, input_tokens } = read;
        let broken = |what: &str| AttemptFailure::last(FailureClass::BrokenStream, what);
        if vectors.len() != self.texts.len() {
            return Err(broken("the provider did not answer with one vector for each text"));
        }
        let length = vectors.first().map_or(0, Vec::len);
        if vectors.iter().any(|vector| vector.len() != length) || length == 0 {
            return Err(broken("the provider answered with vectors of different lengths, or none"));
        }
        if vectors.iter().flatten().any(|number| !number.is_finite()) {
            return Err(broken("the provider answered with numbers that are none"));
        }
        let wanted = self.dimensions.and_then(|dimensions| usize::try_from(dimensions).ok());
        let unfit = |what| Err(AttemptFailure::last(FailureClass::Rejected, what));
        if let Some(wanted) = wanted.filter(|wanted| *wanted != length) {
            return unfit(format!(
                "`dimensions`: the model answered with vectors of {length} numbers instead of {wanted}; \
                 leave it out"
            ));
        }
        if length > EMBED_DIMENSIONS {
            return unfit(format!(
                "the model answered with vectors of {length} numbers, and {EMBED_DIMENSIONS} is the most; \
                 set `dimensions` if the model has it"
            ));
        }
        let vectors = vectors.iter().map(|numbers| Vector::new(numbers)).collect();
        Ok(EmbedReply { vectors, input_tokens: input_tokens.unwrap_or(0) })
    }
}

// === impl EmbedReply ===

impl EmbedReply {
    /// The answers to parts of a request as one.
    pub(super) fn joined(parts: Vec<Self>) -> Result<Self, ModelFailure> {
        let length = parts.iter().flat_map(|part| &part.vectors).map(Vector::len).next();
        let mut whole = Self { vectors: Vec::new(), input_tokens: 0 };
        for part in parts {
            if part.vectors.iter().any(|vector| Some(vector.len()) != length) {
                let what = "the provider answered with vectors of different lengths";
                return Err(ModelFailure::new(FailureClass::BrokenStream, what.to_owned()));
            }
            whole.input_tokens = whole.input_tokens.saturating_add(part.input_tokens);
            whole.vectors.extend(part.vectors);
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(texts: usize, dimensions: Option<u32>) -> EmbedRequest {
        EmbedRequest { model: "m".to_owned(), texts: vec!["a".to_owned(); texts], dimensions }
    }

    #[test]
    fn vectors_that_are_not_what_was_asked_for_are_refused() {
        let read = |vectors| ReadVectors { vectors, input_tokens: None };
        let good = vec![vec![0.5, 1.0], vec![0.0, -1.0]];
        let reply = asked(2, Some(2)).judge(read(good.clone())).unwrap();
        assert_eq!(reply.vectors[1].numbers().collect::<Vec<_>>(), [0.0, -1.0]);
        for (request, vectors, says) in [
            (asked(3, None), good.clone(), "one vector for each text"),
            (asked(2, None), vec![vec![0.5], vec![0.5, 1.0]], "different lengths"),
            (asked(1, None), vec![vec![]], "different lengths, or none"),
            (asked(1, None), vec![vec![f32::INFINITY]], "numbers that are none"),
            (asked(2, Some(3)), good, "vectors of 2 numbers instead of 3"),
            (asked(1, None), vec![vec![0.5; EMBED_DIMENSIONS + 1]], "8193 numbers"),
        ] {
            let fault = request.judge(read(vectors)).unwrap_err();
            assert!(fault.failure.message.contains(says), "{}", fault.failure.message);
            assert!(!fault.again, "{says}");
        }
    }

    #[test]
    fn parts_of_a_request_are_answered_as_one() {
        let parts = asked(5, Some(2)).parts(2);
        let sizes: Vec<usize> = parts.iter().map(|part| part.texts.len()).collect();
        assert_eq!((sizes, parts[0].dimensions), (vec![2, 2, 1], Some(2)));
        let reply = |numbers: &[f32], input_tokens| EmbedReply {
            vectors: vec![Vector::new(numbers)],
            input_tokens,
        };
        let joined = EmbedReply::joined(vec![reply(&[0.5], 1), reply(&[2.0], 3)]).unwrap();
        let numbers: Vec<f32> = joined.vectors.iter().flat_map(Vector::numbers).collect();
        assert_eq!((numbers, joined.input_tokens), (vec![0.5, 2.0], 4));
        assert!(EmbedReply::joined(vec![reply(&[0.5], 1), reply(&[2.0, 1.0], 3)]).is_err());
    }

    #[test]
    fn what_no_provider_takes_is_not_sent() {
        asked(EMBED_BATCH, None).check().unwrap();
        for texts in [0, EMBED_BATCH + 1] {
            assert!(asked(texts, None).check().is_err(), "{texts}");
        }
        for text in [String::new(), "a".repeat(EMBED_TEXT_BYTES + 1)] {
            let request = EmbedRequest { texts: vec![text], ..asked(1, None) };
            assert!(request.check().is_err());
        }
    }
}
