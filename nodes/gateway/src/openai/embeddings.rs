//! `POST /v1/embeddings`: texts as vectors. It is no turn: nothing is stored, and a request that is sent again
//! is asked and paid again.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    response::Response,
};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use clawnode_proto::{
    ErrorBody, ErrorCode,
    embed::{EmbedTexts, Embedded},
    limits::{EMBED_BODY_BYTES, EMBED_DIMENSIONS, EMBED_TEXT_BYTES, EMBED_TEXTS},
};
use serde::Serialize;
use serde_json::{Map, Value};

use super::{
    super::{
        error::{OpenAiError, json},
        gateway::Gateway,
        params::document,
        rest,
    },
    tools::short,
};

/// The parameters.
const KNOWN: [&str; 5] = ["model", "input", "encoding_format", "dimensions", "user"];

/// A request, once it makes sense.
#[derive(Debug)]
struct AskedVectors {
    texts: EmbedTexts,
    is_base64: bool,
}

#[derive(Serialize)]
struct VectorList<'a> {
    object: &'static str,
    data: Vec<OneVector>,
    model: &'a str,
    usage: ReadTokens,
}

#[derive(Serialize)]
struct OneVector {
    object: &'static str,
    index: usize,
    embedding: Numbers,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers {
    Floats(Vec<f32>),
    /// Their bytes.
    Base64(String),
}

#[derive(Serialize)]
struct ReadTokens {
    prompt_tokens: u64,
    total_tokens: u64,
}

/// The route.
pub(in super::super) async fn embeddings(
    State(gateway): State<Arc<Gateway>>,
    request: Request,
) -> Response {
    let body = match rest::body_within(&gateway, request.into_body(), EMBED_BODY_BYTES).await {
        Ok(body) => body,
        Err(error) => return OpenAiError::from(error).respond(),
    };
    let AskedVectors { texts, is_base64 } = match AskedVectors::read(&body) {
        Ok(asked) => asked,
        Err(error) => return error.respond(),
    };
    match gateway.backend.embed(texts).await {
        Ok(embedded) => rest::json(answer(&embedded, is_base64)),
        Err(error) => refused(error).respond(),
    }
}

/// What is not found, or not offered, is the model.
fn refused(error: ErrorBody) -> OpenAiError {
    let is_of_model = matches!(error.code, ErrorCode::NotFound | ErrorCode::Unsupported);
    let error = OpenAiError::from(error);
    if is_of_model { error.about("model") } else { error }
}

fn answer(embedded: &Embedded, is_base64: bool) -> String {
    let vectors = embedded.vectors.iter().enumerate();
    let data = vectors.map(|(index, vector)| {
        let embedding = if is_base64 {
            Numbers::Base64(STANDARD.encode(vector.as_bytes()))
        } else {
            Numbers::Floats(vector.numbers().collect())
        };
        OneVector { object: "embedding", index, embedding }
    });
    let tokens = embedded.input_tokens;
    json(&VectorList {
        object: "list",
        data: data.collect(),
        model: &embedded.model.to_string(),
        usage: ReadTokens { prompt_tokens: tokens, total_tokens: tokens },
    })
}

// === impl AskedVectors ===

impl AskedVectors {
    fn read(body: &str) -> Result<Self, OpenAiError> {
        let Value::Object(mut fields) = document(body).map_err(OpenAiError::from)? else {
            return Err(OpenAiError::invalid("body", "the body is not a JSON object"));
        };
        // OpenAI's own clients send `null` for what is not set.
        fields.retain(|_, value| !value.is_null());
        if let Some(name) = fields.keys().find(|name| !KNOWN.contains(&name.as_str())) {
            let name = short(name);
            let what = format!("there is no parameter `{name}`");
            return Err(OpenAiError::unsupported(name, what));
        }
        let model = match fields.get("model") {
            Some(Value::String(model)) => model.clone(),
            Some(_) => return Err(OpenAiError::invalid("model", "`model` is not a text")),
            None => return Err(OpenAiError::invalid("model", "`model` is missing")),
        };
        // A label, which changes no answer.
        if fields.get("user").is_some_and(|user| !user.is_string()) {
            return Err(OpenAiError::invalid("user", "`user` is not a text"));
        }
        let is_base64 = match fields.get("encoding_format").map(Value::as_str) {
            None | Some(Some("float")) => false,
            Some(Some("base64")) => true,
            Some(_) => {
                let what = "`encoding_format` is not `float` or `base64`";
                return Err(OpenAiError::invalid("encoding_format", what));
            }
        };
        let (texts, dimensions) = (input(&mut fields)?, dimensions(&fields)?);
        Ok(Self { texts: EmbedTexts { model, texts, dimensions }, is_base64 })
    }
}

fn dimensions(fields: &Map<String, Value>) -> Result<Option<u32>, OpenAiError> {
    let Some(value) = fields.get("dimensions") else { return Ok(None) };
    let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
    let fits = number.filter(|size| (1..=EMBED_DIMENSIONS).contains(&(*size as usize)));
    let what = format!("`dimensions` is not a number from 1 to {EMBED_DIMENSIONS}");
    fits.map(Some).ok_or_else(|| OpenAiError::invalid("dimensions", what))
}

fn input(fields: &mut Map<String, Value>) -> Result<Vec<String>, OpenAiError> {
    let invalid = |what: String| OpenAiError::invalid("input", what);
    let texts = match fields.remove("input") {
        None => return Err(invalid("`input` is missing".to_owned())),
        Some(Value::String(text)) => vec![text],
        Some(Value::Array(all)) if all.is_empty() || all.len() > EMBED_TEXTS => {
            let count = all.len();
            return Err(invalid(format!(
                "`input` has {count} texts instead of 1 to {EMBED_TEXTS}"
            )));
        }
        Some(Value::Array(all)) if all.iter().any(|one| one.is_number() || one.is_array()) => {
            let what = "`input`: numbers of tokens are not offered, because models differ in them; send text";
            return Err(OpenAiError::unsupported("input", what));
        }
        Some(Value::Array(all)) => {
            let text = |one| match one {
                Value::String(text) => Ok(text),
                _ => Err(invalid("`input` is not a text or a list of texts".to_owned())),
            };
            all.into_iter().map(text).collect::<Result<_, _>>()?
        }
        Some(_) => return Err(invalid("`input` is not a text or a list of texts".to_owned())),
    };
    match texts.iter().position(|text| text.is_empty() || text.len() > EMBED_TEXT_BYTES) {
        None => Ok(texts),
        Some(at) if texts[at].is_empty() => Err(invalid(format!("`input`: text {at} is empty"))),
        Some(at) => {
            Err(invalid(format!("`input`: text {at} is longer than {EMBED_TEXT_BYTES} bytes")))
        }
    }
}

#[cfg(test)]
mod tests {
    use clawnode_proto::embed::Vector;
    use serde_json::json;

    use super::*;

    fn read(mut body: Value) -> Result<AskedVectors, OpenAiError> {
        let fields = body.as_object_mut().unwrap();
        fields.entry("model").or_insert(json!("openai/m"));
        fields.entry("input").or_insert(json!("a"));
        AskedVectors::read(&body.to_string())
    }

    #[test]
    fn one_text_and_many_are_read() {
        let one = read(json!({"user": "ada", "dimensions": null})).unwrap();
        assert_eq!((one.texts.texts, one.texts.dimensions), (vec!["a".to_owned()], None));
        assert!(!one.is_base64);
        let many = read(json!({"input": ["a", "b"], "dimensions": 3, "encoding_format": "base64"}));
        let many = many.unwrap();
        assert_eq!((many.texts.texts.len(), many.texts.dimensions), (2, Some(3)));
        assert!(many.is_base64);
    }

    #[test]
    fn what_is_not_offered_is_refused_by_name() {
        let long = "x".repeat(EMBED_TEXT_BYTES + 1);
        for (body, param, says) in [
            (json!({"input": [1, 2]}), "input", "numbers of tokens"),
            (json!({"input": [[1, 2]]}), "input", "numbers of tokens"),
            (json!({"input": []}), "input", "0 texts"),
            (json!({"input": vec!["a"; EMBED_TEXTS + 1]}), "input", "2049 texts"),
            (json!({"input": ["a", ""]}), "input", "text 1 is empty"),
            (json!({"input": long}), "input", "text 0 is longer"),
            (json!({"input": [{}]}), "input", "not a text"),
            (json!({"input": 1}), "input", "not a text"),
            (json!({"model": 1}), "model", "not a text"),
            (json!({"model": null}), "model", "missing"),
            (json!({"encoding_format": "int8"}), "encoding_format", "`float` or `base64`"),
            (json!({"dimensions": 0}), "dimensions", "from 1 to"),
            (json!({"dimensions": 1e9}), "dimensions", "from 1 to"),
            (json!({"user": 1}), "user", "not a text"),
            (json!({"input_type": "query"}), "input_type", "no parameter"),
        ] {
            let error = read(body.clone()).unwrap_err();
            assert_eq!(error.param.as_deref(), Some(param), "{body}");
            assert!(error.body.message.contains(says), "{body}: {}", error.body.message);
        }
    }

    #[test]
    fn numbers_are_sent_as_they_are_wanted() {
        let embedded = Embedded {
            model: "openai/m".parse().unwrap(),
            vectors: vec![Vector::new(&[0.1, -1.0])],
            input_tokens: 2,
        };
        let floats: Value = serde_json::from_str(&answer(&embedded, false)).unwrap();
        assert_eq!(
            floats,
            json!({"object": "list", "model": "openai/m",
                "data": [{"object": "embedding", "index": 0, "embedding": [0.1, -1.0]}],
                "usage": {"prompt_tokens": 2, "total_tokens": 2}})
        );
        let base64: Value = serde_json::from_str(&answer(&embedded, true)).unwrap();
        assert_eq!(base64["data"][0]["embedding"], "zczMPQAAgL8=");
    }
}
