//! Embeddings of Amazon Titan on Bedrock (`InvokeModel`): one text a request.

use clawnode_proto::llm::ModelFailure;
use serde::{Deserialize, Serialize};

use super::{Bedrock, request::encoded};
use crate::llm::{
    embed::{EmbedDialect, EmbedRequest, ReadVectors},
    http::{AttemptFailure, Prepared},
    prompt::not_sent,
};

/// What the names of the models have in common whose requests these are.
const TITAN: [&str; 2] = ["amazon.titan-embed-text-v", "amazon.titan-embed-g1-text-"];
/// The only ones that take `dimensions`.
const SIZED: &str = "amazon.titan-embed-text-v2";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TitanBody<'a> {
    input_text: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<u32>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TitanAnswer {
    embedding: Vec<f32>,
    input_text_token_count: Option<u64>,
}

impl EmbedDialect for Bedrock {
    fn request(&self, request: &EmbedRequest) -> Result<Prepared, ModelFailure> {
        let EmbedRequest { model, texts, dimensions } = request;
        if !TITAN.iter().any(|titan| model.contains(titan)) {
            return Err(not_sent(format_args!(
                "`{model}`: of Bedrock's models only Titan's text embeddings can be asked, such as \
                 `amazon.titan-embed-text-v2:0`"
            )));
        }
        if dimensions.is_some() && !model.contains(SIZED) {
            return Err(not_sent(format_args!("`dimensions`: `{model}` does not take it")));
        }
        let [text] = &texts[..] else {
            return Err(not_sent(format_args!("{} texts instead of one", texts.len())));
        };
        let body = TitanBody { input_text: text, dimensions: *dimensions };
        let body = serde_json::to_vec(&body).map_err(not_sent)?.into();
        let url = self.base.join(&format!("model/{}/invoke", encoded(model)));
        Ok(Prepared { url, headers: self.headers(""), body, offers: false })
    }

    fn read(&self, body: &[u8]) -> Result<ReadVectors, AttemptFailure> {
        let answer: TitanAnswer = serde_json::from_slice(body).map_err(AttemptFailure::broken)?;
        let (vectors, input_tokens) = (vec![answer.embedding], answer.input_text_token_count);
        Ok(ReadVectors { vectors, input_tokens })
    }

    fn most_texts(&self) -> usize {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wire() -> Bedrock {
        let base = "http://127.0.0.1:1".parse().unwrap();
        Bedrock { base, key: None, max_tokens: 9, aws: None }
    }

    #[test]
    fn only_what_titan_takes_is_asked() {
        let ask = |model: &str, dimensions| {
            let texts = vec!["a".to_owned()];
            wire().request(&EmbedRequest { model: model.to_owned(), texts, dimensions })
        };
        let asked = ask("amazon.titan-embed-text-v2:0", Some(256)).unwrap();
        assert_eq!(asked.url.path(), "/model/amazon.titan-embed-text-v2%3A0/invoke");
        assert_eq!(asked.body, r#"{"inputText":"a","dimensions":256}"#);
        assert_eq!(ask("amazon.titan-embed-text-v1", None).unwrap().body, r#"{"inputText":"a"}"#);
        for (model, dimensions, says) in [
            ("amazon.titan-embed-text-v1", Some(256), "`dimensions`"),
            ("cohere.embed-english-v3", None, "`amazon.titan-embed-text-v2:0`"),
            ("amazon.titan-embed-image-v1", None, "`amazon.titan-embed-text-v2:0`"),
        ] {
            let failure = ask(model, dimensions).unwrap_err();
            assert!(failure.message.contains(says), "{model}: {}", failure.message);
        }
    }

    #[test]
    fn an_answer_has_a_vector_and_a_count() {
        let body =
            r#"{"embedding":[0.5,1],"inputTextTokenCount":3,"embeddingsByType":{"float":[0.5,1]}}"#;
        let expected = ReadVectors { vectors: vec![vec![0.5, 1.0]], input_tokens: Some(3) };
        assert_eq!(wire().read(body.as_bytes()).unwrap(), expected);
        assert!(wire().read(br#"{"message":"no"}"#).is_err());
    }
}
