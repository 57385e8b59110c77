//! Embeddings on `OpenAI`'s wire (`/embeddings`), which compatible servers have too.

use clawnode_proto::llm::ModelFailure;
use serde::{Deserialize, Serialize};

use super::OpenAi;
use crate::llm::{
    call::bearer_headers,
    embed::{EmbedDialect, EmbedRequest, ReadVectors},
    http::{AttemptFailure, Prepared},
    prompt::not_sent,
};

/// Numbers and not base64: not every compatible server has that.
#[derive(Serialize)]
struct EmbeddingsBody<'a> {
    model: &'a str,
    input: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

#[derive(Deserialize)]
struct EmbeddingsAnswer {
    data: Vec<OneEmbedding>,
    usage: Option<EmbeddingsUsage>,
}

#[derive(Deserialize)]
struct OneEmbedding {
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct EmbeddingsUsage {
    prompt_tokens: Option<u64>,
}

impl EmbedDialect for OpenAi {
    fn request(&self, request: &EmbedRequest) -> Result<Prepared, ModelFailure> {
        let EmbedRequest { model, texts, dimensions } = request;
        let body = EmbeddingsBody { model, input: texts, dimensions: *dimensions };
        let body = serde_json::to_vec(&body).map_err(not_sent)?.into();
        let headers = bearer_headers("", self.key.as_ref());
        Ok(Prepared { url: self.base.join("embeddings"), headers, body, offers: false })
    }

    /// In the order of their `index`, if they have one.
    fn read(&self, body: &[u8]) -> Result<ReadVectors, AttemptFailure> {
        let answer: EmbeddingsAnswer =
            serde_json::from_slice(body).map_err(AttemptFailure::broken)?;
        let mut data = answer.data;
        data.sort_by_key(|one| one.index);
        let is_complete =
            data.iter().enumerate().all(|(nth, one)| one.index.is_none_or(|index| index == nth));
        if !is_complete {
            return Err(AttemptFailure::broken(
                "the `index` of a vector is missing or there twice",
            ));
        }
        let vectors = data.into_iter().map(|one| one.embedding).collect();
        let input_tokens = answer.usage.and_then(|usage| usage.prompt_tokens);
        Ok(ReadVectors { vectors, input_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> Result<ReadVectors, String> {
        let wire = OpenAi { base: "http://127.0.0.1:1/v1".parse().unwrap(), key: None };
        wire.read(body.as_bytes()).map_err(|fault| fault.failure.message)
    }

    #[test]
    fn vectors_are_read_in_the_order_of_their_index() {
        let body = r#"{"object":"list","data":[{"object":"embedding","index":1,"embedding":[2,3]},
            {"object":"embedding","index":0,"embedding":[0.5,-1e-3]}],"model":"m",
            "usage":{"prompt_tokens":5,"total_tokens":5}}"#;
        let expected =
            ReadVectors { vectors: vec![vec![0.5, -1e-3], vec![2.0, 3.0]], input_tokens: Some(5) };
        assert_eq!(read(body).unwrap(), expected);
        let plain = r#"{"data":[{"embedding":[1]},{"embedding":[2]}]}"#;
        assert_eq!(read(plain).unwrap().vectors, [[1.0], [2.0]]);
        for broken in [
            r#"{"data":[{"index":1,"embedding":[1]}]}"#,
            r#"{"data":[{"index":0,"embedding":[1]},{"index":0,"embedding":[1]}]}"#,
            r#"{"data":[{"index":0,"embedding":"AACAPw=="}]}"#,
            r#"{"data":[{"index":0,"embedding":[null]}]}"#,
            r#"{"data":"#,
            "{}",
        ] {
            assert!(read(broken).is_err(), "{broken}");
        }
    }
}
