//! Messages in our streams that clawnode did not write.
//!
//! The server answers a request, and acknowledges what it stored, at the subject that the sender
//! names. It does not check whether that user may publish there (nats-server 2.15). So a user that
//! may send any request can make the server write under any subject: an inbox, a journal, a key of
//! the bucket. The user cannot choose the words: they are JSON of a known form, or empty. Nothing
//! that clawnode stores in journals, inboxes and job queues looks like that, and the bucket's
//! values carry a mark.
//!
//! FOREIGN-1: a message that the server was made to write is never taken for a record, and never
//! blocks one.

use async_nats::HeaderMap;

/// The header of a value of the bucket, which may be any bytes.
pub(super) const OURS: &str = "Clawnode";
/// How the server's words begin: answers, acknowledgements, acknowledgements of acknowledgements.
const WORDS: [&[u8]; 4] = [b"{\"type\":\"io.nats.", b"{\"stream\":", b"{\"error\":", b"+"];

/// Whether a user made the server write this.
pub(super) fn is_foreign(headers: Option<&HeaderMap>, payload: &[u8]) -> bool {
    if headers.is_some_and(|all| all.get(OURS).is_some()) {
        return false;
    }
    payload.is_empty() || WORDS.iter().any(|word| payload.starts_with(word))
}

#[cfg(test)]
mod tests {
    use clawnode_proto::{EntityId, SwitchId, codec};

    use super::*;

    #[test]
    fn foreign_1_the_servers_words_are_told_from_records() {
        for words in [
            r#"{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","error":{"code":404}}"#,
            r#"{"stream":"CN_JOURNAL","seq":7}"#,
            r#"{"error":{"code":500,"err_code":10111},"stream":"CN_BUCKET","seq":0}"#,
            "+ACK",
            "",
        ] {
            assert!(is_foreign(None, words.as_bytes()), "{words}");
            assert!(is_foreign(Some(&HeaderMap::new()), words.as_bytes()), "{words}");
            let mut marked = HeaderMap::new();
            marked.insert(OURS, "1");
            assert!(!is_foreign(Some(&marked), words.as_bytes()), "{words}");
        }
        let records = [
            codec::encode(&[("a", EntityId::from_u128(1))]).unwrap(),
            codec::encode(&std::collections::BTreeMap::from([("id", SwitchId::from_u128(1))]))
                .unwrap(),
            codec::encode(&Vec::<u8>::new()).unwrap(),
        ];
        for record in records {
            assert!(!is_foreign(None, &record), "{record:?}");
        }
    }
}
