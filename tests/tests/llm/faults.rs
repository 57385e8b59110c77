//! What fails before a reply: classes, retries, waits, deadlines.

use std::time::Duration;

use clawnode_actors::llm::{ModelEvent, Wire};
use clawnode_proto::llm::FailureClass;
use clawnode_tests::model::{Act, Reply, Step};
use futures_util::{StreamExt, poll};

use crate::{
    EVENTS, WIRES, ask, call, client, client_at, client_with, failed, own_words, retries, server,
    skip, text,
};

#[tokio::test]
async fn refusals_are_classed_and_carry_the_providers_words() {
    use FailureClass::{Overloaded, Rejected};
    for wire in WIRES {
        for (status, class, keeps_attachments) in [
            (400, Rejected, false),
            (402, Rejected, true),
            (404, Rejected, true),
            (413, Rejected, false),
            (415, Rejected, false),
            (422, Rejected, false),
            (501, Overloaded, false),
        ] {
            let server = server([Act::status(status, "because\r\nof you")]).await.unwrap();
            let events = call(&*client(wire, &server), ask("hi")).await;
            let failure = failed(&events);
            assert_eq!((failure.class, failure.status), (class, Some(status)), "{wire:?}");
            assert_eq!(failure.keeps_attachments, keeps_attachments, "{wire:?}: {status}");
            assert_eq!(own_words(failure), "because  of you", "{wire:?}");
            assert_eq!(server.stop().await.unwrap().len(), 1, "{status} is not tried again");
        }
    }
}

#[tokio::test]
async fn a_request_that_is_too_long_is_told_apart_with_what_the_model_reads() {
    for wire in WIRES {
        let words = "prompt is too long: 213462 tokens > 200000 maximum";
        let server = server([Act::status(400, words), Act::status(400, "no")]).await.unwrap();
        let client = client(wire, &server);
        let events = call(&*client, ask("hi")).await;
        let size = failed(&events).too_long.unwrap();
        assert_eq!((size.window, size.request), (Some(200_000), Some(213_462)), "{wire:?}");
        let events = call(&*client, ask("hi")).await;
        assert_eq!(failed(&events).too_long, None, "{wire:?}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_with_the_same_key() {
    for wire in WIRES {
        for status in [408, 429, 500, 502, 503, 504, 529] {
            let acts = [Act::status(status, "busy"), Act::say("ok")];
            let server = server(acts).await.unwrap();
            let events = call(&*client(wire, &server), ask("hi")).await;
            assert_eq!(text(&events), "ok", "{wire:?} {status}");
            assert_eq!(retries(&events).len(), 1, "{wire:?} {status}");
            assert_eq!(retries(&events)[0].1.status, Some(status));
            let calls = server.stop().await.unwrap();
            assert_eq!(calls.len(), 2);
            assert_eq!((&calls[0].key, &calls[0].digest), (&calls[1].key, &calls[1].digest));
        }
    }
}

#[tokio::test]
async fn a_connection_closed_before_an_answer_is_tried_again() {
    for wire in WIRES {
        let server = server([Act::Hangup, Act::Hangup, Act::say("ok")]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!((text(&events).as_str(), retries(&events).len()), ("ok", 2), "{events:?}");
        assert_eq!(server.stop().await.unwrap().len(), 3);
    }
}

#[tokio::test]
async fn an_error_in_the_place_of_a_reply_is_tried_again() {
    for (wire, kind) in [(Wire::Anthropic, "overloaded_error"), (Wire::Openai, "server_error")] {
        let error = format!(
            "event: error\ndata: {{\"type\":\"error\",\"error\":{{\"type\":\"{kind}\",\"message\":\"busy\"}}}}\n\n"
        );
        let acts = [Act::Raw { content_type: EVENTS.to_owned(), body: error }, Act::say("ok")];
        let server = server(acts).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!((text(&events).as_str(), retries(&events).len()), ("ok", 1), "{events:?}");
        assert_eq!(retries(&events)[0].1.class, FailureClass::Overloaded);
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn retries_end() {
    for wire in WIRES {
        let server = server((0..9).map(|n| Act::status(500, &format!("no {n}")))).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!(retries(&events).len(), 4);
        assert_eq!(own_words(failed(&events)), "no 4", "the last word, after 4 retries");
        let never = Act::status_with(500, "no more", "x-should-retry", "false");
        let events = {
            let server = crate::server([never]).await.unwrap();
            call(&*client(wire, &server), ask("hi")).await
        };
        assert_eq!(retries(&events).len(), 0, "the provider says not to");
        assert_eq!(server.stop().await.unwrap().len(), 5);
    }
}

#[tokio::test]
async fn an_account_without_credit_is_not_asked_again() {
    let body = r#"{"error":{"message":"You exceeded your current quota","type":"insufficient_quota","code":"insufficient_quota"}}"#;
    for wire in WIRES {
        let server = server([Act::status_body(429, body)]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!(failed(&events).class, FailureClass::Rejected, "{wire:?}");
        assert!(failed(&events).keeps_attachments, "{wire:?}: it is not about what was asked");
        assert_eq!(own_words(failed(&events)), "You exceeded your current quota");
        assert_eq!(server.stop().await.unwrap().len(), 1, "{wire:?}: asked once");
    }
}

#[tokio::test]
async fn a_wait_that_the_provider_asks_for_is_kept() {
    for wire in WIRES {
        let busy = Act::status_with(429, "slow down", "Retry-After", "7");
        let server = server([busy, Act::say("ok")]).await.unwrap();
        let mut stream = client(wire, &server).stream(ask("hi"));
        let Some(ModelEvent::Retrying { retry: 1, wait, failure }) = stream.next().await else {
            panic!("not retried")
        };
        assert_eq!((wait, failure.class), (Duration::from_secs(7), FailureClass::RateLimited));
        skip(&mut stream, Duration::from_millis(6_900)).await;
        assert!(poll!(stream.next()).is_pending());
        assert_eq!(server.count(), 1, "not asked again before its time");
        skip(&mut stream, Duration::from_millis(200)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(text(&rest), "ok");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn a_wait_beyond_the_deadline_is_not_begun() {
    for wire in WIRES {
        let server = server([Act::status_with(429, "quota", "retry-after", "3600")]).await.unwrap();
        let events = call(&*client(wire, &server), ask("hi")).await;
        assert_eq!(own_words(failed(&events)), "quota (it asks to wait 3600 s)");
        assert_eq!(failed(&events).retry_after_ms, Some(3_600_000));
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn silence_is_a_timeout_before_and_within_a_reply() {
    for wire in WIRES {
        let silent = Reply::steps([Step::Text { text: "par".to_owned() }, Step::Stall]);
        let server = server([Act::Stall, silent.into()]).await.unwrap();
        let client = client(wire, &server);
        let mut stream = client.stream(ask("hi"));
        tokio::select! {
            biased;
            event = stream.next() => panic!("{event:?}"),
            _ = server.asked(1) => {}
        }
        skip(&mut stream, Duration::from_secs(71)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(failed(&rest).class, FailureClass::Timeout);
        assert!(failed(&rest).message.starts_with("provider timeout"), "{rest:?}");

        let mut stream = client.stream(ask("hi"));
        while stream.next().await != Some(ModelEvent::Text("par".to_owned())) {}
        skip(&mut stream, Duration::from_secs(61)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(failed(&rest).class, FailureClass::Timeout, "{wire:?}");
        assert_eq!(server.stop().await.unwrap().len(), 2, "a timeout is not tried again");
    }
}

#[tokio::test]
async fn a_reply_that_never_ends_meets_the_deadline() {
    for wire in WIRES {
        let reply = Reply::steps([Step::Text { text: "par".to_owned() }, Step::Stall]);
        let server = server([reply.into()]).await.unwrap();
        let client = client_with(wire, &server, |options| {
            options.idle_timeout = Duration::from_hours(1);
        });
        let mut stream = client.stream(ask("hi"));
        while stream.next().await != Some(ModelEvent::Text("par".to_owned())) {}
        skip(&mut stream, Duration::from_secs(601)).await;
        let rest: Vec<_> = stream.collect().await;
        assert_eq!(own_words(failed(&rest)), "provider timeout: no end within 600 s");
        assert!(failed(&rest).message.ends_with("`providers.p.total_timeout`"), "{rest:?}");
        server.stop().await.unwrap();
    }
}

#[tokio::test]
async fn nobody_there_is_unreachable() {
    // It has the port, so that no other process gets it, and does not listen.
    let held = tokio::net::TcpSocket::new_v4().unwrap();
    held.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let free = held.local_addr().unwrap();
    for wire in WIRES {
        let client = client_at(wire, &format!("http://{free}/v1"), |options| {
            options.retries = 1;
            options.retry_first = Duration::from_millis(1);
        });
        let events = call(&*client, ask("hi")).await;
        assert_eq!(retries(&events).len(), 1);
        let failure = failed(&events);
        assert_eq!(failure.class, FailureClass::Unreachable);
        assert!(
            failure.message.starts_with("provider unreachable: http://127.0.0.1"),
            "{failure:?}"
        );
        let plain = ": the connection was refused: no server listens there. Provider `p` at ";
        assert!(failure.message.contains(plain), "{failure:?}");
        assert!(!failure.message.contains("os error"), "{failure:?}");
    }
}
