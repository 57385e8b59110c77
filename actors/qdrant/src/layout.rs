//! Which points there are on the server, and what is in them.
//!
//! Two collections for each model of vectors: one has the documents, the other one how far scopes are filled and what is
//! masked. The id of a point follows from what it is, so writing it again adds nothing.

use std::collections::HashMap;

use clawnode_memory::store::{Document, DocumentId, StoreScope};
use clawnode_proto::EntityId;
use qdrant_client::qdrant::{
    Condition, Filter, NamedVectors, PointId, PointStruct, RetrievedPoint, Value, Vectors,
    point_id::PointIdOptions, value::Kind, vector_output,
};

/// The form of the points. Another one has other collections.
const VERSION: u32 = 1;
/// What the name of a collection without vectors ends with.
const WORDS: &str = "words";
/// Digits of the hash of a model's name.
const HASH_DIGITS: usize = 8;
/// The name of the vector of a document.
pub(crate) const DENSE: &str = "dense";

/// What a point has.
pub(crate) mod key {
    /// The text of its scope.
    pub(crate) const SCOPE: &str = "scope";
    /// The entity of its scope.
    pub(crate) const ENTITY: &str = "entity";
    /// The generation of its scope that it belongs to.
    pub(crate) const GENERATION: &str = "generation";
    /// What says whether a document is the same.
    pub(crate) const DIGEST: &str = "digest";
    /// A document as JSON, without its vector.
    pub(crate) const DOCUMENT: &str = "document";
    /// What a point of the state is.
    pub(crate) const WHAT: &str = "what";
    /// The id of a masked document, as JSON.
    pub(crate) const MASKED: &str = "masked";
    /// The event up to which a scope is filled.
    pub(crate) const UPTO: &str = "upto";
    /// Another text after each change of a scope.
    pub(crate) const TOKEN: &str = "token";
    /// The generations before, which may have left points.
    pub(crate) const STALE: &str = "stale";
    /// Which store this is.
    pub(crate) const IDENTITY: &str = "identity";
}

/// The values of [`key::WHAT`].
pub(crate) mod what {
    pub(crate) const SCOPE: &str = "scope";
    pub(crate) const MASK: &str = "mask";
    pub(crate) const STORE: &str = "store";
    /// The index has all that the one had which answered while it was built.
    pub(crate) const WHOLE: &str = "whole";
}

/// What is in a point.
pub(crate) type Payload = HashMap<String, Value>;

/// The id of a point as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PointNumber(u128);

// === impl PointNumber ===

impl PointNumber {
    /// From the parts that say which point it is. Different parts give different ids.
    fn of(parts: &[&str]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for part in parts {
            hasher.update(&u64::try_from(part.len()).unwrap_or(u64::MAX).to_le_bytes());
            hasher.update(part.as_bytes());
        }
        let hash = hasher.finalize();
        let first = hash.as_bytes().first_chunk::<16>().copied().unwrap_or_default();
        Self(u128::from_be_bytes(first))
    }

    pub(crate) fn of_document(scope: &StoreScope, generation: &str, id: DocumentId) -> Self {
        Self::of(&["document", scope.as_str(), generation, &id.to_string()])
    }

    pub(crate) fn of_mask(scope: &StoreScope, generation: &str, id: DocumentId) -> Self {
        Self::of(&["mask", scope.as_str(), generation, &id.to_string()])
    }

    pub(crate) fn of_scope(scope: &StoreScope) -> Self {
        Self::of(&["scope", scope.as_str()])
    }

    pub(crate) fn of_store() -> Self {
        Self::of(&["store"])
    }

    pub(crate) fn of_whole() -> Self {
        Self::of(&["whole"])
    }

    pub(crate) fn id(self) -> PointId {
        let digits = format!("{:032x}", self.0);
        let parts = [(0, 8), (8, 12), (12, 16), (16, 20), (20, 32)];
        let parts = parts.map(|(from, to)| digits.get(from..to).unwrap_or_default());
        PointId::from(parts.join("-"))
    }

    /// The number of a point that the server gave.
    pub(crate) fn read(point: &RetrievedPoint) -> Option<Self> {
        match point.id.as_ref()?.point_id_options.as_ref()? {
            PointIdOptions::Uuid(text) => {
                let digits: String = text.chars().filter(|digit| *digit != '-').collect();
                u128::from_str_radix(&digits, 16).ok().map(Self)
            }
            PointIdOptions::Num(_) => None,
        }
    }
}

/// The name of the collection of documents with vectors of this model.
pub(crate) fn collection(prefix: &str, model: Option<(&str, usize)>) -> String {
    let Some((name, dimensions)) = model else { return format!("{prefix}-v{VERSION}-{WORDS}") };
    // No `-`: a model such as `nomic-embed-text:v1.5` would look like another prefix.
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() { letter.to_ascii_lowercase() } else { '_' }
    };
    let readable: String = name.chars().map(plain).take(60).collect();
    // Names that differ in other characters alone are other models.
    let hash: String = blake3::hash(name.as_bytes()).to_hex().chars().take(HASH_DIGITS).collect();
    format!("{prefix}-v{VERSION}-{readable}-{hash}-{dimensions}")
}

/// The name of the collection that goes with one of documents.
pub(crate) fn state(documents: &str) -> String {
    format!("{documents}-state")
}

/// How many numbers the vectors in this collection have, 0 for none; none if it is no collection of documents of this
/// prefix. Those of a longer prefix that begins with this one have more parts.
pub(crate) fn dimensions(prefix: &str, collection: &str) -> Option<usize> {
    let rest = collection.strip_prefix(&format!("{prefix}-v{VERSION}-"))?;
    if rest == WORDS {
        return Some(0);
    }
    let mut parts = rest.split('-');
    let (_model, hash, dimensions) = (parts.next()?, parts.next()?, parts.next()?);
    let is_hash = hash.len() == HASH_DIGITS
        && hash.chars().all(|digit| matches!(digit, '0'..='9' | 'a'..='f'));
    let is_whole = is_hash && parts.next().is_none();
    dimensions.parse().ok().filter(|found| *found > 0 && is_whole)
}

/// A text in a point.
pub(crate) fn text<'a>(payload: &'a Payload, key: &str) -> Option<&'a str> {
    match payload.get(key)?.kind.as_ref()? {
        Kind::StringValue(text) => Some(text),
        _ => None,
    }
}

/// A number in a point.
pub(crate) fn number(payload: &Payload, key: &str) -> Option<u64> {
    match payload.get(key)?.kind.as_ref()? {
        Kind::IntegerValue(number) => u64::try_from(*number).ok(),
        _ => None,
    }
}

/// What says whether a document is the same, in its point: the upper half of its text and all else that it has, the lower
/// half of its vector, 0 without one.
pub(crate) fn digest(payload: &Payload) -> Option<u128> {
    u128::from_str_radix(text(payload, key::DIGEST)?, 16).ok()
}

/// Finds the documents that have these digests still.
pub(crate) fn as_seen(digests: &[u128]) -> Filter {
    let digests: Vec<String> = digests.iter().map(|digest| format!("{digest:032x}")).collect();
    Filter::must([Condition::matches(key::DIGEST, digests)])
}

/// Whether two documents differ in nothing but their vectors.
pub(crate) fn is_same_text(one: u128, other: u128) -> bool {
    one >> 64 == other >> 64
}

/// Whether a document with this digest has a vector.
pub(crate) fn has_vector(digest: u128) -> bool {
    digest & u128::from(u64::MAX) != 0
}

fn half_of_hash(bytes: &[u8]) -> u64 {
    let hash = blake3::hash(bytes);
    let first = hash.as_bytes().first_chunk::<8>().copied().unwrap_or_default();
    u64::from_be_bytes(first)
}

/// A payload of texts.
pub(crate) fn texts(pairs: &[(&str, &str)]) -> Payload {
    pairs.iter().map(|(key, text)| ((*key).to_owned(), Value::from(*text))).collect()
}

/// A point with this payload and, if it has one, this vector.
pub(crate) fn point(id: PointNumber, payload: Payload, vector: Option<&[f32]>) -> PointStruct {
    let vectors = match vector {
        Some(vector) => Vectors::from(HashMap::from([(DENSE.to_owned(), vector.to_vec())])),
        // Named vectors may be absent; the list of them may not.
        None => Vectors::from(NamedVectors::default()),
    };
    PointStruct { id: Some(id.id()), payload, vectors: Some(vectors) }
}

/// What all points of a generation of a scope have.
pub(crate) fn of_generation(scope: &StoreScope, generation: &str) -> Payload {
    let entity = scope.entity().to_string();
    texts(&[(key::SCOPE, scope.as_str()), (key::ENTITY, &entity), (key::GENERATION, generation)])
}

/// Finds the points of some generations of a scope.
pub(crate) fn in_generations(scope: &StoreScope, generations: &[String]) -> Filter {
    Filter::must([
        Condition::matches(key::SCOPE, scope.as_str().to_owned()),
        Condition::matches(key::GENERATION, generations.to_vec()),
    ])
}

/// Finds the states of scopes.
pub(crate) fn states() -> Filter {
    Filter::must([Condition::matches(key::WHAT, what::SCOPE.to_owned())])
}

/// Finds the points of an entity that name its scope.
pub(crate) fn of_entity(entity: EntityId) -> Filter {
    Filter::must([Condition::matches(key::ENTITY, entity.to_string())])
}

/// A document as a point.
pub(crate) fn of_document(
    scope: &StoreScope,
    generation: &str,
    document: &Document,
) -> Result<PointStruct, serde_json::Error> {
    let plain = Document { embedding: None, ..document.clone() };
    let json = serde_json::to_string(&plain)?;
    let vector = document.embedding.as_ref().map_or(0, |vector| {
        let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        half_of_hash(&bytes) | 1
    });
    let digest = format!("{:016x}{vector:016x}", half_of_hash(json.as_bytes()));
    let mut payload = of_generation(scope, generation);
    payload.extend(texts(&[(key::DIGEST, &digest), (key::DOCUMENT, &json)]));
    let id = PointNumber::of_document(scope, generation, document.id);
    Ok(point(id, payload, document.embedding.as_deref()))
}

/// The document in a point, with its vector if that was asked for. None if it is of another scope or generation, or
/// cannot be read.
pub(crate) fn document(
    point: &RetrievedPoint,
    scope: &StoreScope,
    generation: &str,
) -> Option<Document> {
    let payload = &point.payload;
    let is_own = text(payload, key::SCOPE) == Some(scope.as_str())
        && text(payload, key::GENERATION) == Some(generation);
    let json = text(payload, key::DOCUMENT).filter(|_| is_own)?;
    let mut document: Document = serde_json::from_str(json).ok()?;
    let number = PointNumber::of_document(scope, generation, document.id);
    if PointNumber::read(point) != Some(number) {
        return None;
    }
    document.embedding =
        point.vectors.as_ref().and_then(|vectors| match vectors.get_vector_by_name(DENSE)? {
            vector_output::Vector::Dense(dense) => Some(dense.data),
            _ => None,
        });
    Some(document)
}

#[cfg(all(test, feature = "test-util"))]
mod tests {
    use clawnode_memory::store::conformance::{memory, point};

    use super::*;

    #[test]
    fn collections_of_other_prefixes_and_of_other_things_are_known() {
        let of_model = |prefix: &str, model: &str| collection(prefix, Some((model, 384)));
        let models = ["ollama/all-minilm", "static/0123456789abcdef", "a", "v1", "a-v1-words"];
        for model in models.into_iter().chain(["ollama/nomic-embed-text:v1.5", "é-v1/b-v1"]) {
            assert_eq!(dimensions("c", &of_model("c", model)), Some(384), "{model}");
        }
        assert_eq!(dimensions("c", &collection("c", None)), Some(0));
        for other in [
            state(&collection("c", None)),
            state(&of_model("c", "a/b")),
            collection("d", None),
            collection("c-v1", None),
            collection("c-v1-x", None),
            of_model("c-v1", "a/b"),
            of_model("c-v1", "v1"),
            of_model("c-v1-words", "a"),
            collection("c-v1-a-01234567", None),
            of_model("c-v1-x", "a/b"),
            of_model("cc", "a/b"),
            "c-v1-a-b-0123456x-8".to_owned(),
            "c-v1-a-01234567-0".to_owned(),
            "c-v2-words".to_owned(),
            "c-v1-".to_owned(),
        ] {
            assert_eq!(dimensions("c", &other), None, "{other}");
        }
    }

    #[test]
    fn a_digest_says_whether_the_text_and_the_vector_are_the_same() {
        let scope = memory("a/all").unwrap();
        let read = |document: &Document| {
            digest(&of_document(&scope, "first", document).unwrap().payload).unwrap()
        };
        let with =
            |vector: &[f32]| Document { embedding: Some(vector.to_vec()), ..point(1, "tea") };
        let (bare, one, other) = (read(&point(1, "tea")), read(&with(&[0.0])), read(&with(&[1.0])));
        assert!(is_same_text(bare, one) && is_same_text(one, other));
        assert!(!has_vector(bare) && has_vector(one) && one != other);
        assert!(!is_same_text(bare, read(&point(1, "milk"))));
        let low = Payload::from([(key::DIGEST.to_owned(), Value::from(format!("{:032x}", 7)))]);
        assert_eq!(digest(&low), Some(7), "with the zeros that it is found by");
    }
}
