//! What vendors demand of a request for embeddings.

use serde::Deserialize;
use serde_json::Value;

use crate::model::book::WireName;

/// Texts of a request of `OpenAI`'s.
const OPENAI_TEXTS: usize = 2_048;
/// Texts of a request of Gemini's.
const GEMINI_TEXTS: usize = 100;

/// What matters of a proper request.
#[derive(Debug)]
pub(in crate::model) struct Embeds {
    pub(in crate::model) model: String,
    pub(in crate::model) texts: Vec<String>,
    pub(in crate::model) dimensions: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OpenAiEmbeds {
    model: String,
    input: Texts,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
    #[serde(rename = "user")]
    _user: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OllamaEmbeds {
    model: String,
    input: Texts,
    #[serde(rename = "truncate")]
    _truncate: Option<bool>,
    dimensions: Option<usize>,
    #[serde(rename = "options")]
    _options: Option<Value>,
    #[serde(rename = "keep_alive")]
    _keep_alive: Option<Value>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeminiEmbeds {
    requests: Vec<GeminiEmbed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct GeminiEmbed {
    model: String,
    content: GeminiContent,
    #[serde(rename = "taskType")]
    _task_type: Option<String>,
    output_dimensionality: Option<usize>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeminiContent {
    parts: Vec<GeminiPart>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GeminiPart {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct TitanEmbed {
    input_text: String,
    dimensions: Option<usize>,
    #[serde(rename = "normalize")]
    _normalize: Option<bool>,
}

/// Reads a request; the error says how it is malformed. `in_path` is the model that its path names.
pub(in crate::model) fn embeds(
    wire: WireName,
    in_path: Option<&str>,
    body: &[u8],
) -> Result<Embeds, String> {
    let (asked, most) = match wire {
        WireName::Openai => (openai(read(body)?)?, OPENAI_TEXTS),
        WireName::Ollama => (ollama(read(body)?), usize::MAX),
        WireName::Gemini => (gemini(read(body)?, in_path.unwrap_or_default())?, GEMINI_TEXTS),
        WireName::Bedrock => (titan(read(body)?, in_path.unwrap_or_default())?, 1),
        other => return Err(format!("{other:?} has no embeddings")),
    };
    if asked.texts.is_empty() || asked.texts.len() > most {
        return Err(format!("{} texts, and {most} is the most", asked.texts.len()));
    }
    if asked.texts.iter().any(String::is_empty) {
        return Err("a text that is empty".to_owned());
    }
    if asked.dimensions == Some(0) {
        return Err("vectors without numbers".to_owned());
    }
    Ok(asked)
}

fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, String> {
    serde_json::from_slice(body).map_err(|error| error.to_string())
}

fn openai(request: OpenAiEmbeds) -> Result<Embeds, String> {
    let OpenAiEmbeds { model, input, encoding_format, dimensions, .. } = request;
    if encoding_format.is_some_and(|format| format != "float") {
        return Err("an `encoding_format` that not every server has".to_owned());
    }
    Ok(Embeds { model, texts: input.into(), dimensions })
}

fn ollama(request: OllamaEmbeds) -> Embeds {
    let OllamaEmbeds { model, input, dimensions, .. } = request;
    Embeds { model, texts: input.into(), dimensions }
}

fn gemini(request: GeminiEmbeds, in_path: &str) -> Result<Embeds, String> {
    let mut asked = Embeds { model: in_path.to_owned(), texts: Vec::new(), dimensions: None };
    for GeminiEmbed { model, content, output_dimensionality, .. } in request.requests {
        if model != format!("models/{in_path}") {
            return Err(format!("the model `{model}` is not that of the path"));
        }
        let [part] = &content.parts[..] else { return Err("not one part".to_owned()) };
        asked.texts.push(part.text.clone());
        asked.dimensions = output_dimensionality;
    }
    Ok(asked)
}

fn titan(request: TitanEmbed, in_path: &str) -> Result<Embeds, String> {
    let TitanEmbed { input_text, dimensions, .. } = request;
    let is_sized = in_path.starts_with("amazon.titan-embed-text-v2");
    if !is_sized && !in_path.starts_with("amazon.titan-embed-text-v1") {
        return Err(format!("`{in_path}` is invoked in another way"));
    }
    if dimensions.is_some_and(|size| !is_sized || ![256, 512, 1_024].contains(&size)) {
        return Err("malformed input: `dimensions`".to_owned());
    }
    Ok(Embeds { model: in_path.to_owned(), texts: vec![input_text], dimensions })
}

impl From<Texts> for Vec<String> {
    fn from(texts: Texts) -> Self {
        match texts {
            Texts::One(text) => vec![text],
            Texts::Many(texts) => texts,
        }
    }
}
