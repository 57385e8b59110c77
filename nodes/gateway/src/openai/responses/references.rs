//! References to items of earlier responses: what they name takes their place.
//!
//! A client that knows that responses are stored may send the id of a text in place of the text, as Vercel's SDK
//! does.

use std::{borrow::Cow, collections::BTreeMap, sync::Arc};

use serde_json::Value;

use super::{
    super::{
        super::{
            error::{OpenAiError, json},
            gateway::Gateway,
        },
        id::ResponseId,
        request::given,
        tools::short,
    },
    stored_response::{read, record},
};

/// The type of such an item.
const REFERENCE: &str = "item_reference";
/// Responses that the references of one request may be of: each is read from the journal of its session.
const RESPONSES_MOST: usize = 64;

/// The request with items in the place of references.
pub(super) async fn resolved<'a>(
    gateway: &Arc<Gateway>,
    body: &'a str,
) -> Result<Cow<'a, str>, OpenAiError> {
    if !body.contains(REFERENCE) {
        return Ok(Cow::Borrowed(body));
    }
    let mut fields = given(body)?;
    let mut outputs = BTreeMap::new();
    for (at, item) in
        fields.get_mut("input").and_then(Value::as_array_mut).into_iter().flatten().enumerate()
    {
        if item["type"] == REFERENCE {
            *item = named(gateway, &mut outputs, at, item).await?;
        }
    }
    Ok(Cow::Owned(json(&fields)))
}

/// The item that the reference names; `outputs` has the items of the responses that were read.
async fn named(
    gateway: &Arc<Gateway>,
    outputs: &mut BTreeMap<String, Value>,
    at: usize,
    reference: &Value,
) -> Result<Value, OpenAiError> {
    let path = format!("input[{at}].id");
    let unknown = |name: &str| {
        let what =
            format!("`{}` is not the id of an item of a response of this server", short(name));
        OpenAiError::invalid(path.clone(), what)
    };
    let name = reference["id"].as_str().unwrap_or_default();
    let id = ResponseId::of_item(name).ok_or_else(|| unknown(name))?;
    let key = id.to_string();
    if !outputs.contains_key(&key) {
        if outputs.len() == RESPONSES_MOST {
            let what = format!(
                "the references are of more than {RESPONSES_MOST} responses; send \
                 `previous_response_id`, or the items"
            );
            return Err(OpenAiError::invalid(path, what));
        }
        let record = record(gateway, &id, name, &path).await?;
        let response = read(gateway, id, &record).await?;
        // It is our own.
        let response: Value = serde_json::from_str(&response).unwrap_or_default();
        outputs.insert(key.clone(), response["output"].clone());
    }
    let items = outputs.get(&key).and_then(Value::as_array);
    let item = items.into_iter().flatten().find(|item| item["id"] == name);
    item.cloned().ok_or_else(|| unknown(name))
}
