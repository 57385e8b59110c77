//! Embeddings on Ollama's own wire (`/api/embed`).

use clawnode_proto::llm::ModelFailure;
use serde::{Deserialize, Serialize};

use super::Ollama;
use crate::llm::{
    call::bearer_headers,
    embed::{EmbedDialect, EmbedRequest, ReadVectors},
    http::{AttemptFailure, Prepared},
    prompt::not_sent,
};

#[derive(Serialize)]
struct EmbedBody<'a> {
    model: &'a str,
    input: &'a [String],
    /// By default the server cuts a text that is too long, and says nothing.
    truncate: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

#[derive(Deserialize)]
struct EmbedAnswer {
    embeddings: Vec<Vec<f32>>,
    prompt_eval_count: Option<u64>,
}

impl EmbedDialect for Ollama {
    fn request(&self, request: &EmbedRequest) -> Result<Prepared, ModelFailure> {
        let EmbedRequest { model, texts, dimensions } = request;
        let body = EmbedBody { model, input: texts, truncate: false, dimensions: *dimensions };
        let body = serde_json::to_vec(&body).map_err(not_sent)?.into();
        let path = if self.base.ends_in("api") { "embed" } else { "api/embed" };
        let headers = bearer_headers("", self.key.as_ref());
        Ok(Prepared { url: self.base.join(path), headers, body, offers: false })
    }

    fn read(&self, body: &[u8]) -> Result<ReadVectors, AttemptFailure> {
        let answer: EmbedAnswer = serde_json::from_slice(body).map_err(AttemptFailure::broken)?;
        let EmbedAnswer { embeddings: vectors, prompt_eval_count: input_tokens } = answer;
        Ok(ReadVectors { vectors, input_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_vectors_and_a_count() {
        let wire = Ollama { base: "http://127.0.0.1:1".parse().unwrap(), key: None };
        let body = r#"{"model":"m","embeddings":[[0.5,1],[2,3]],"total_duration":14,"load_duration":1,
            "prompt_eval_count":8}"#;
        let expected =
            ReadVectors { vectors: vec![vec![0.5, 1.0], vec![2.0, 3.0]], input_tokens: Some(8) };
        assert_eq!(wire.read(body.as_bytes()).unwrap(), expected);
        assert!(wire.read(br#"{"error":"no"}"#).is_err());
    }
}
