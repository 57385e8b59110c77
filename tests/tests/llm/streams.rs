//! What is read of a reply: every kind of event, any chunking, any bytes.

use std::{fmt::Write as _, time::Duration};

use clawnode_actors::llm::{
    ModelEvent, ModelRequest, Wire,
    fuzz::{fuzz, replay},
};
use clawnode_proto::llm::{FailureClass, ModelFailure};
use clawnode_tests::model::{Act, Reply, Step};
use proptest::{prelude::*, sample::Index};
use serde_json::json;

use crate::{
    WIRES, ask, call, calls, client, client_with, done, events_type, failed, fixtures, offers_in,
    overloaded, own_words, retries, server, text,
};

#[tokio::test]
async fn every_kind_of_event_is_read() {
    for wire in WIRES {
        let mut told = String::new();
        for (name, body) in fixtures(wire) {
            let server =
                server([Act::Bytes { content_type: events_type(wire), body }]).await.unwrap();
            let request = ModelRequest { tools: offers_in(&name), ..ask("hi") };
            let events = call(&*client_with(wire, &server, |o| o.retries = 0), request).await;
            let good = matches!(events.last(), Some(ModelEvent::Done { .. }));
            assert_eq!(good, !name.starts_with("bad_"), "{wire:?} {name}: {events:?}");
            writeln!(told, "{name}").unwrap();
            for event in events {
                let event = match event {
                    ModelEvent::Failed(failure) => {
                        let message = own_words(&failure).to_owned();
                        ModelEvent::Failed(ModelFailure { message, ..failure })
                    }
                    other => other,
                };
                writeln!(told, "  {event:?}").unwrap();
            }
            server.stop().await.unwrap();
        }
        insta::assert_snapshot!(format!("fixtures_{wire:?}"), told);
    }
}

#[tokio::test]
async fn what_is_not_the_reply_is_skipped() {
    let say = |text: &str| Step::Text { text: text.to_owned() };
    let steps = [
        Step::Ping,
        Step::Thinking { text: "hm".to_owned() },
        say("Hel"),
        Step::Ping,
        Step::Unknown,
        Step::Split { text: "lö 🦀".to_owned() },
    ];
    for wire in WIRES {
        for crlf in [false, true] {
            for usage in [false, true] {
                let reply = Reply { crlf, usage, ..Reply::steps(steps.clone()) };
                let server = server([reply.into()]).await.unwrap();
                let events = call(&*client(wire, &server), ask("hi there")).await;
                assert_eq!(text(&events), "Hello 🦀".replace("llo", "llö"), "{wire:?}");
                let counts = if usage { (4, 2) } else { (0, 0) };
                let counted = done(&events).1;
                assert_eq!((counted.input_tokens, counted.output_tokens), counts, "{wire:?}");
                assert_eq!(counted.estimated, !usage, "{wire:?}: absent is not nothing");
                server.stop().await.unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_reply_that_breaks_off_is_asked_for_again() {
    for wire in WIRES {
        let begun = |end| Reply { end, ..Reply::steps([Step::Text { text: "par".to_owned() }]) };
        let cut = Reply::steps([Step::Text { text: "par".to_owned() }, Step::Cut]);
        let server = server([cut.into(), begun(false).into(), Act::say("ok")]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!(text(&events), "parparok", "{wire:?}: what comes before a retry is void");
        let classes = retries(&events).iter().map(|(_, why)| why.class).collect::<Vec<_>>();
        assert_eq!(classes, [FailureClass::BrokenStream; 2], "{wire:?}");
        let said = |event: &ModelEvent| matches!(event, ModelEvent::Text(text) if text == "ok");
        let last = |event: &ModelEvent| matches!(event, ModelEvent::Retrying { .. });
        let (said, last) = (events.iter().position(said), events.iter().rposition(last));
        assert!(last < said, "{wire:?}: {events:?}");
        let asked = server.stop().await.unwrap();
        assert!(
            asked.iter().all(|one| (&one.key, &one.digest) == (&asked[0].key, &asked[0].digest))
        );
    }
}

/// A connection that broke says nothing of how busy its provider is. A second one does, and a refusal.
#[tokio::test]
async fn after_a_broken_connection_the_first_retry_comes_at_once() {
    let cut = || Act::Reply(Reply::steps([Step::Text { text: "par".to_owned() }, Step::Cut]));
    let waits = |events: &[ModelEvent]| -> Vec<Duration> {
        let shown = |event: &ModelEvent| match event {
            ModelEvent::Retrying { wait, .. } => Some(*wait),
            _ => None,
        };
        events.iter().filter_map(shown).collect()
    };
    for wire in WIRES {
        for (acts, at_once) in [
            ([cut(), cut()], [true, false]),
            ([Act::Hangup, cut()], [true, false]),
            ([Act::status(503, "busy"), cut()], [false, true]),
        ] {
            let server = server(acts.into_iter().chain([Act::say("ok")])).await.unwrap();
            // A random part of it is nothing in one of 20 million cases.
            let client = client_with(wire, &server, |options| {
                options.retry_first = Duration::from_millis(20);
            });
            let events = call(&*client, ask("hi")).await;
            let waits = waits(&events);
            let found: Vec<bool> = waits.iter().map(Duration::is_zero).collect();
            assert_eq!(found, at_once, "{wire:?}: {waits:?}");
            server.stop().await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_fault_within_a_reply_is_a_failure_in_the_end() {
    use FailureClass::{BrokenStream, Overloaded};
    let overloaded = |wire| Step::Error { kind: overloaded(wire), message: "too busy".to_owned() };
    for wire in WIRES {
        for (step, class, says, asked) in [
            (Step::Cut, BrokenStream, "the connection was lost", 3),
            (Step::BadJson, BrokenStream, "EOF while parsing", 1),
            (Step::BadShape, BrokenStream, "invalid", 1),
            (Step::Garble, BrokenStream, "not valid text", 1),
            (Step::tools([("x", json!({}))]), BrokenStream, "a tool", 1),
            (overloaded(wire), Overloaded, "too busy", 5),
            (Step::Raw { text: "x".repeat(2 << 20) }, BrokenStream, "1048576 bytes", 1),
        ] {
            let name = format!("{wire:?} {:.40}", format!("{step:?}"));
            let reply = Reply::steps([Step::Text { text: "par".to_owned() }, step]);
            let server = server((0..asked).map(|_| reply.clone().into())).await.unwrap();
            let events = call(&*client(wire, &server), ask("hi")).await;
            assert_eq!(text(&events), "par".repeat(asked), "{name}");
            assert_eq!(failed(&events).class, class, "{name}: {events:?}");
            assert!(failed(&events).message.contains(says), "{name}: {events:?}");
            assert_eq!(server.stop().await.unwrap().len(), asked, "{name}");
        }
        let endless = Reply { end: false, ..Reply::text(["par"]) };
        let server = server((0..3).map(|_| endless.clone().into())).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert!(failed(&events).message.contains("ended too early"), "{wire:?} {events:?}");
        assert_eq!(server.stop().await.unwrap().len(), 3);
    }
}

fn is_done(events: &[ModelEvent]) -> bool {
    matches!(events.last(), Some(ModelEvent::Done { .. }))
}

/// The messages of an event stream, which all are whole.
fn messages(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut all = Vec::new();
    while let Some(length) = bytes.first_chunk::<4>() {
        let (message, rest) = bytes.split_at(u32::from_be_bytes(*length) as usize);
        all.push(message);
        bytes = rest;
    }
    all
}

fn is_named(message: &[u8], name: &str) -> bool {
    message.windows(name.len()).any(|at| at == name.as_bytes())
}

#[test]
fn no_prefix_of_a_stream_is_a_short_success() {
    for wire in WIRES {
        for (name, body) in fixtures(wire) {
            let offers = !offers_in(&name).is_empty();
            let whole = replay(wire, offers, [body.clone()]);
            let all = calls(&whole);
            let ends = (0..=body.len()).find(|end| {
                let part = replay(wire, offers, [body[..*end].to_vec()]);
                assert!(all.starts_with(&calls(&part)), "{name} makes another call, cut at {end}");
                is_done(&part)
            });
            match ends {
                None => assert!(!is_done(&whole), "{name}"),
                Some(end) => {
                    let last = String::from_utf8_lossy(&body[..end]).into_owned();
                    let ended = last.trim_end_matches('\n');
                    let event = ended.rsplit('\n').next().unwrap();
                    let proper = match wire {
                        // The last CRC is the end.
                        Wire::Bedrock => {
                            let last = messages(&body[..end]).pop().unwrap();
                            assert!(is_named(last, "metadata"), "{name} ends at {end}");
                            continue;
                        }
                        Wire::Anthropic => event.ends_with("{\"type\": \"message_stop\"}"),
                        Wire::Openai | Wire::Demo => event == "data: [DONE]",
                        Wire::OpenaiResponses => event.contains("\"type\":\"response."),
                        Wire::Gemini => event.contains("Reason\""),
                        Wire::Ollama => event.contains("\"done\":true"),
                    };
                    let proper = proper && ended.len() < last.len();
                    assert!(proper, "{name} ends at {end}: …{last}");
                }
            }
        }
    }
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_stream() {
    // Bedrock's is no text.
    for wire in WIRES.into_iter().filter(|wire| *wire != Wire::Bedrock) {
        let (_, body) = fixtures(wire).into_iter().find(|(name, _)| name == "text").unwrap();
        let marked = [b"\xef\xbb\xbf", &body[..]].concat();
        let bytewise = marked.iter().map(|byte| vec![*byte]);
        assert_eq!(replay(wire, false, bytewise), replay(wire, false, [body]));
    }
}

proptest! {
    #[test]
    fn chunks_do_not_matter(
        fixture: Index,
        wire in prop::sample::select(WIRES.to_vec()),
        crlf: bool,
        cuts in prop::collection::vec(any::<Index>(), 0..24),
    ) {
        let (name, body) = fixture.get(&fixtures(wire)).clone();
        let offers = !offers_in(&name).is_empty();
        let body = if crlf && wire != Wire::Bedrock {
            body.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..])
        } else {
            body
        };
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(body.len() + 1)).collect();
        cuts.extend([0, body.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|cut| body[cut[0]..cut[1]].to_vec());
        prop_assert_eq!(replay(wire, offers, chunks), replay(wire, offers, [body.clone()]));
    }

    #[test]
    fn no_bytes_panic(
        wire in prop::sample::select(WIRES.to_vec()),
        data in prop::collection::vec(any::<u8>(), 0..512),
    ) {
        fuzz(wire, &data);
    }

    #[test]
    fn no_damage_panics(
        wire in prop::sample::select(WIRES.to_vec()),
        fixture: Index,
        chunk: u8,
        damage in prop::collection::vec((any::<Index>(), any::<u8>()), 1..8),
        gap in prop::option::of((any::<Index>(), 0..64usize)),
    ) {
        let (_, body) = fixture.get(&fixtures(wire)).clone();
        let mut data = [&[chunk], &body[..]].concat();
        for (at, byte) in damage {
            *at.get_mut(&mut data) = byte;
        }
        if let Some((at, length)) = gap {
            let at = at.index(data.len());
            data.drain(at..data.len().min(at + length));
        }
        fuzz(wire, &data);
    }
}
