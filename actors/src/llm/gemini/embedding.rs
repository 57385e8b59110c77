//! Embeddings on Gemini's wire (`batchEmbedContents`).

use clawnode_proto::llm::ModelFailure;
use secrecy::ExposeSecret;
use serde::{Deserialize, Serialize};

use super::{Gemini, request::resource};
use crate::llm::{
    call::{headers, sensitive},
    embed::{EmbedDialect, EmbedRequest, ReadVectors},
    http::{AttemptFailure, Prepared},
    prompt::not_sent,
};

#[derive(Serialize)]
struct EmbedBatch<'a> {
    requests: Vec<EmbedOne<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct EmbedOne<'a> {
    model: &'a str,
    content: EmbedContent<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_dimensionality: Option<u32>,
}

#[derive(Serialize)]
struct EmbedContent<'a> {
    parts: [EmbedPart<'a>; 1],
}

#[derive(Serialize)]
struct EmbedPart<'a> {
    text: &'a str,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BatchEmbedAnswer {
    embeddings: Vec<GeminiVector>,
    usage_metadata: Option<EmbedCounts>,
}

#[derive(Deserialize)]
struct GeminiVector {
    values: Vec<f32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EmbedCounts {
    prompt_token_count: Option<u64>,
}

impl EmbedDialect for Gemini {
    fn request(&self, request: &EmbedRequest) -> Result<Prepared, ModelFailure> {
        let model = resource(&request.model);
        let requests = request.texts.iter().map(|text| EmbedOne {
            model: &model,
            content: EmbedContent { parts: [EmbedPart { text }] },
            output_dimensionality: request.dimensions,
        });
        let body = EmbedBatch { requests: requests.collect() };
        let body = serde_json::to_vec(&body).map_err(not_sent)?.into();
        let mut headers = headers("");
        if let Some(key) = self.key.as_ref().and_then(|key| sensitive(key.expose_secret())) {
            headers.insert("x-goog-api-key", key);
        }
        let url = self.base.join(&format!("{model}:batchEmbedContents"));
        Ok(Prepared { url, headers, body, offers: false })
    }

    fn read(&self, body: &[u8]) -> Result<ReadVectors, AttemptFailure> {
        let answer: BatchEmbedAnswer =
            serde_json::from_slice(body).map_err(AttemptFailure::broken)?;
        let vectors = answer.embeddings.into_iter().map(|one| one.values).collect();
        let input_tokens = answer.usage_metadata.and_then(|counts| counts.prompt_token_count);
        Ok(ReadVectors { vectors, input_tokens })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_values_and_perhaps_a_count() {
        let wire = Gemini { base: "http://127.0.0.1:1".parse().unwrap(), key: None };
        let vectors = r#"{"embeddings":[{"values":[0.5,1]},{"values":[2,3]}]"#;
        let expected =
            ReadVectors { vectors: vec![vec![0.5, 1.0], vec![2.0, 3.0]], input_tokens: None };
        assert_eq!(wire.read(format!("{vectors}}}").as_bytes()).unwrap(), expected);
        let counted = format!(r#"{vectors},"usageMetadata":{{"promptTokenCount":4}}}}"#);
        assert_eq!(wire.read(counted.as_bytes()).unwrap().input_tokens, Some(4));
        assert!(wire.read(br#"{"error":{"code":400}}"#).is_err());
    }
}
