//! How `reasoning_details` come together from their pieces: what `OpenRouter` wants back of a reply.
//!
//! A stream has an entry in pieces of one type and index. Texts, summaries and signatures grow by them. Any other
//! field is whole, so a piece that has another value there begins an entry. LLM-2: if a part of them finds no room,
//! none of them goes back.
//!
//! Some texts are refused if they come back (`OpenRouterTeam/ai-sdk-provider`, pull requests 445 and 468): Anthropic
//! refuses a thought without a signature, and Gemini, which reads the encrypted entries, any text.

use std::collections::BTreeMap;

use clawnode_proto::limits::{REPLY_BLOCKS, REPLY_BLOCKS_BYTES};
use serde::Serialize;
use serde_json::value::RawValue;

const TYPE: &str = "type";
const INDEX: &str = "index";
const SIGNATURE: &str = "signature";
/// Which provider made an entry.
const FORMAT: &str = "format";
const ENCRYPTED: &str = "data";
const TEXT: &str = "\"reasoning.text\"";
const GEMINI: &str = "\"google-gemini-v1\"";
/// Also that of an entry that names none.
const ANTHROPIC: &str = "\"anthropic-claude-v1\"";
/// An empty text in JSON.
const EMPTY: &str = "\"\"";
/// Of an entry that belongs to a tool call, the id of that.
const ID: &str = "id";
/// Fields that people may read.
const READABLE: [&str; 2] = ["text", "summary"];

/// An entry as it is sent, whole or in part.
type DetailPiece = BTreeMap<String, Box<RawValue>>;

/// The entries of one reply.
#[derive(Debug, Default)]
pub(super) struct ReasoningDetails {
    entries: Vec<ReasoningDetail>,
    /// The list as it was sent, if it was sent whole.
    whole: Option<String>,
    bytes: usize,
    is_cut: bool,
}

#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct ReasoningDetail(BTreeMap<String, DetailField>);

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum DetailField {
    /// Grows with each piece.
    Growing(String),
    /// The provider's JSON.
    Kept(Box<RawValue>),
}

// === impl ReasoningDetails ===

impl ReasoningDetails {
    /// The list of a chunk, or of a whole reply. What people may read of it.
    pub(super) fn add(&mut self, sent: &RawValue, is_whole: bool) -> String {
        let Ok(pieces) = serde_json::from_str::<Vec<DetailPiece>>(sent.get()) else {
            // What is not understood cannot be put together with the rest.
            self.is_cut = true;
            return String::new();
        };
        self.whole = is_whole.then(|| sent.get().to_owned());
        let mut readable = String::new();
        for piece in pieces {
            let texts = READABLE.iter().filter_map(|name| text_of(piece.get(*name)?));
            readable.extend(texts);
            self.grow(piece, is_whole);
        }
        readable
    }

    /// Whether an entry belongs to the tool call with this id.
    pub(super) fn name_call(&self, id: &str) -> bool {
        let is_named = |entry: &ReasoningDetail| match entry.0.get(ID) {
            Some(DetailField::Kept(named)) => text_of(named).as_deref() == Some(id),
            Some(DetailField::Growing(_)) | None => false,
        };
        !self.is_cut && self.entries.iter().any(is_named)
    }

    /// Those that go back, as they do.
    pub(super) fn to_json(&self) -> Result<Option<String>, serde_json::Error> {
        let back: Vec<&ReasoningDetail> = self.going_back().collect();
        if self.is_cut || back.is_empty() {
            return Ok(None);
        }
        match &self.whole {
            Some(whole) if back.len() == self.entries.len() => Ok(Some(whole.clone())),
            Some(_) | None => serde_json::to_string(&back).map(Some),
        }
    }

    /// Whether what goes back is plain text, which is of use only while its turn runs.
    pub(super) fn is_plain(&self) -> bool {
        self.going_back().all(|entry| !entry.is_signed() && !entry.0.contains_key(ENCRYPTED))
    }

    fn going_back(&self) -> impl Iterator<Item = &ReasoningDetail> {
        self.entries.iter().filter(|entry| entry.goes_back())
    }

    fn grow(&mut self, piece: DetailPiece, is_whole: bool) {
        if self.is_cut {
            return;
        }
        // Without an index, a piece follows the one before it.
        let last = self.entries.len().saturating_sub(1);
        let is_numbered = piece.get(INDEX).is_some_and(|index| !is_null(index));
        let goes_on = |(at, entry): &(usize, &ReasoningDetail)| {
            !is_whole && (is_numbered || *at == last) && entry.goes_on_in(&piece)
        };
        let found = self.entries.iter().enumerate().rev().find(goes_on).map(|(at, _)| at);
        if found.is_none() {
            if self.entries.len() == REPLY_BLOCKS {
                self.is_cut = true;
                return;
            }
            self.entries.push(ReasoningDetail::default());
        }
        let at = found.unwrap_or(self.entries.len() - 1);
        self.bytes += self.entries.get_mut(at).map_or(0, |entry| entry.add(piece));
        self.is_cut = self.bytes > REPLY_BLOCKS_BYTES;
    }
}

// === impl ReasoningDetail ===

impl ReasoningDetail {
    /// Whether its provider takes it back.
    fn goes_back(&self) -> bool {
        let kept = |name: &str| match self.0.get(name) {
            Some(DetailField::Kept(own)) if !is_null(own) => Some(own.get()),
            _ => None,
        };
        if kept(TYPE) != Some(TEXT) {
            return true;
        }
        match kept(FORMAT) {
            Some(GEMINI) => false,
            Some(ANTHROPIC) | None => self.is_signed(),
            Some(_) => true,
        }
    }

    fn is_signed(&self) -> bool {
        matches!(self.0.get(SIGNATURE),
            Some(DetailField::Growing(signature)) if !signature.is_empty())
    }

    /// Whether a piece is one of this entry.
    fn goes_on_in(&self, piece: &DetailPiece) -> bool {
        // An entry without an index is not that with an index.
        let is_one = [TYPE, INDEX].iter().all(|name| match (self.0.get(*name), piece.get(*name)) {
            (None, None) => true,
            (Some(DetailField::Kept(own)), Some(other)) => own.get() == other.get(),
            _ => false,
        });
        // Nothing follows a signature, which is of the whole text.
        let is_more = |name: &&str| {
            piece.get(*name).is_some_and(|value| !is_null(value) && value.get() != EMPTY)
        };
        is_one
            && !(self.is_signed() && READABLE.iter().any(is_more))
            && piece.iter().all(|(name, value)| match self.0.get(name) {
                Some(DetailField::Growing(_)) => is_null(value) || text_of(value).is_some(),
                Some(DetailField::Kept(own)) => {
                    is_null(own) || is_null(value) || own.get() == value.get()
                }
                None => true,
            })
    }

    /// Adds a piece; how many bytes more that is.
    fn add(&mut self, piece: DetailPiece) -> usize {
        let mut bytes = 0;
        for (name, value) in piece {
            let grows = name == SIGNATURE || READABLE.contains(&name.as_str());
            let more = if grows { text_of(&value) } else { None };
            if let (Some(DetailField::Growing(text)), Some(more)) = (self.0.get_mut(&name), &more) {
                bytes += more.len();
                text.push_str(more);
                continue;
            }
            let is_new = match self.0.get(&name) {
                Some(DetailField::Kept(own)) => is_null(own) && !is_null(&value),
                Some(DetailField::Growing(_)) => false,
                None => true,
            };
            if is_new {
                bytes += name.len() + value.get().len();
                let field = more.map_or(DetailField::Kept(value), DetailField::Growing);
                self.0.insert(name, field);
            }
        }
        bytes
    }
}

fn is_null(value: &RawValue) -> bool {
    value.get() == "null"
}

/// `None` if it is no text.
fn text_of(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn add(details: &mut ReasoningDetails, list: &Value, is_whole: bool) -> String {
        details.add(&serde_json::value::to_raw_value(list).unwrap(), is_whole)
    }

    /// What these chunks come to.
    fn grown(chunks: &[Value]) -> Value {
        let mut details = ReasoningDetails::default();
        for chunk in chunks {
            add(&mut details, chunk, false);
        }
        match details.to_json().unwrap() {
            Some(list) => serde_json::from_str(&list).unwrap(),
            None => Value::Null,
        }
    }

    #[test]
    fn a_signed_thought_of_claude_is_one_entry() {
        let format = "anthropic-claude-v1";
        let text = |text: &str, index: u32| {
            let signature = Value::Null;
            json!([{"type": "reasoning.text", "text": text, "signature": signature,
                "format": format, "index": index}])
        };
        let signed = |signature: &str, index: u32| {
            json!([{"type": "reasoning.text", "text": "", "signature": signature, "format": format,
                "index": index}])
        };
        let entry = |text: &str, signature: &str, index: u32| {
            json!({"type": "reasoning.text", "text": text, "signature": signature,
                "format": format, "index": index})
        };
        // The first signature comes when the second thought has begun.
        let chunks =
            [text("Wo ", 0), text("ist", 0), text("Bo", 1), signed("c2", 0), signed("ln", 0)];
        let rest = [text("th", 1), signed("b3", 1), text("More", 1)];
        assert_eq!(
            grown(&[&chunks[..], &rest[..]].concat()),
            json!([entry("Wo ist", "c2ln", 0), entry("Both", "b3", 1)]),
            "nothing is added to what is signed, and Anthropic takes nothing else back"
        );
    }

    #[test]
    fn a_text_that_its_provider_refuses_does_not_go_back() {
        let text = |format: Value| json!({"type": "reasoning.text", "text": "a", "format": format});
        let sealed =
            json!({"type": "reasoning.encrypted", "data": "x", "format": "google-gemini-v1"});
        let lists = [
            (json!([text(json!("google-gemini-v1")), sealed]), json!([sealed]), false),
            (json!([text(json!("anthropic-claude-v1"))]), Value::Null, true),
            (json!([text(Value::Null)]), Value::Null, true),
            (json!([text(json!("unknown"))]), json!([text(json!("unknown"))]), true),
        ];
        for (sent, back, is_plain) in lists {
            for is_whole in [false, true] {
                let mut details = ReasoningDetails::default();
                assert!(!add(&mut details, &sent, is_whole).is_empty(), "people read it");
                let list = details.to_json().unwrap();
                let list = list.map_or(Value::Null, |list| serde_json::from_str(&list).unwrap());
                assert_eq!((list, details.is_plain()), (back.clone(), is_plain), "{sent}");
            }
        }
    }

    #[test]
    fn entries_of_one_index_differ_by_type_and_by_what_is_whole() {
        let summary = |text: &str| {
            json!({"type": "reasoning.summary", "summary": text, "format": "openai-responses-v1",
                "index": 0})
        };
        let sealed = |id: Value, data: &str| json!({"type": "reasoning.encrypted", "id": id, "data": data, "index": 0});
        let chunks = [
            json!([summary("**Look")]),
            json!([summary("ing**"), sealed(json!("rs_1"), "gAAA")]),
            json!([sealed(json!("rs_2"), "gBBB")]),
            json!([sealed(json!("rs_2"), "gCCC")]),
            json!([sealed(Value::Null, "gCCC")]),
        ];
        assert_eq!(
            grown(&chunks),
            json!([
                summary("**Looking**"),
                sealed(json!("rs_1"), "gAAA"),
                sealed(json!("rs_2"), "gBBB"),
                sealed(json!("rs_2"), "gCCC"),
            ])
        );
    }

    #[test]
    fn pieces_without_an_index_follow_each_other() {
        let text = |text: &str| json!({"type": "reasoning.text", "text": text, "format": "any"});
        let sealed = json!({"type": "reasoning.encrypted", "data": "x"});
        let chunks = [json!([text("a")]), json!([text("b")]), json!([sealed]), json!([text("c")])];
        assert_eq!(grown(&chunks), json!([text("ab"), sealed, text("c")]));
        let numbered = json!({"type": "reasoning.text", "text": "d", "index": 0, "format": "any"});
        assert_eq!(grown(&[json!([text("c")]), json!([numbered])]), json!([text("c"), numbered]));
    }

    /// The last piece may come with any byte of the text.
    #[test]
    fn every_cut_comes_to_the_same_entry() {
        let said = "Wo ist Köln 🦀?\n\"Hm\"";
        let entry = |text: &str| json!({"type": "reasoning.text", "text": text, "index": 3, "format": null});
        let signed = json!({"type": "reasoning.text", "signature": "c2ln", "index": 3});
        let mut expected = entry(said);
        expected["signature"] = json!("c2ln");
        for (at, _) in said.char_indices() {
            let (first, second) = said.split_at(at);
            let chunks = [json!([entry(first)]), json!([entry(second)]), json!([signed])];
            assert_eq!(grown(&chunks), json!([expected]), "cut at {at}");
            let mut details = ReasoningDetails::default();
            let readable: String =
                chunks.iter().map(|chunk| add(&mut details, chunk, false)).collect();
            assert_eq!(readable, said, "cut at {at}");
        }
    }

    #[test]
    fn a_whole_list_goes_back_byte_for_byte() {
        let list = r#"[{"index": 0, "type": "reasoning.text", "text": "a", "n": 1.50, "signature": "s"},
            {"index": 0, "type": "reasoning.text", "format": "any", "text": "b", "id": "call_1"}]"#;
        let sent: Box<RawValue> = serde_json::from_str(list).unwrap();
        let mut details = ReasoningDetails::default();
        assert_eq!(details.add(&sent, true), "ab");
        assert_eq!(details.to_json().unwrap().as_deref(), Some(list));
        assert!(details.name_call("call_1") && !details.name_call("call_2"));
    }

    #[test]
    fn what_is_no_list_of_entries_is_left_alone() {
        for sent in [json!("a"), json!([1]), json!({"text": "a"}), json!([])] {
            let mut details = ReasoningDetails::default();
            assert_eq!(add(&mut details, &sent, false), "");
            assert_eq!(details.to_json().unwrap(), None, "{sent}");
        }
        let good = json!([{"type": "reasoning.text", "text": "a", "index": 0}]);
        assert!(grown(&[good, json!("a")]).is_null(), "a part of it does not go back");
    }

    #[test]
    fn too_much_does_not_go_back() {
        let half = "x".repeat(REPLY_BLOCKS_BYTES / 2);
        let text = json!([{"type": "reasoning.text", "text": half, "index": 0, "format": "any"}]);
        assert!(grown(std::slice::from_ref(&text)).is_array());
        let mut details = ReasoningDetails::default();
        for _ in 0..9 {
            assert_eq!(add(&mut details, &text, false).len(), half.len(), "people read all of it");
        }
        assert_eq!(details.to_json().unwrap(), None);
        assert!(details.bytes < 2 * REPLY_BLOCKS_BYTES, "no more is kept than shows that");
        let many = |count: u32| {
            let entry = |index| json!({"type": "reasoning.encrypted", "id": "a", "index": index});
            (0..count).map(|index| json!([entry(index)])).collect::<Vec<_>>()
        };
        let most = u32::try_from(REPLY_BLOCKS).unwrap();
        assert!(grown(&many(most)).is_array());
        assert!(grown(&many(most + 1)).is_null());
    }
}
